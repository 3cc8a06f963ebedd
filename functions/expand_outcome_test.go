package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestExpandOneOutcome: two workers judge the same two references in each way there
// is. The first one dies or freezes at each call that it makes, or an eager run works on
// the jobs just then; it also does when the first has ended and before the second does the
// work anew, and when all is over. Whichever verdict is committed, an accepted reference has
// its rows once, and a refused one has none.
func TestExpandOneOutcome(t *testing.T) {
	ends := map[string]func(s *scene, kill func()) memfs.Fault{
		"dies before it": func(_ *scene, kill func()) memfs.Fault { kill(); return memfs.Fault{Before: errors.New("killed")} },
		"dies after it": func(_ *scene, kill func()) memfs.Fault {
			time.AfterFunc(0, kill)
			return memfs.Fault{After: errors.New("killed")}
		},
		"freezes in it": func(*scene, func()) memfs.Fault { return memfs.Fault{Delay: time.Minute} },
		"is met at it":  func(s *scene, _ func()) memfs.Fault { s.work(); return memfs.Fault{} },
	}
	runs, lost := 0, 0
	for a := range findings {
		for b := range findings {
			if b < a {
				continue // with x and y changed over
			}
			for end, fault := range ends {
				for n := 1; ; n++ {
					reached, cancelled := expandTwice(t, judgement{"x": findings[a], "y": findings[b]}, judgement{"x": findings[b], "y": findings[a]}, n, fault)
					if t.Failed() {
						t.Fatalf("the first finds %s and then %s, the second the other way round; the first %s at call %d", a, b, end, n)
					}
					if runs++; cancelled {
						lost++
					}
					if !reached {
						break
					}
				}
			}
		}
	}
	t.Logf("%d runs, in %d a job was there whose reference was refused", runs, lost)
	if runs < 1000 || lost == 0 {
		t.Error("this proves less than it claims")
	}
}

// expandTwice is one run. It returns whether the first worker got to call n, and whether
// there was a job that came to nothing.
func expandTwice(t *testing.T, one, two judgement, n int, fault func(*scene, func()) memfs.Fault) (reached, cancelled bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, topic.KeyHeader)
		s.lane = stillLane{asking(t, nil, "x", "y")}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		calls := 0
		var mine *memfs.Client
		w, mine := s.worker("one", one, func(memfs.Op) memfs.Fault {
			mu.Lock()
			calls++
			at := calls == n
			reached = reached || at
			mu.Unlock()
			if !at {
				return memfs.Fault{}
			}
			return fault(s, func() { cancel(); mine.Kill() })
		})
		done := make(chan struct{})
		go func() { defer close(done); _ = w.Run(ctx, ctx) }() // what it says does not matter
		bubble.Pass(10 * time.Second)                          // it is done, dead, or frozen
		s.work()
		w2, _ := s.worker("two", two, nil)
		if err := w2.Run(t.Context(), t.Context()); err != nil {
			t.Error(err)
		}
		s.work()
		bubble.Pass(2 * time.Minute)
		cancel()
		<-done
		s.follow()
		s.checkOutcome(2)
		for _, state := range s.work() {
			cancelled = cancelled || state.Phase == backfill.Cancelled
		}
	})
	return reached, cancelled
}

// TestExpandTopicMadeAgain: the topic is deleted and made again at each call of a
// worker. A reference that goes to the new one has its rows there.
func TestExpandTopicMadeAgain(t *testing.T) {
	went := map[int]bool{}
	for n := 1; ; n++ {
		reached := false
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, topic.KeyHeader)
			s.lane = stillLane{asking(t, nil, "x", "y")}
			var mu sync.Mutex
			calls := 0
			w, _ := s.worker("one", judgement{}, func(memfs.Op) memfs.Fault {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls == n {
					reached = true
					if err := s.store.DeleteTopic(context.WithoutCancel(t.Context()), "refs", time.Now()); err != nil {
						t.Error(err)
					}
					s.create(topic.KeyHeader)
				}
				return memfs.Fault{}
			})
			if err := w.Run(t.Context(), t.Context()); err != nil {
				t.Error(err)
			}
			s.work()
			refs, _ := s.records()
			went[len(refs)] = true
			s.checkOutcome(len(refs))
		})
		if t.Failed() {
			t.Fatalf("at call %d", n)
		}
		if !reached {
			break
		}
	}
	if !went[2] || !went[0] {
		t.Errorf("this proves less than it claims: %v", went)
	}
}

// TestExpandBeside: a flush whose objects all vanish asks for a few of them.
func TestExpandBeside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, topic.KeyHeader)
		var keys []string
		for i := range 100 {
			keys = append(keys, fmt.Sprint(i))
		}
		s.lane = stillLane{asking(t, nil, keys...)}
		w, _ := s.worker("one", judgement{}, nil)
		var mu sync.Mutex
		asked := 0
		w.Expander = &expander{s.store, lookFunc(func() (object.Info, error) {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return object.Info{}, errEndpoint
		})}
		if err := w.Run(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		refs, _ := s.records()
		for _, r := range refs {
			if !r.Pending {
				t.Errorf("%s is not pending", r.Key)
			}
		}
		if got := w.Counts(); asked > 10 || len(refs) != 100 || got.Pending != 100 {
			t.Errorf("asked %d times, %+v", asked, got)
		}
		s.follow()
		if s.nudged != 100 {
			t.Errorf("called %d times", s.nudged)
		}
		s.checkOutcome(100)
	})
}

// TestExpandNobody: a worker that makes no jobs leaves the references pending.
func TestExpandNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t, topic.KeyHeader)
		s.lane = stillLane{asking(t, nil, "x")}
		w, _ := s.worker("one", judgement{}, nil)
		w.Expander = nil
		if err := w.Run(t.Context(), t.Context()); err != nil {
			t.Fatal(err)
		}
		if refs, _ := s.records(); len(refs) != 1 || !refs[0].Pending {
			t.Errorf("%+v", refs)
		}
		s.follow()
		s.checkOutcome(1)
	})
}
