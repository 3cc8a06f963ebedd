//go:build unix

package planner

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

var scaleFull = flag.Bool("scale", false, "TestScale at its full size: 10,000 topics with 100,000 segments")

const segmentsEach = 10

// counted counts the calls to a filer.
type counted struct {
	filer.Store
	calls atomic.Int64
}

func (c *counted) Lookup(ctx context.Context, path string) (filer.Entry, error) {
	c.calls.Add(1)
	return c.Store.Lookup(ctx, path)
}

func (c *counted) List(ctx context.Context, dir, after string, limit int) ([]filer.Entry, error) {
	c.calls.Add(1)
	return c.Store.List(ctx, dir, after, limit)
}

func (c *counted) Create(ctx context.Context, path string, f filer.File) error {
	c.calls.Add(1)
	return c.Store.Create(ctx, path, f)
}

func (c *counted) Update(ctx context.Context, path, expect string, f filer.File) error {
	c.calls.Add(1)
	return c.Store.Update(ctx, path, expect, f)
}

func (c *counted) Delete(ctx context.Context, path, expect string) error {
	c.calls.Add(1)
	return c.Store.Delete(ctx, path, expect)
}

// field is many topics, of which the first few take in records.
type field struct {
	t      *testing.T
	filer  *counted
	store  *segment.Store
	topics []*segment.Topic
	active [][]*segment.Segment
	next   uint64
	policy Policy
}

// cost is what something took.
type cost struct {
	calls int64
	cpu   time.Duration
}

func (f *field) cost(do func()) cost {
	calls, cpu := f.filer.calls.Load(), cpuTime()
	do()
	return cost{f.filer.calls.Load() - calls, cpuTime() - cpu}
}

// cpuTime is what this process has used of its processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func newField(t *testing.T, topics int) *field {
	t.Helper()
	f := &field{t: t, filer: &counted{Store: memfs.New().Client("c", nil)}, topics: make([]*segment.Topic, topics), policy: DefaultPolicy(), next: 1}
	f.policy.TargetRecords = 4 // one record a second is a level of 0.25
	f.store = segment.NewStore(f.filer, "test")
	f.store.Codec = record.CodecNull
	var g errgroup.Group
	g.SetLimit(2 * runtime.GOMAXPROCS(0))
	for i := range f.topics {
		g.Go(func() (err error) {
			f.topics[i], err = f.store.CreateTopic(t.Context(), topic.Definition{
				Name: fmt.Sprintf("t%05d", i), Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
			}, segmentsEach, time.Now())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *field) planner() *Planner {
	return New(Options{Store: f.store, Policies: Policies{Default: f.policy}, Logger: slog.New(slog.DiscardHandler)})
}

// wake opens the segments of the first n topics, to be flushed to.
func (f *field) wake(n int) {
	f.t.Helper()
	for i := len(f.active); i < n; i++ {
		segments, err := f.topics[i].Segments(f.t.Context())
		if err != nil {
			f.t.Fatal(err)
		}
		f.active = append(f.active, segments)
	}
}

// flush lets a time pass in which each segment of the active topics takes in one
// record a second.
func (f *field) flush(d time.Duration) {
	f.t.Helper()
	for range int(d / time.Second) {
		bubble.Pass(time.Second)
		var g errgroup.Group
		g.SetLimit(2 * runtime.GOMAXPROCS(0))
		seq := f.next
		for _, segments := range f.active {
			for i, s := range segments {
				g.Go(func() error { return appendOne(f.t.Context(), s, seq+uint64(i)) })
			}
		}
		if err := g.Wait(); err != nil {
			f.t.Fatal(err)
		}
		f.next += segmentsEach
	}
}

func appendOne(ctx context.Context, s *segment.Segment, seq uint64) error {
	set := &record.Set{}
	r := record.Record{Time: time.Now(), Position: topic.Position{Sequence: seq}, Value: []byte("v")}
	if err := set.Append(&r, topic.Slot(s.Range.Lo)); err != nil {
		return err
	}
	_, err := s.Append(ctx, segment.Input{
		Source: "lane.default.0.x", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	return err
}

// sweep plans for all that is active, and wants no more topics, and no edits.
func (f *field) sweep(p *Planner, want int) {
	f.t.Helper()
	sum, err := p.Sweep(f.t.Context(), f.t.Context(), false)
	if err != nil || sum.Topics != want || sum.Splits+sum.Merges+sum.Rolls > 0 {
		f.t.Fatalf("a sweep over %d active topics: %+v, error %v", want, sum, err)
	}
}

func (f *field) nudge(p *Planner) {
	f.t.Helper()
	if r, err := p.Topic(f.t.Context(), f.topics[0].Name); err != nil || len(r.Made) > 0 {
		f.t.Fatalf("%+v, error %v", r.Made, err)
	}
}

// costs are those of a sweep and of a nudge, by how much the planner knows: nothing,
// all but the last 5 s, or all, since no record has come since.
type costs struct {
	active            int
	cold, warm, still cost
	nudge, coldNudge  cost
	remembered        int64 // bytes of what the planner knows of all of them
}

func (f *field) measure(active int) costs {
	f.t.Helper()
	f.wake(active)
	f.flush(40 * time.Second)
	c := costs{active: active}
	p := f.planner()
	c.cold = f.cost(func() { f.sweep(p, active) })
	for range 2 {
		f.flush(5 * time.Second)
		c.warm = f.cost(func() { f.sweep(p, active) })
	}
	f.sweep(p, active)
	c.still = f.cost(func() { f.sweep(p, active) })
	if active > 0 {
		c.coldNudge = f.cost(func() { f.nudge(f.planner()) })
		f.flush(time.Second)
		c.nudge = f.cost(func() { f.nudge(p) })
	}
	with := heap()
	p.topics = nil
	c.remembered = with - heap()
	return c
}

// heap is what is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestScale: what a sweep costs grows with the topics that take in records, and with
// nothing else. With -v it prints the numbers.
func TestScale(t *testing.T) {
	topics, steps := 1000, []int{0, 5, 20, 40}
	if *scaleFull {
		topics, steps = 10_000, []int{0, 10, 100, 1000}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newField(t, topics)
		bubble.Pass(segment.RestAfter)
		p := f.planner()
		first := f.cost(func() { f.sweep(p, topics) })
		t.Logf("%d topics with %d segments: the sweep that lets them rest makes %d filer calls in %s of CPU", topics, topics*segmentsEach, first.calls, first.cpu.Round(time.Millisecond))
		if n := len(p.topics); n > 0 {
			t.Errorf("of %d topics that rest something is remembered", n)
		}
		all := make([]costs, len(steps))
		for i, n := range steps {
			all[i] = f.measure(n)
		}
		f.report(all)
	})
}

// report prints a table, and checks that cost per active topic does not depend on
// how many there are.
func (f *field) report(all []costs) {
	f.t.Helper()
	show := func(c cost) string { return fmt.Sprintf("%7d %7.1f ms", c.calls, float64(c.cpu.Microseconds())/1000) }
	f.t.Logf("active  cold sweep           warm sweep           nothing new          cold nudge           nudge                remembered")
	for _, c := range all {
		f.t.Logf("%6d  %s  %s  %s  %s  %s  %7.1f KiB", c.active, show(c.cold), show(c.warm), show(c.still), show(c.coldNudge), show(c.nudge), float64(c.remembered)/1024)
	}
	base := all[0]
	if base.cold.calls > 5 || base.warm.calls > 5 {
		f.t.Errorf("with no active topic a sweep makes %d and %d calls", base.cold.calls, base.warm.calls)
	}
	last := all[len(all)-1]
	each := func(c costs, of func(costs) cost) float64 {
		return float64(of(c).calls-of(base).calls) / float64(c.active)
	}
	for name, of := range map[string]func(costs) cost{
		"cold":  func(c costs) cost { return c.cold },
		"warm":  func(c costs) cost { return c.warm },
		"still": func(c costs) cost { return c.still },
	} {
		for _, c := range all[1:] {
			if a, b := each(c, of), each(last, of); a < 0.7*b || a > 1.4*b {
				f.t.Errorf("%s: %.1f calls for each of %d active topics, %.1f for each of %d", name, a, c.active, b, last.active)
			}
		}
		f.t.Logf("%s: %.1f calls for each active topic of %d segments", name, each(last, of), segmentsEach)
	}
	for name, limit := range map[string]struct{ got, most int64 }{
		"a nudge":      {last.nudge.calls, 60},
		"a cold nudge": {last.coldNudge.calls, 400},
	} {
		if limit.got > limit.most {
			f.t.Errorf("%s makes %d calls, more than %d", name, limit.got, limit.most)
		}
	}
}
