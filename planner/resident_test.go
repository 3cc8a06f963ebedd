package planner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
)

// resident runs a planner until the returned function is called.
func (w *world) resident(p *Planner, tell func(Summary, error)) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(w.t.Context(), ctx, DefaultPeriod, tell) }()
	return func() { cancel(); <-done }
}

// looks counts how often a planner looks at a topic, by its definition. A sweep over
// all topics reads that twice.
func looks(n *atomic.Int64, name string) memfs.Hook {
	return func(op memfs.Op) memfs.Fault {
		if op.Name == "Lookup" && strings.HasSuffix(op.Path, "/topics/"+name+"/topic.json") {
			n.Add(1)
		}
		return memfs.Fault{}
	}
}

// gauge is the value of one of a planner's gauges.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_planner_"+name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// TestResident: a topic with load is looked at each period, one with little in it
// each sixth, and one at rest never, but for the hourly look at all there are. Told
// to stop, a planner stops.
func TestResident(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		var n atomic.Int64
		reg := prometheus.NewRegistry()
		p := w.plannerOn(looks(&n, orders), small())
		p.Metrics = NewMetrics(reg)
		stop := w.resident(p, func(_ Summary, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		expect := func(what string, d time.Duration, perSecond int, least, most int64) {
			t.Helper()
			n.Store(0)
			for range d / time.Second {
				bubble.Pass(time.Second)
				if perSecond > 0 {
					w.flush(perSecond, w.anywhere)
				}
			}
			if got := n.Load(); got < least || got > most {
				t.Errorf("%s: %d looks in %s, want %d to %d", what, got, d, least, most)
			}
		}
		expect("a new topic, empty", 9*time.Minute, 0, 18, 20)
		expect("load, but far from a split", 5*time.Minute, 20, 9, 11)
		expect("near a split", 5*time.Minute, 65, 45, 61)
		if got := gauge(t, reg, "hottest_level"); got < 0.55 || got > 0.75 {
			t.Errorf("the hottest level is told as %g", got)
		}
		expect("silence, until it is rolled and rests", 2*time.Hour, 0, 110, 200)
		if got := gauge(t, reg, "active_topics"); got != 0 {
			t.Errorf("%g active topics", got)
		}
		expect("at rest", 3*time.Hour, 0, 6, 8)
		if len(p.topics) != 0 {
			t.Errorf("%d topics at rest are remembered", len(p.topics))
		}
		stop()
		expect("stopped", time.Hour, 0, 0, 0)
	})
}

// TestLostMark: a topic whose mark was lost is found by the sweep over all topics,
// and gets one again.
func TestLostMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.flush(10, w.anywhere)
		m, err := w.store.MarkOf(t.Context(), orders)
		if err == nil {
			err = w.store.Rest(t.Context(), m)
		}
		if err != nil {
			t.Fatal(err)
		}
		p := w.planner(small())
		if sum, err := p.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 0 {
			t.Fatalf("%+v, error %v", sum, err)
		}
		if sum, err := p.Sweep(t.Context(), t.Context(), true); err != nil || sum.Topics != 1 {
			t.Fatalf("%+v, error %v", sum, err)
		}
		if sum, err := p.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 1 {
			t.Errorf("after it: %+v, error %v", sum, err)
		}
	})
}

// TestNothingIsRememberedOfNoTopic: whoever can put nudges cannot fill a planner's
// memory.
func TestNothingIsRememberedOfNoTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorld(t, 1).planner(small())
		for i := range 100 {
			if _, err := p.Topic(t.Context(), fmt.Sprintf("none-%d", i)); !noTopic(err) {
				t.Fatal(err)
			}
			if _, err := p.Topic(t.Context(), fmt.Sprintf("NO NAME %d", i)); err == nil {
				t.Fatal("it has planned for what cannot be a topic")
			}
		}
		if n := len(p.topics); n > 0 {
			t.Errorf("of %d of them something is remembered", n)
		}
	})
}

// TestSweepFaults: topics that fail keep nobody from the others; the error lists a
// few and knows all.
func TestSweepFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		const bad = 12
		for i := range bad {
			w.damaged(fmt.Sprintf("bad-%d", i))
		}
		p := w.planner(small())
		sum, err := p.Sweep(t.Context(), t.Context(), false)
		var faults *SweepError
		if !errors.As(err, &faults) || len(faults.Faults) != bad || sum.Failed != bad || sum.Topics != 1 || !errors.Is(err, filer.ErrCorrupt) {
			t.Fatalf("%+v, error %v", sum, err)
		}
		if text := err.Error(); !strings.HasPrefix(text, "12 topics could not be planned for:\n") || !strings.HasSuffix(text, "\nand 7 more") {
			t.Errorf("it says: %s", text)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if sum, err := p.Sweep(t.Context(), ended, false); err != nil || sum.Left != bad+1 || sum.Topics != 0 {
			t.Errorf("told to stop before it began: %+v, error %v", sum, err)
		}
	})
}

// damaged makes a topic whose layout cannot be read.
func (w *world) damaged(name string) {
	w.t.Helper()
	def := w.topic.Definition
	def.Name = name
	top, err := w.store.CreateTopic(w.t.Context(), def, 1, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	c := w.fs.Client("damage", nil)
	layout := top.Dir() + "/layout/0000000000000000.json"
	if err := errors.Join(c.Delete(w.t.Context(), layout, ""), c.Create(w.t.Context(), layout, filer.File{ID: filer.NewID(), Content: []byte("{")})); err != nil {
		w.t.Fatal(err)
	}
}

// mute is lanes that do not tell how far behind they are.
type mute struct{ err error }

func (m mute) Backlogs(context.Context, string) ([]Backlog, error) { return nil, m.err }

// TestBlind: where lanes do not answer, splits and rolls are made, and what would be
// merged is kept, with the reason.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := threeEdits(t)
		p := New(Options{
			Store: w.store, Policies: Policies{Default: crashPolicy()}, Logger: slog.New(slog.DiscardHandler),
			Lanes: mute{errors.New("nats: timeout\nand more")},
		})
		r, err := p.Topic(t.Context(), orders)
		if err != nil || r.Blind == nil || r.AtRest {
			t.Fatalf("%+v, error %v", r, err)
		}
		if n := w.edits(); n != [3]int{1, 0, 1} {
			t.Errorf("%d splits, merges and rolls", n)
		}
		kept := 0
		for _, d := range r.Decisions {
			if d.Kind == Keep && strings.HasSuffix(d.Reason, "how far the lanes are behind is not known: nats: timeout") {
				kept += len(d.Segments)
			}
		}
		if kept != 2 {
			t.Errorf("decisions: %+v", r.Decisions)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := p.Topic(ended, orders); err == nil {
			t.Error("no error of a look that was cut off")
		}
	})
}

// TestRolledForEver: what a planner remembers does not grow with the number of times
// that a segment was rolled.
func TestRolledForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.value = make([]byte, 80)
		policy := small()
		policy.RollBytes = 20_000
		p := w.planner(policy)
		w.run(p, 10*time.Minute, 20, w.anywhere)
		remembered := func() (n int) {
			for _, s := range p.topics[orders].segments {
				n += len(s.history())
			}
			return n
		}
		before := remembered()
		w.run(p, 40*time.Minute, 20, w.anywhere)
		if n := remembered(); w.edits()[2] < 100 || n > 2*before {
			t.Errorf("%d samples after %d rolls, there were %d", n, w.edits()[2], before)
		}
	})
}

// TestTrimmed: a live segment that was trimmed past what a planner has seen is known
// again within the time that a tail is trusted.
func TestTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.planner(small())
		w.run(p, 10*time.Second, 20, w.anywhere)
		for range 10 {
			w.flush(20, w.anywhere)
		}
		s, err := w.topic.Segment(t.Context(), w.layout().Live[0].ID)
		if err == nil {
			err = s.Trim(t.Context(), 18)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Topic(t.Context(), orders); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(trustTail)
		r, err := p.Topic(t.Context(), orders)
		if err != nil || r.Situation.Loads[0].Records != 20*20 {
			t.Errorf("%+v, error %v", r.Situation.Loads, err)
		}
		fresh, err := w.planner(small()).Topic(t.Context(), orders)
		if err != nil || fresh.Situation.Loads[0].Records != 2*20 {
			t.Errorf("by one who sees it for the first time: %+v, error %v", fresh.Situation.Loads, err)
		}
	})
}

// TestStrangeMark: something else where a topic's mark would be does no harm.
func TestStrangeMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		for _, name := range []string{"folder/x", "NO-NAME"} {
			if err := w.fs.Client("x", nil).Create(t.Context(), w.store.Root()+"/active/"+name, filer.File{ID: filer.NewID()}); err != nil {
				t.Fatal(err)
			}
		}
		bubble.Pass(segment.RestAfter)
		if sum, err := w.planner(small()).Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 1 || sum.Gone != 1 || sum.Rested != 1 {
			t.Errorf("%+v, error %v", sum, err)
		}
	})
}
