package planner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// faulty is a filer that is slow, refuses, loses replies and has effects late, all
// by a seed.
func faulty(seed uint64) memfs.Hook {
	return func(op memfs.Op) memfs.Fault {
		h := fnv.New64a()
		fmt.Fprint(h, seed, op)
		n := h.Sum64() >> 7
		f := memfs.Fault{Delay: time.Duration(n%5) * time.Millisecond}
		switch n / 8 % 16 {
		case 0:
			f.Before = errors.New("connection refused")
		case 1:
			f.After = memfs.ErrLost
		case 2:
			f.Late = time.Duration(n%900) * time.Millisecond
		}
		return f
	}
}

func (w *world) plannerOn(hook memfs.Hook, p Policy) *Planner {
	return New(Options{Store: storeOn(w.fs, hook), Policies: Policies{Default: p}, Logger: slog.New(slog.DiscardHandler)})
}

// stumble plans again and again until ctx ends, on a faulty filer, and is killed now
// and then in the middle of what it does; then another one takes its place.
func (w *world) stumble(ctx context.Context, seed uint64, p Policy) error {
	random := rand.New(rand.NewPCG(seed, 1))
	mine := w.plannerOn(faulty(seed), p)
	for ctx.Err() == nil {
		life, kill := context.WithCancel(ctx)
		if random.IntN(4) == 0 {
			life, kill = context.WithTimeout(ctx, time.Duration(random.IntN(400))*time.Millisecond)
		}
		_, err := mine.Topic(life, orders)
		killed := life.Err() != nil
		kill()
		if err != nil && !killed {
			return err
		}
		if killed {
			mine = w.plannerOn(faulty(random.Uint64()), p)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(500+random.IntN(5000)) * time.Millisecond):
		}
	}
	return nil
}

// TestStumblingPlanners: planners on faulty filers that are killed all the time, and
// a worker in a flood that comes and goes. Nothing is lost, and what is to be done
// is done in the end, without thrash.
func TestStumblingPlanners(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1)
			w.value, w.when = make([]byte, 80), fmt.Sprintf("seed %d", seed)
			p := crashPolicy()
			p.Floor, p.Cap, p.RollBytes = 1, 16, 40_000
			ctx, stop := context.WithCancel(t.Context())
			var g errgroup.Group
			for i := range uint64(3) {
				g.Go(func() error { return w.stumble(ctx, 10*seed+i, p) })
			}
			for _, step := range []struct {
				seconds, perSecond int
			}{{10, 2}, {60, 100}, {10, 5}, {20, 60}, {1800, 0}} {
				for range step.seconds {
					bubble.Pass(time.Second)
					if step.perSecond > 0 {
						w.flush(step.perSecond, w.anywhere)
					}
				}
				if l := w.layout(); step.perSecond == 100 && len(l.Live) < 5 {
					t.Errorf("seed %d: %d segments in the flood", seed, len(l.Live))
				}
			}
			stop()
			if err := g.Wait(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			w.fs.Settle()
			if _, err := w.topic.Finish(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.sound()
			if l, n := w.layout(), w.edits(); len(l.Live) != 1 || n[0] > 20 || n[1] > 20 {
				t.Errorf("seed %d: %d segments in the end, after %d splits, merges and rolls", seed, len(l.Live), n)
			}
		})
	}
}

// meddle runs a planner on the topic of threeEdits, and does something to the topic
// just before its n-th call to the filer; false if it makes fewer.
func (w *world) meddle(n int, do func()) (r Report, met bool, err error) {
	w.t.Helper()
	var mu sync.Mutex
	calls := 0
	p := w.plannerOn(func(memfs.Op) memfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls == n+1 {
			met = true
			do()
		}
		return memfs.Fault{}
	}, crashPolicy())
	r, err = p.Topic(w.t.Context(), orders)
	return r, met, err
}

// TestDeletedMeanwhile: the topic is deleted before any of the calls of a planner,
// and perhaps made again. That is no fault of the planner's, it leaves nothing
// behind that harms the new one, and the mark of what is gone goes.
func TestDeletedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		for n, met := 0, true; met; n++ {
			synctest.Test(t, func(t *testing.T) {
				w := threeEdits(t)
				old := w.topic
				var err error
				_, met, err = w.meddle(n, func() {
					if err := w.store.DeleteTopic(t.Context(), orders, time.Now()); err != nil {
						t.Fatalf("call %d: %v", n, err)
					}
					if again {
						w.create(1)
					}
				})
				if !met {
					return
				}
				if err != nil && !noTopic(err) {
					t.Fatalf("deleted before call %d, again %v: %v", n, again, err)
				}
				w.when = fmt.Sprintf("deleted before call %d", n)
				if again {
					w.flush(100, w.anywhere)
					w.sound()
				}
				w.leftovers(old)
				if !again {
					w.gone()
				}
			})
		}
	}
}

// leftovers checks that no record lies in the folder of a topic that is gone. Seals,
// and the empty logs of children, may: whoever made them was not told in time.
func (w *world) leftovers(old *segment.Topic) {
	w.t.Helper()
	for _, p := range w.fs.Paths() {
		if !strings.HasPrefix(p, old.Dir()+"/segments/") {
			continue
		}
		e, err := w.fs.Client("look", nil).Lookup(w.t.Context(), p)
		if err != nil {
			w.t.Fatal(err)
		}
		if n := e.Attrs["Count"]; n != "" && n != "0" {
			w.t.Errorf("%s: %s is left, with %s records", w.when, p, n)
		}
	}
}

// gone checks that the mark of a topic that is gone goes.
func (w *world) gone() {
	w.t.Helper()
	bubble.Pass(segment.RestAfter)
	if _, err := w.planner(crashPolicy()).Sweep(w.t.Context(), w.t.Context(), false); err != nil {
		w.t.Fatalf("%s: %v", w.when, err)
	}
	if _, err := w.store.MarkOf(w.t.Context(), orders); !errors.Is(err, filer.ErrNotFound) {
		w.t.Errorf("%s: the mark of what is gone: %v", w.when, err)
	}
}

// TestDeclaredAgain: a load that is over is declared anew before any of the calls of
// the planner that takes it back. It stays.
func TestDeclaredAgain(t *testing.T) {
	for n, met := 0, true; met; n++ {
		synctest.Test(t, func(t *testing.T) {
			w := threeEdits(t)
			declare := func(until time.Duration) {
				now := time.Now()
				err := w.topic.Declare(t.Context(), segment.DeclaredLoad{ID: "flood", Records: 10, From: now, Until: now.Add(until)})
				if err != nil {
					t.Fatal(err)
				}
			}
			declare(time.Second)
			bubble.Pass(time.Second)
			var err error
			_, met, err = w.meddle(n, func() { declare(time.Hour) })
			if err != nil {
				t.Fatalf("call %d: %v", n, err)
			}
			loads, err := w.topic.Declared(t.Context())
			if want := map[bool]int{true: 1}[met]; err != nil || len(loads) != want {
				t.Fatalf("declared again before call %d: %+v, want %d, error %v", n, loads, want, err)
			}
		})
	}
}

// TestDeclaredFlood: what is declared splits first, keeps its segments while it
// lasts though nothing comes, and is merged back when it is over.
func TestDeclaredFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		p := w.planner(small())
		w.run(p, time.Minute, 0, nil)
		now := time.Now()
		err := w.topic.Declare(t.Context(), segment.DeclaredLoad{ID: "flood", Records: 800, From: now, Until: now.Add(30 * time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		if got := made(w.run(p, 5*time.Second, 0, nil)); len(got) != 1 || len(w.layout().Live) < 12 {
			t.Fatalf("declared: %v, %d segments", got, len(w.layout().Live))
		}
		if got := made(w.run(p, 29*time.Minute, 0, nil)); len(got) > 0 {
			t.Errorf("while it is declared: %v", got)
		}
		reports := w.run(p, 5*time.Minute, 0, nil)
		if len(w.layout().Live) != 1 {
			t.Errorf("after it: %v, %d segments", made(reports), len(w.layout().Live))
		}
		if last := reports[len(reports)-1]; !last.AtRest || len(last.Declared) > 0 {
			t.Errorf("at rest %v, declared %+v", last.AtRest, last.Declared)
		}
	})
}

// create makes the topic again, with segments of its own, and forgets the old one.
func (w *world) create(roots int) {
	w.t.Helper()
	var err error
	w.topic, err = w.store.CreateTopic(w.t.Context(), topic.Definition{
		Name: orders, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
	}, roots, time.Now())
	if err != nil {
		w.t.Fatal(err)
	}
	w.open, w.next = map[topic.SegmentID]*segment.Segment{}, 1
}
