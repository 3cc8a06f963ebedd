package functions

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/work"
)

// stopper is a filer that stops somebody when a data file is to be created, which it
// never is.
type stopper struct {
	filer.Store
	stop context.CancelFunc
}

func (s stopper) Create(ctx context.Context, path string, f filer.File) error {
	if !isData(path) {
		return s.Store.Create(ctx, path, f)
	}
	s.stop()
	<-ctx.Done()
	return ctx.Err()
}

func isData(path string) bool { return strings.HasSuffix(path, ".parquet") }

// TestCompactTopicStopped: somebody who waits is told what was done, and the next call
// goes on.
func TestCompactTopicStopped(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.Metrics = nil
	b.rolled(t, "t")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	slow, d := *b.Store, b.Deps
	slow.Filer = stopper{b.Store.Filer, cancel}
	d.Store, d.Metrics = &slow, nil
	r, err := CompactTopic(ctx, d, TopicOptions{Topic: "t"})
	if err != nil || !r.Cut || r.Compacted != 0 {
		t.Errorf("stopped: %+v, %v", r, err)
	}
	if s := b.state(t, "t"); s.State != compactor.Sealed {
		t.Errorf("%+v", s)
	}
	r, err = CompactTopic(t.Context(), b.Deps, TopicOptions{Topic: "t"})
	if err != nil || r.Cut || r.Compacted != 1 {
		t.Errorf("and then: %+v, %v", r, err)
	}
}

// TestCompactTopicHeld: who finds another compactor at the topic waits for it, and is
// told that it is still there.
func TestCompactTopicHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.Metrics = nil
	b.rolled(t, "t")
	entered, leave := make(chan struct{}), make(chan struct{})
	d := b.Deps
	held := *b.Store
	held.Filer = &gate{Store: b.Store.Filer, entered: entered, leave: leave}
	d.Store, d.Metrics = &held, nil
	done := make(chan error, 1)
	go func() {
		_, err := CompactTopic(t.Context(), d, TopicOptions{Topic: "t"})
		done <- err
	}()
	<-entered
	told := 0
	o := TopicOptions{Topic: "t", Waiting: func() { told++ }, Wait: time.Millisecond}
	if r, err := CompactTopic(t.Context(), b.Deps, o); ExitCode(err) != ExitRetry || !r.Held || told != 1 {
		t.Errorf("%+v, %v, told %d times", r, err, told)
	}
	o.Waiting, o.Wait = func() { told++; close(leave) }, 0
	r, err := CompactTopic(t.Context(), b.Deps, o)
	if err != nil || r.Held || r.Compacted != 0 || r.Waiting != 1 || told != 2 {
		t.Errorf("when it is free: %+v, %v, told %d times", r, err, told)
	}
	if err := <-done; err != nil {
		t.Errorf("who was there before: %v", err)
	}
}

// gate holds the creation of a data file up until it may go on.
type gate struct {
	filer.Store
	entered, leave chan struct{}
}

func (g *gate) Create(ctx context.Context, path string, f filer.File) error {
	if isData(path) {
		close(g.entered)
		<-g.leave
	}
	return g.Store.Create(ctx, path, f)
}

// TestCompactTopicErrors: who can do something about it.
func TestCompactTopicErrors(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.Metrics = nil
	if _, err := CompactTopic(t.Context(), b.Deps, TopicOptions{Topic: "none"}); !isGone(err) {
		t.Errorf("no topic: %v", err)
	}
	top := b.rolled(t, "t")
	l, err := top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var live *compactor.NotSealedError
	if _, err := CompactTopic(t.Context(), b.Deps, TopicOptions{Topic: "t", Segment: l.Live[0].ID}); !errors.As(err, &live) {
		t.Errorf("a live segment: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := CompactTopic(ended, b.Deps, TopicOptions{Topic: "t"}); err != nil || !r.Cut || r.Compacted != 0 {
		t.Errorf("told to stop before it began: %+v, %v", r, err)
	}
}

// TestPlannersCallCompactors: a nudged topic of which an edit seals something gets a
// token, and one of which none does gets none.
func TestPlannersCallCompactors(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.Metrics = nil
	b.surge(t, b.aged(t, "hot", 1))
	b.aged(t, "cold", 1)
	for _, name := range []string{"hot", "cold"} {
		if err := (&nudger{d: b.Deps, kind: work.Plan}).Nudge(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := Plan(t.Context(), b.Deps, PlanOptions{Policies: quick(), Once: true, Nudged: true})
	if err != nil || sum.Splits == 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	if called := b.called(t); len(called) != 1 || called[0] != "hot" {
		t.Errorf("compactors are called to %q", called)
	}
	if got := b.layout(t, "cold"); got.Epoch != 0 {
		t.Errorf("the topic without load was edited: %+v", got.Edit)
	}
}
