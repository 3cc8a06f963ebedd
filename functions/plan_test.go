package functions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
	"github.com/spillway-mq/spillway/planner"
)

// quick has targets and windows that a test can reach.
func quick() planner.Policies {
	p := planner.DefaultPolicy()
	p.TargetRecords, p.Short, p.Long, p.CoolDown, p.Floor, p.Cap = 1, time.Second, 2*time.Second, 2*time.Second, 1, 8
	return planner.Policies{Default: p}
}

// aged makes a topic that is an hour old, so that a planner knows it long enough.
func (b *bench) aged(t *testing.T, name string, segments int) *segment.Topic {
	t.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: lane.Default}
	top, err := b.Store.CreateTopic(t.Context(), def, segments, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// surge brings a topic's only segment far above the target: two chunks, a moment
// apart, as a worker commits them.
func (b *bench) surge(t *testing.T, top *segment.Topic) {
	t.Helper()
	l, err := top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := top.Segment(t.Context(), l.Live[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	for flush := range uint64(2) {
		set := &record.Set{}
		for i := range uint64(200) {
			r := record.Record{Time: time.Now(), Position: topic.Position{Sequence: 1 + 200*flush + i}, Value: []byte("v")}
			if err := set.Append(&r, topic.Slot(i*327)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Append(t.Context(), segment.Input{
			Source: "backfill.x.0", Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (b *bench) layout(t *testing.T, name string) topic.Layout {
	t.Helper()
	top, err := b.Store.Topic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	l, err := top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// planOnce makes one run.
func (b *bench) planOnce(t *testing.T, o PlanOptions) (PlanSummary, error) {
	t.Helper()
	b.fresh()
	o.Once, o.Policies = true, quick()
	return Plan(t.Context(), b.Deps, o)
}

// plans runs a resident planner until the returned function is called, which may
// not take long.
func (b *bench) plans(t *testing.T, period time.Duration) (stop func()) {
	t.Helper()
	b.fresh()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	d := b.Deps
	go func() {
		_, err := Plan(ctx, d, PlanOptions{Policies: quick(), Period: period})
		done <- err
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("told to stop, the planner ended with %v", err)
			}
		case <-time.After(patience):
			t.Error("the planner does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}

func (b *bench) nudge(t *testing.T, names ...string) {
	t.Helper()
	q, err := work.Open(t.Context(), b.js)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := q.Put(t.Context(), work.Subject(work.Plan, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// waiting is how many nudges nobody has done, but for those that planners put for
// compactors.
func (b *bench) waiting(t *testing.T) uint64 {
	t.Helper()
	s, err := b.js.Stream(t.Context(), work.Stream)
	if err != nil {
		t.Fatal(err)
	}
	info, err := s.Info(t.Context(), jetstream.WithSubjectFilter(work.Filter(work.Compact, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs - uint64(len(info.State.Subjects))
}

// TestPlanOnNudge: a resident planner follows a nudge at once, however long its
// period is.
func TestPlanOnNudge(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	top := b.aged(t, "t", 1)
	b.plans(t, time.Hour)
	b.nudge(t, "t")
	until(t, "the first nudge is done", func() bool { return b.waiting(t) == 0 })
	b.surge(t, top)
	start := time.Now()
	b.nudge(t, "t")
	until(t, "the topic is split", func() bool { return len(b.layout(t, "t").Live) == 8 })
	t.Logf("split %s after the nudge", time.Since(start).Round(time.Millisecond))
	until(t, "the nudge is done", func() bool { return b.waiting(t) == 0 })
}

// TestPlanFollowsAWorker: what a worker commits is split without anybody asking for
// it, while records flow, and nothing is lost.
func TestPlanFollowsAWorker(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.create(t, "t")
	b.plans(t, 50*time.Millisecond)
	d := b.Deps
	d.Metrics = nil
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := Ingest(ctx, d, IngestOptions{}); ended <- err }()
	f := b.flood(t)
	until(t, "the topic is split", func() bool { return len(b.layout(t, "t").Live) >= 8 })
	want := f.end(t)
	until(t, "the topic is merged back", func() bool { return len(b.layout(t, "t").Live) == 1 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if items := b.read(t, "t"); len(items) != want {
		t.Errorf("%d records are there, %d were sent", len(items), want)
	}
	b.verify(t, "t")
}

// TestPlanOnce: a sweep plans for all topics that are not at rest, damaged ones do
// not keep it from the others, and its error says what is worst.
func TestPlanOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.surge(t, b.aged(t, "hot", 1))
	b.aged(t, "cold", 4)
	sum, err := b.planOnce(t, PlanOptions{})
	if err != nil || sum.Topics != 2 || sum.Splits != 1 || sum.Merges != 1 || sum.Failed+sum.Left+sum.Blind > 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if hot, cold := b.layout(t, "hot"), b.layout(t, "cold"); len(hot.Live) != 8 || len(cold.Live) != 1 {
		t.Errorf("%d and %d segments", len(hot.Live), len(cold.Live))
	}
	b.broken(t, "broken")
	sum, err = b.planOnce(t, PlanOptions{})
	if ExitCode(err) != ExitBug || !errors.Is(err, filer.ErrCorrupt) || sum.Failed != 1 || sum.Topics != 2 {
		t.Errorf("with a damaged topic: %+v, %v", sum, err)
	}
	if err == nil || !strings.Contains(err.Error(), `topic "broken"`) {
		t.Errorf("%v does not name the topic", err)
	}
}

// broken makes a topic whose layout cannot be read.
func (b *bench) broken(t *testing.T, name string) {
	t.Helper()
	layout := b.aged(t, name, 1).Dir() + "/layout/0000000000000000.json"
	if err := b.Store.Filer.Delete(t.Context(), layout, ""); err != nil {
		t.Fatal(err)
	}
	if err := b.Store.Filer.Create(t.Context(), layout, filer.File{ID: filer.NewID(), Content: []byte("no layout")}); err != nil {
		t.Fatal(err)
	}
}

// TestPlanOnceNudged: nudges are followed until none is left, also those of topics
// that are gone, or cannot be.
func TestPlanOnceNudged(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.surge(t, b.aged(t, "one", 1))
	b.surge(t, b.aged(t, "two", 1))
	b.surge(t, b.aged(t, "three", 1))
	b.nudge(t, "one", "two", "gone")
	if _, err := b.js.Publish(t.Context(), "spillway.work.plan.NO-NAME", nil); err != nil {
		t.Fatal(err)
	}
	sum, err := b.planOnce(t, PlanOptions{Nudged: true, Deadline: time.Minute})
	if err != nil || sum.Nudges != 4 || sum.Topics != 2 || sum.Gone != 2 || sum.Splits != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	if n := len(b.layout(t, "three").Live); n != 1 || b.waiting(t) != 0 {
		t.Errorf("%d segments of a topic that nobody asked for, %d nudges left", n, b.waiting(t))
	}
	if sum, err = b.planOnce(t, PlanOptions{Nudged: true}); err != nil || sum.Nudges != 0 {
		t.Errorf("nothing to do: %+v, %v", sum, err)
	}
	b.broken(t, "broken")
	b.nudge(t, "broken", "three")
	sum, err = b.planOnce(t, PlanOptions{Nudged: true})
	if ExitCode(err) != ExitBug || sum.Failed != 1 || sum.Splits != 1 || b.waiting(t) != 1 {
		t.Errorf("with a damaged topic: %+v, %v; %d nudges are put off, want 1", sum, err, b.waiting(t))
	}
}

// TestPlanQueueOfAnotherShape: a stream that cannot be the work queue is the
// operator's to mend; sweeps go on meanwhile.
func TestPlanQueueOfAnotherShape(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	if _, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: work.Stream, Subjects: []string{"spillway.work.>"}}); err != nil {
		t.Fatal(err)
	}
	sum, err := b.planOnce(t, PlanOptions{Nudged: true})
	var mismatch *work.MismatchError
	if ExitCode(err) != ExitConfig || !errors.As(err, &mismatch) {
		t.Errorf("%+v, %v, exit code %d", sum, err, ExitCode(err))
	}
	top := b.aged(t, "t", 1)
	b.plans(t, 50*time.Millisecond)
	b.log.await(t, "cannot follow nudges; sweeps go on")
	b.surge(t, top)
	until(t, "the topic is split", func() bool { return len(b.layout(t, "t").Live) > 1 })
}

// TestPlanWithoutNATS: while NATS is away sweeps split, and merge nothing, since
// messages may wait. When it is back, all is as before.
func TestPlanWithoutNATS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := devtest.NATSOn(t, dir, server.RANDOM_PORT)
	b := newBenchOn(t, srv, memfs.New().Client("worker", nil))
	b.surge(t, b.aged(t, "hot", 1))
	b.aged(t, "cold", 4)
	port := devtest.StopNATS(srv)
	sum, err := b.planOnce(t, PlanOptions{})
	if ExitCode(err) != ExitRetry || sum.Splits != 1 || sum.Merges != 0 || sum.Blind != 2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if _, err = b.planOnce(t, PlanOptions{Nudged: true, Deadline: 4 * time.Second}); ExitCode(err) != ExitRetry {
		t.Errorf("nudges: %v, exit code %d", err, ExitCode(err))
	}
	b.plans(t, 50*time.Millisecond)
	b.log.await(t, "cannot follow nudges; sweeps go on", "nothing is merged")
	if n := len(b.layout(t, "cold").Live); n != 4 {
		t.Errorf("merged blindly: %d segments", n)
	}
	devtest.NATSOn(t, dir, port)
	until(t, "what is idle is merged", func() bool { return len(b.layout(t, "cold").Live) == 1 })
}

// TestPlanWithoutFiler: a sweep that meets a filer that does not work ends before
// its deadline with exit code 75; a resident planner waits it out.
func TestPlanWithoutFiler(t *testing.T) {
	t.Parallel()
	o := newOutage(func(memfs.Op) memfs.Fault { return memfs.Fault{Before: errors.New("connection refused")} })
	b := newBenchOn(t, devtest.NATS(t), memfs.New().Client("worker", o.hook))
	top := b.aged(t, "t", 1)
	b.surge(t, top)
	o.on.Store(true)
	start := time.Now()
	sum, err := b.planOnce(t, PlanOptions{Deadline: 2 * time.Second})
	if took := time.Since(start); ExitCode(err) != ExitRetry || sum.Topics != 0 || took > 4*time.Second {
		t.Errorf("%+v, %v after %s", sum, err, took)
	}
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v does not say why", err)
	}
	o.on.Store(false)
	b.plans(t, 50*time.Millisecond)
	o.strike(t, 3)
	until(t, "the topic is split", func() bool { return len(b.layout(t, "t").Live) > 1 })
}

// TestPlanStopsInAnEdit: told to stop in the middle of an edit, a planner finishes
// it, and that is no error.
func TestPlanStopsInAnEdit(t *testing.T) {
	t.Parallel()
	for _, nudged := range []bool{false, true} {
		t.Run(fmt.Sprintf("nudged %v", nudged), func(t *testing.T) {
			t.Parallel()
			begun := make(chan struct{})
			var once sync.Once
			fs := memfs.New()
			b := newBenchOn(t, devtest.NATS(t), fs.Client("worker", func(op memfs.Op) memfs.Fault {
				if op.Name == "Create" && strings.HasSuffix(op.Path, "/layout/0000000000000001.json") {
					once.Do(func() { close(begun) })
					return memfs.Fault{Hold: 200 * time.Millisecond}
				}
				return memfs.Fault{}
			}))
			b.surge(t, b.aged(t, "t", 1))
			b.nudge(t, "t")
			ctx, stop := context.WithCancel(t.Context())
			go func() { <-begun; stop() }()
			b.fresh()
			sum, err := Plan(ctx, b.Deps, PlanOptions{Once: true, Nudged: nudged, Policies: quick()})
			if err != nil || sum.Splits != 1 {
				t.Errorf("%+v, %v", sum, err)
			}
			if l := b.layout(t, "t"); l.Pending || l.Epoch != 2 {
				t.Errorf("epoch %d, pending %v", l.Epoch, l.Pending)
			}
		})
	}
}

// TestPlanHealth: a planner that gets on with some topic is healthy; one that gets
// on with none is not.
func TestPlanHealth(t *testing.T) {
	t.Parallel()
	now := time.Now()
	h := ingest.NewHealth(func() time.Time { return now })
	n := &nudged{deps: Deps{Health: h}}
	fault := errors.New("connection refused")
	for _, step := range []struct {
		sum  planner.Summary
		err  error
		sick bool
	}{
		{planner.Summary{Topics: 3, Failed: 1}, fault, false},
		{planner.Summary{Failed: 1}, fault, true},
		{planner.Summary{}, fault, true},
		{planner.Summary{}, nil, false},
	} {
		for range 4 { // for longer than a fault is nobody's business
			n.health(step.sum, step.err)
			now = now.Add(20 * time.Second)
		}
		if err := h.Err(); (err != nil) != step.sick {
			t.Errorf("%+v, %v: health %v", step.sum, step.err, err)
		}
	}
}
