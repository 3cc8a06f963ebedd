package planner

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// crashPolicy makes what threeEdits does worth three edits.
func crashPolicy() Policy {
	p := DefaultPolicy()
	p.TargetRecords, p.RollBytes, p.Floor = 20, 20_000, 2
	return p
}

// threeEdits makes a topic of which a planner splits one segment, merges two and
// rolls one: the first quarter of the key space is hot, the next two are silent, and
// the last holds much and takes in little more.
func threeEdits(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, 4)
	w.value = make([]byte, 80)
	last := func() topic.Slot { return topic.Slot(49152 + w.random.IntN(16384)) }
	w.flush(200, last)
	bubble.Pass(12 * time.Minute)
	for range 12 {
		bubble.Pass(time.Second)
		w.flush(60, func() topic.Slot { return topic.Slot(w.random.IntN(16384)) })
		w.flush(12, last)
	}
	return w
}

// TestCrashes kills a planner after each of its calls to the filer, with and without
// the last one's effect, in a run that makes a split, a merge and a roll. Then
// another planner goes on, or a worker that knows only the old segments. Whatever
// there is, nothing is lost, doubled or left half done, and in the end the topic is
// as if nobody had died.
func TestCrashes(t *testing.T) {
	whole := crash(t, -1, false, nextPlanner)
	if want := []string{"split 1 into 6", "merge 2 into 1", "roll 1 into 1"}; !slices.Equal(whole.made, want) {
		t.Fatalf("without a crash it made %v, want %v", whole.made, want)
	}
	t.Logf("a planner that makes a split, a merge and a roll calls the filer %d times", whole.calls)
	for _, next := range []func(*world){nextPlanner, nextWorker} {
		for _, lost := range []bool{false, true} {
			for n := range whole.calls {
				got := crash(t, n, lost, next)
				if !got.dead {
					t.Fatalf("it made only %d calls", n)
				}
				if got.edits != [3]int{1, 1, 1} {
					t.Fatalf("killed after call %d, lost %v: %d splits, merges and rolls in the end, want one of each", n, lost, got.edits)
				}
			}
		}
	}
}

// TestExplainWhilePending: while somebody's edit is under way there is nothing to
// explain, and explaining does not finish it.
func TestExplainWhilePending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := threeEdits(t)
		for n := 0; !w.layout().Pending; n += 5 {
			if got := w.die(n, false); !got.dead {
				t.Fatal("no planner died in the middle of an edit")
			}
		}
		_, err := w.planner(crashPolicy()).Explain(t.Context(), orders)
		var pending *PendingError
		if !errors.As(err, &pending) || !strings.Contains(err.Error(), "spillway edit finish orders") || !w.layout().Pending {
			t.Errorf("error %v", err)
		}
		r, err := w.planner(crashPolicy()).Topic(t.Context(), orders)
		if err != nil || r.Finished == nil || !r.Lively(crashPolicy()) {
			t.Errorf("%+v, error %v", r, err)
		}
	})
}

// crashed is what a run came to.
type crashed struct {
	made  []string // by the planner that was to die
	calls int
	dead  bool
	edits [3]int // splits, merges and rolls in the topic's history in the end
}

// crash lets a planner die at its n-th call (-1: never), and next come after it.
func crash(t *testing.T, n int, lost bool, next func(*world)) (got crashed) {
	synctest.Test(t, func(t *testing.T) {
		w := threeEdits(t)
		got = w.die(n, lost)
		w.when = fmt.Sprintf("killed after call %d, lost %v", n, lost)
		next(w)
		r, err := w.planner(crashPolicy()).Topic(t.Context(), orders)
		if err != nil || r.Moved {
			t.Fatalf("%s: the plan after it: %+v, error %v", w.when, r, err)
		}
		w.sound()
		if r, err = w.planner(crashPolicy()).Topic(t.Context(), orders); err != nil || len(r.Made) > 0 {
			t.Fatalf("%s: it does not come to rest: %v, error %v", w.when, made([]Report{r}), err)
		}
		got.edits = w.edits()
	})
	return got
}

// edits counts the splits, merges and rolls that were finished.
func (w *world) edits() (n [3]int) {
	w.t.Helper()
	layouts, err := w.topic.Layouts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range layouts {
		if i := slices.Index([]string{Split, Merge, Roll}, l.Edit.Kind); i >= 0 && !l.Pending {
			n[i]++
		}
	}
	return n
}

// die runs a planner until its n-th call.
func (w *world) die(n int, lost bool) (got crashed) {
	w.t.Helper()
	ctx, kill := context.WithCancel(w.t.Context())
	defer kill()
	var mu sync.Mutex
	store := storeOn(w.fs, func(memfs.Op) memfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		got.calls++
		switch {
		case n < 0 || got.calls <= n && !got.dead:
			return memfs.Fault{}
		case got.dead || !lost:
			got.dead = true
			kill()
			return memfs.Fault{Before: errors.New("crashed")}
		}
		got.dead = true
		kill()
		return memfs.Fault{After: errors.New("crashed")}
	})
	p := New(Options{Store: store, Policies: Policies{Default: crashPolicy()}, Logger: slog.New(slog.DiscardHandler)})
	r, err := p.Topic(ctx, orders)
	if (err == nil) == got.dead {
		w.t.Fatalf("dead %v, error %v", got.dead, err)
	}
	got.made = made([]Report{r})
	return got
}

// nextPlanner is another planner that comes by.
func nextPlanner(w *world) {
	w.t.Helper()
	if _, err := w.planner(crashPolicy()).Topic(w.t.Context(), orders); err != nil {
		w.t.Fatalf("%s: the next planner: %v", w.when, err)
	}
}

// nextWorker is a worker that has the old segments open and goes on appending to
// them. Where it meets a seal it finishes the edit, and regroups.
func nextWorker(w *world) {
	w.t.Helper()
	w.flush(8, w.anywhere)
	w.flush(8, w.anywhere)
}

// sound checks all that must hold after every step.
func (w *world) sound() {
	w.t.Helper()
	l := w.layout()
	if err := l.Validate(); err != nil || l.Pending {
		w.t.Fatalf("%s: the layout is pending: %v, error %v", w.when, l.Pending, err)
	}
	layouts, err := w.topic.Layouts(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for i, past := range layouts {
		if err := past.Validate(); err != nil || past.Epoch != uint64(i) || past.Pending != (i%2 == 1) {
			w.t.Fatalf("%s: layout %d is %+v, error %v", w.when, i, past, err)
		}
	}
	w.sealed(l)
	if _, err := w.store.MarkOf(w.t.Context(), orders); err != nil {
		w.t.Fatalf("%s: the topic has no mark: %v", w.when, err)
	}
	w.complete()
	if p := w.fs.Problems(); len(p) > 0 {
		w.t.Fatalf("%s: %q", w.when, p)
	}
}

// sealed checks that just those segments are sealed that are not live.
func (w *world) sealed(l topic.Layout) {
	w.t.Helper()
	segments, err := w.topic.Segments(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range segments {
		live := slices.ContainsFunc(l.Live, func(x topic.Live) bool { return x.ID == s.ID })
		if tail, err := s.Tail(w.t.Context()); err != nil || tail.Sealed == live {
			w.t.Fatalf("%s: segment %s is live: %v, sealed: %v, error %v", w.when, s.ID, live, tail.Sealed, err)
		}
	}
}

// complete reads all back: each record once, and those of a slot in order.
func (w *world) complete() {
	w.t.Helper()
	r, err := w.topic.Read(w.t.Context(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	seen, last := map[uint64]bool{}, map[topic.Slot]uint64{}
	for item, err := range r.Next(w.t.Context()) {
		if err != nil {
			w.t.Fatal(err)
		}
		slot, at := topic.Slot(binary.BigEndian.Uint16(item.Key)), item.Position.Sequence
		if seen[at] || last[slot] > at {
			w.t.Fatalf("%s: record %d of slot %d is there twice, or comes after %d", w.when, at, slot, last[slot])
		}
		seen[at], last[slot] = true, at
	}
	if len(seen) != int(w.next-1) {
		w.t.Fatalf("%s: %d records of %d are there", w.when, len(seen), w.next-1)
	}
}
