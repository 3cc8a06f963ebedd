package planner

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestFlood: load that rises to ten targets is split within seconds, keeps its
// segments while it lasts, and is merged back, sealed and at rest after it.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.planner(small())
		w.run(p, 20*time.Second, 10, w.anywhere)
		if n := len(w.layout().Live); n != 1 {
			t.Fatalf("a trickle made %d segments", n)
		}
		start := time.Now()
		onset := w.run(p, 20*time.Second, 1000, w.anywhere)
		if n := len(w.layout().Live); n < 15 || n > 40 {
			t.Fatalf("20 s into ten times the target there are %d segments; %v", n, made(onset))
		}
		first := slices.IndexFunc(onset, func(r Report) bool { return len(r.Made) > 0 })
		if at := onset[first].Situation.Now.Sub(start); at > 10*time.Second {
			t.Errorf("the first split came after %s", at)
		}
		if more := made(w.run(p, 5*time.Minute, 1000, w.anywhere)); len(more) > 2 {
			t.Errorf("while the load stays as it is, segments change: %v", more)
		}
		w.run(p, 25*time.Minute, 0, nil)
		if l := w.layout(); len(l.Live) != 1 {
			t.Fatalf("25 min after the flood there are %d segments", len(l.Live))
		}
		r, err := p.Topic(t.Context(), orders)
		if err != nil || !r.AtRest {
			t.Errorf("at rest %v, error %v, %+v", r.AtRest, err, r.Decisions)
		}
	})
}

// TestRest: a topic without records loses its mark, once that is old enough, and
// costs sweeps nothing until records come.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.planner(small())
		w.run(p, 5*time.Second, 10, w.anywhere)
		bubble.Pass(70 * time.Minute)
		sum, err := p.Sweep(t.Context(), t.Context(), false)
		if err != nil || sum.Rolls != 1 || sum.Rested != 0 {
			t.Fatalf("old records: %+v, error %v", sum, err)
		}
		bubble.Pass(11 * time.Minute)
		if sum, err = p.Sweep(t.Context(), t.Context(), false); err != nil || sum.Rested != 1 {
			t.Fatalf("an empty topic: %+v, error %v", sum, err)
		}
		if sum, err = p.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 0 {
			t.Fatalf("a topic at rest: %+v, error %v", sum, err)
		}
		w.flush(10, w.anywhere)
		if sum, err = p.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 1 {
			t.Fatalf("a topic that woke: %+v, error %v", sum, err)
		}
		if sum, err = p.Sweep(t.Context(), t.Context(), true); err != nil || sum.Topics != 1 {
			t.Fatalf("a full sweep: %+v, error %v", sum, err)
		}
	})
}

// TestRolled: what is rolled by size goes on with its load, so that it is neither
// forgotten nor judged too early.
func TestRolled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		policy := small()
		policy.RollBytes = 2_000_000
		p := w.planner(policy)
		reports := w.run(p, 3*time.Minute, 70, w.anywhere) // level 0.7
		got := made(reports)
		if len(got) < 4 || slices.ContainsFunc(got, func(s string) bool { return s != "roll 1 into 1" }) {
			t.Fatalf("at level 0.7: %v", got)
		}
		last := reports[len(reports)-1]
		if l := last.Situation.Loads[0]; l.Observed < 2*time.Minute || last.Decisions[0].Level < 0.6 || last.Decisions[0].Level > 0.8 {
			t.Errorf("known for %s at level %.2f", l.Observed, last.Decisions[0].Level)
		}
		if got := made(w.run(w.planner(policy), 2*time.Minute, 90, w.anywhere)); !slices.Contains(got, "split 1 into 2") {
			t.Errorf("level 0.9 for two minutes, seen by another planner: %v", got)
		}
	})
}

// TestTwoPlanners: planners that work on a topic at a time do not do things twice.
func TestTwoPlanners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		w.run(w.planner(small()), 8*time.Second, 0, nil)
		for range 12 {
			bubble.Pass(time.Second)
			w.flush(1000, w.anywhere)
		}
		reports := make([]Report, 4)
		errs := make(chan error, len(reports))
		for i := range reports {
			p := w.planner(small())
			go func() {
				var err error
				reports[i], err = p.Topic(t.Context(), orders)
				errs <- err
			}()
		}
		for range reports {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		var cut []topic.SegmentID
		for _, r := range reports {
			for _, m := range r.Made {
				cut = append(cut, m.Segments...)
			}
		}
		slices.Sort(cut)
		if len(slices.Compact(slices.Clone(cut))) != len(cut) || len(cut) == 0 {
			t.Errorf("edited: %v", cut)
		}
		if l := w.layout(); l.Pending || len(l.Live) < 12 || len(l.Live) > 64 {
			t.Errorf("%d segments, pending %v", len(l.Live), l.Pending)
		}
	})
}

// TestExplainChangesNothing: looking writes nothing.
func TestExplainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		for range 12 {
			bubble.Pass(time.Second)
			w.flush(1000, w.anywhere)
		}
		before := w.fs.Paths()
		r, err := w.planner(small()).Explain(t.Context(), orders)
		if err != nil || r.Decisions[0].Kind != Split || len(r.Made) > 0 {
			t.Fatalf("%+v, error %v", r.Decisions, err)
		}
		if !slices.Equal(before, w.fs.Paths()) {
			t.Error("explaining wrote to the filer")
		}
	})
}

// TestGone: topics that do not exist, or not any more, are told, and swept away.
func TestGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.planner(small())
		if _, err := p.Topic(t.Context(), "other"); !noTopic(err) {
			t.Errorf("a topic that never was: %v", err)
		}
		if err := w.store.MarkActive(t.Context(), "other", time.Now()); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(11 * time.Minute)
		sum, err := p.Sweep(t.Context(), t.Context(), false)
		if err != nil || sum.Gone != 1 {
			t.Errorf("%+v, error %v", sum, err)
		}
		if _, err := w.store.MarkOf(t.Context(), "other"); !errors.Is(err, filer.ErrNotFound) {
			t.Errorf("the mark of no topic: %v", err)
		}
	})
}
