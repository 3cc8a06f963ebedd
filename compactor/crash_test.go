package compactor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// crash ends everything at the n-th call to the outside, of filer and catalog together.
type crash struct {
	at    int64
	after bool // the n-th has its effect, and nobody hears of it
	calls atomic.Int64
	kill  context.CancelFunc
}

// errCrashed is what a call of a process that is gone gives.
var errCrashed = errors.New("crashed")

func (c *crash) fault() (before, after error) {
	n := c.calls.Add(1)
	if n < c.at {
		return nil, nil
	}
	c.kill()
	if n == c.at && c.after {
		return nil, errCrashed
	}
	return errCrashed, nil
}

// crashing is a compactor that crashes; its context ends then.
func (w *world) crashing(ctx context.Context, at int, after bool) (context.Context, *Compactor, *crash) {
	ctx, kill := context.WithCancel(ctx)
	c := &crash{at: int64(at), after: after, kill: kill}
	return ctx, New(w.options(
		func(memfs.Op) memfs.Fault {
			before, after := c.fault()
			return memfs.Fault{Before: before, After: after}
		},
		func(tabletest.Op) tabletest.Fault {
			before, after := c.fault()
			return tabletest.Fault{Before: before, After: after}
		},
	)), c
}

// crashWorld has a segment of two files, one that is small, and an empty one, and some
// records that are not sealed.
func crashWorld(t tester) *world {
	w := newWorld(t, 2)
	ids := w.live(t)
	w.add(t, ids[0], "..nb")
	w.add(t, ids[0], "lm")
	w.add(t, ids[0], "re.")
	w.add(t, ids[1], "x.")
	next := w.roll(t, ids[0])
	w.roll(t, ids[1])
	next = w.roll(t, next)
	w.add(t, next, "..")
	return w
}

// bubble runs a test in virtual time, with helpers that report to it.
func bubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// twice compacts, and once more when the grace is over, whatever comes of it.
func (w *world) twice(ctx context.Context, c *Compactor) {
	_, _ = c.Topic(ctx, ctx, w.name)
	w.pass(2 * grace)
	_, _ = c.Topic(ctx, ctx, w.name)
}

// A compactor may end at any call to the filer or the catalog, before it has its effect
// or after, and the next one finishes what it left: each row is once in the table and in
// the manifests' files, and nothing is left over.
func TestCrash(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n, more := 1, true; more; n++ {
			bubble(t, fmt.Sprintf("after=%v/%d", after, n), func(t *testing.T) {
				w := crashWorld(t)
				ctx, c, crash := w.crashing(t.Context(), n, after)
				c.FileBytes = 60 << 10
				w.twice(ctx, c)
				more = crash.calls.Load() >= int64(n)
				w.finish(t)
				crash.kill()
			})
		}
	}
}

// The same, while another compactor is at it, which does not know.
func TestCrashBesideAnother(t *testing.T) {
	for n, more := 1, true; more; n += 2 {
		bubble(t, fmt.Sprint(n), func(t *testing.T) {
			w := crashWorld(t)
			ctx, c, crash := w.crashing(t.Context(), n, n%4 == 1)
			other := w.compactor()
			c.FileBytes, other.FileBytes = 60<<10, int64(60+n%2*40)<<10
			var g errgroup.Group
			g.Go(func() error { w.twice(ctx, c); return nil })
			g.Go(func() error { w.twice(t.Context(), other); return nil })
			_ = g.Wait()
			more = crash.calls.Load() >= int64(n)
			w.finish(t)
			crash.kill()
		})
	}
}

// Any answer may be lost, and any request may arrive later.
func TestLostReplies(t *testing.T) {
	for _, late := range []time.Duration{0, 50 * time.Millisecond} {
		for n, more := 1, true; more; n++ {
			bubble(t, fmt.Sprintf("late=%s/%d", late, n), func(t *testing.T) {
				w := crashWorld(t)
				var calls atomic.Int64
				c := New(w.options(func(memfs.Op) memfs.Fault {
					if calls.Add(1) != int64(n) {
						return memfs.Fault{}
					}
					return memfs.Fault{After: memfs.ErrLost, Late: late}
				}, func(tabletest.Op) tabletest.Fault {
					if calls.Add(1) != int64(n) {
						return tabletest.Fault{}
					}
					return tabletest.Fault{After: tabletest.ErrLost, Late: late > 0}
				}))
				w.twice(t.Context(), c)
				more = calls.Load() >= int64(n)
				w.catalog.Arrive()
				w.fs.Settle()
				w.finish(t)
			})
		}
	}
}
