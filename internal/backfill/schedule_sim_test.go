package backfill

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
)

var scheduleSeeds = flag.Int("schedule-seeds", 20, "how many runs of the simulation of schedules")

// TestScheduleSim has two tickers, whose clocks differ and step, do a schedule, and be
// killed at any call, while objects come, change and go, jobs are worked on, and
// somebody pauses and asks. Then it lets all come to rest: each version of an object
// was in one job at most, and each that stayed is in one.
func TestScheduleSim(t *testing.T) {
	total := simCount{}
	for seed := range uint64(*scheduleSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newScheduleSim(t, seed).run(&total) })
		})
	}
	if *scheduleSeeds >= 20 && (total.jobs < 100 || total.killed < 500 || total.found < 10 || total.rests < 10) {
		t.Errorf("it does not do much: %+v", total)
	}
}

type simCount struct{ jobs, killed, found, rests int }

type scheduleSim struct {
	*desk
	mu    sync.Mutex
	rng   *rand.Rand
	box   map[string]string // key to ETag
	count int               // of ETags
	calm  bool              // no more faults, and no more changes
	*simCount
}

func newScheduleSim(t *testing.T, seed uint64) *scheduleSim {
	return &scheduleSim{desk: newDesk(t), rng: rand.New(rand.NewPCG(seed, 6)), box: map[string]string{}}
}

func (m *scheduleSim) n(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *scheduleSim) isCalm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calm
}

func (m *scheduleSim) pass(most time.Duration) { <-time.After(time.Duration(m.n(int(most)) + 1)) }

// List yields what is there at the moment it gets to it.
func (m *scheduleSim) List(_ context.Context, _, _, _ string) iter.Seq2[object.Object, error] {
	return func(yield func(object.Object, error) bool) {
		m.mu.Lock()
		keys := slices.SortedFunc(maps.Keys(m.box), func(a, b string) int { // as SeaweedFS does
			return cmp.Or(strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00")))
		})
		m.mu.Unlock()
		for _, key := range keys {
			if !m.isCalm() && m.n(4) == 0 {
				m.pass(time.Second)
			}
			m.mu.Lock()
			etag, ok := m.box[key]
			m.mu.Unlock()
			if ok && !yield(object.Object{Key: key, Info: object.Info{ETag: etag, Size: 1}}, nil) {
				return
			}
		}
	}
}

// upload puts, changes and deletes objects.
func (m *scheduleSim) upload() error {
	for !m.isCalm() {
		m.pass(2 * time.Minute)
		key := fmt.Sprintf("in/%d%s%d.json", m.n(4), []string{"/", "-", "."}[m.n(3)], m.n(6))
		switch m.mu.Lock(); {
		case m.rng.IntN(5) == 0:
			delete(m.box, key)
		default:
			m.count++
			m.box[key] = fmt.Sprintf("e%d", m.count)
		}
		m.mu.Unlock()
	}
	return nil
}

// work ends jobs, one way or another, and sees that there is never more than one.
func (m *scheduleSim) work() error {
	for !m.isCalm() {
		m.pass(3 * time.Minute)
		if err := m.workOnce(); err != nil {
			return err
		}
	}
	return nil
}

func (m *scheduleSim) workOnce() error {
	var open []string
	for l, err := range m.Jobs.List(m.Context()) {
		if err := errors.Join(err, l.Err); err != nil {
			return err
		}
		if !l.State.Phase.Final() {
			open = append(open, l.ID)
		}
	}
	if len(open) > 1 {
		return fmt.Errorf("jobs at the same time: %q", open)
	}
	for _, id := range open {
		_, err := m.Update(m.Context(), id, func(s *State) error {
			switch m.n(6) {
			case 0:
				return s.Cancel(time.Now(), "sim")
			case 1:
				s.Stop(time.Now(), "", "sim", Progress{})
				return nil
			case 2:
				if s.Phase != Open {
					return s.Resume()
				}
				return nil
			}
			return s.Finish(time.Now(), "", Progress{})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// operate pauses, resumes, and asks for runs.
func (m *scheduleSim) operate() error {
	for !m.isCalm() {
		m.pass(40 * time.Minute)
		_, err := m.schedules(nil).Update(m.Context(), "nightly", func(s *Schedule) {
			switch m.n(3) {
			case 0:
				s.Pause()
			case 1:
				s.Resume(time.Now())
			default:
				s.RunNow(time.Now())
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *scheduleSim) schedules(hook memfs.Hook) *Schedules {
	return SchedulesOf(m.storeOf(hook), m.topic)
}

func (m *scheduleSim) ticker(hook memfs.Hook) *Ticker {
	return &Ticker{
		Schedules: m.schedules(hook), Logger: slog.New(slog.DiscardHandler), most: 4,
		Lister: func(context.Context, string) (Lister, error) { return m, nil },
	}
}

// tick ticks again and again, each time as a process of its own.
func (m *scheduleSim) tick() error {
	skew := time.Duration(0)
	for !m.isCalm() {
		m.pass(2 * time.Minute)
		if m.n(10) == 0 {
			skew = time.Duration(m.n(100)-50) * time.Minute
		}
		ctx, kill := context.WithCancel(m.Context())
		c := &crash{n: m.n(60) + 1, lost: m.n(2) == 0, kill: kill}
		done, err := m.ticker(func(op memfs.Op) memfs.Fault {
			if f := c.hook(op); f != (memfs.Fault{}) {
				return f
			}
			return m.fault()
		}).Tick(ctx, "nightly", time.Now().Add(skew))
		kill()
		m.mu.Lock()
		switch {
		case c.dead:
			m.killed++
		case err != nil:
			err = fmt.Errorf("tick: %w", err)
		case done.Job != "" && done.Found:
			m.found++
		case done.Job != "" && done.Schedule.Rest:
			m.rests++
		}
		m.mu.Unlock()
		if err != nil && !c.dead {
			return err
		}
	}
	return nil
}

func (m *scheduleSim) fault() memfs.Fault {
	switch m.n(60) {
	case 0:
		return memfs.Fault{Before: errCrashed}
	case 1:
		return memfs.Fault{After: errCrashed}
	case 2:
		return memfs.Fault{Late: time.Duration(m.n(int(time.Minute)))}
	case 3, 4, 5:
		return memfs.Fault{Delay: time.Duration(m.n(int(5 * time.Second)))}
	}
	return memfs.Fault{}
}

func (m *scheduleSim) run(total *simCount) {
	m.simCount = total
	s := nightly()
	s.Cron, s.Zone, s.Created = "*/10 * * * *", "UTC", time.Now().UTC()
	m.ok(m.schedules(nil).Create(m.Context(), s))
	var g errgroup.Group
	for _, actor := range []func() error{m.upload, m.work, m.operate, m.tick, m.tick} {
		g.Go(actor)
	}
	<-time.After(3 * time.Hour)
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	m.ok(g.Wait())
	m.fs.Settle()
	m.settle()
	m.check()
}

// settle ticks and works until nothing is to be done.
func (m *scheduleSim) settle() {
	now := time.Now()
	_, err := m.schedules(nil).Update(m.Context(), "nightly", func(s *Schedule) { s.Resume(now) })
	m.ok(err)
	for range 100 {
		now = now.Add(2 * time.Hour) // ahead of all clocks
		done, err := m.ticker(nil).Tick(m.Context(), "nightly", now)
		m.ok(err)
		if done.Empty && !done.Schedule.Rest {
			return
		}
		for range 30 {
			m.ok(m.workOnce())
		}
	}
	m.Fatal("it does not come to rest")
}

func (m *scheduleSim) check() {
	in := map[[2]string]string{}
	s, err := m.schedules(nil).Load(m.Context(), "nightly")
	m.ok(err)
	for l, err := range m.Jobs.List(m.Context()) {
		m.ok(errors.Join(err, l.Err))
		j, err := m.Load(m.Context(), l.ID)
		m.ok(err)
		m.simCount.jobs++
		for _, source := range j.Sources {
			for _, o := range source.Objects {
				if other, twice := in[[2]string{o.Key, o.ETag}]; twice {
					m.Errorf("%s %s is in job %s and in job %s", o.Key, o.ETag, other, l.ID)
				}
				in[[2]string{o.Key, o.ETag}] = l.ID
			}
		}
	}
	for key, etag := range m.box {
		if in[[2]string{key, etag}] == "" {
			m.Errorf("%s %s is in no job", key, etag)
		}
	}
	for n := range s.Runs {
		if _, err := m.Load(m.Context(), m.schedules(nil).JobID(s, n)); err != nil {
			m.Errorf("job %d of %d: %v", n, s.Runs, err)
		}
	}
	if p := m.fs.Problems(); len(p) > 0 {
		m.Error(p)
	}
}
