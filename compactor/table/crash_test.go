package table_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
)

// TestCrashes lets a process crash at each of its calls in turn, of the catalog
// and of the filer, before and after the call's effect, and sees that whoever
// comes after it brings each segment into the table once.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]struct {
		rival bool // somebody else works while the first one does
		after int  // how many come afterwards, at once
	}{
		"then one alone":           {false, 1},
		"then two that race":       {false, 2},
		"beside a rival, then one": {true, 1},
	} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after the effect %t", name, after), func(t *testing.T) {
				t.Parallel()
				for n := 1; crashAt(t, n, after, mode.rival, mode.after); n++ {
					if n > 500 {
						t.Fatal("there is no end")
					}
				}
			})
		}
	}
}

// crashAt is one of TestCrashes. It returns false when there is no n-th call.
func crashAt(t *testing.T, n int, after, rival bool, later int) bool {
	t.Helper()
	w := newWorld(t, 3)
	first := w.actor(t.Context(), n)
	first.after = after
	var g errgroup.Group
	if rival {
		g.Go(w.actor(t.Context(), 0).run)
	}
	err := first.run()
	crashed := first.crashed()
	if !crashed && err != nil || err != nil && !errors.Is(err, errCrash) && first.ctx.Err() == nil {
		t.Fatalf("call %d: %v", n, err)
	}
	for range later {
		g.Go(w.actor(t.Context(), 0).run)
	}
	if err := g.Wait(); err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	if err := w.check(t.Context()); err != nil {
		t.Fatalf("call %d: %v", n, err)
	}
	return crashed
}

// TestLateRequests lets a request to the catalog arrive only when another process
// is at its k-th call of it, or has ended, long after the one that sent it crashed.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	for n, k := 1, 1; ; {
		switch sent, arrived := lateAt(t, n, k); {
		case !sent:
			return
		case !arrived:
			n, k = n+1, 1
		default:
			k++
		}
	}
}

// lateAt is one of TestLateRequests: the n-th call of one process arrives before
// the k-th of another. It tells whether there are such calls.
func lateAt(t *testing.T, n, k int) (sent, arrived bool) {
	t.Helper()
	w := newWorld(t, 3)
	first := w.actor(t.Context(), n)
	first.late = true
	if err := first.run(); err != nil && !first.crashed() {
		t.Fatalf("call %d: %v", n, err)
	}
	second := w.actor(t.Context(), 0)
	second.late = true
	var there atomic.Bool
	second.onCall = func(call int) {
		if call == k {
			there.Store(true)
			w.server.Arrive()
		}
	}
	if err := second.run(); err != nil {
		t.Fatalf("call %d, which arrives at call %d: %v", n, k, err)
	}
	w.server.Arrive()
	if err := w.actor(t.Context(), 0).run(); err != nil {
		t.Fatal(err)
	}
	if err := w.check(t.Context()); err != nil {
		t.Fatalf("call %d, which arrived at call %d: %v", n, k, err)
	}
	return first.crashed(), there.Load()
}
