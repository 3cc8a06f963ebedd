package table_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

var errCrash = errors.New("crashed")

var orders = table.Topic{Name: "orders", Incarnation: "life"}

// world is a filer and a catalog that actors share, and what they have to commit.
type world struct {
	fs     *memfs.FS
	server *tabletest.Server
	adds   []table.Addition
}

func newWorld(t testing.TB, segments int) *world {
	t.Helper()
	w := &world{fs: memfs.New()}
	store := w.fs.Client("server", nil)
	w.server = tabletest.NewServer(store, "warehouse")
	for i := range segments {
		a, err := tabletest.Place{Store: store, Bucket: "spillway", Topic: orders}.Write(t.Context(), tabletest.SegmentID(i), 3, 2)
		if err != nil {
			t.Fatal(err)
		}
		w.adds = append(w.adds, a)
	}
	return w
}

// actor is a process: it may crash at its n-th call of anything outside of it.
type actor struct {
	w       *world
	cancel  context.CancelFunc
	ctx     context.Context
	store   filer.Store
	catalog table.Catalog
	now     func() time.Time

	mu      sync.Mutex
	n       int
	crashAt int
	after   bool // it crashes when the call has had its effect
	late    bool // only calls of the catalog count, and their effect comes later
	onCall  func(n int)
	dead    bool
}

func (w *world) actor(ctx context.Context, crashAt int) *actor {
	a := &actor{w: w, crashAt: crashAt, now: time.Now}
	a.ctx, a.cancel = context.WithCancel(ctx)
	a.store = w.fs.Client("actor", func(memfs.Op) memfs.Fault {
		if a.late {
			return memfs.Fault{}
		}
		f := a.call()
		return memfs.Fault{Before: f.Before, After: f.After}
	})
	a.catalog = w.server.Client(func(tabletest.Op) tabletest.Fault {
		return a.call()
	})
	return a
}

// call counts a call and tells what happens to it.
func (a *actor) call() (f tabletest.Fault) {
	a.mu.Lock()
	a.n++
	n := a.n
	switch {
	case a.dead:
		a.cancel() // not before: the call that it crashed in had to have its effect
		f.Before = errCrash
	case n == a.crashAt:
		a.dead = true
		switch {
		case a.late:
			f.Late, f.After = true, errCrash
		case a.after:
			f.After = errCrash
		default:
			f.Before = errCrash
		}
	}
	a.mu.Unlock()
	if a.onCall != nil {
		a.onCall(n)
	}
	return f
}

func (a *actor) crashed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.dead
}

func (a *actor) open() (*table.Table, error) {
	ts := table.New(table.Options{Catalog: a.catalog, Store: a.store, Bucket: "spillway", Now: a.now})
	return ts.Open(a.ctx, orders)
}

func recordPath(id topic.SegmentID) string {
	return "/buckets/spillway/topics/orders/life/segments/" + string(id) + "/table.json"
}

// recorded reads a segment's record.
func (a *actor) recorded(tb *table.Table) table.Recorded {
	return func(ctx context.Context, id topic.SegmentID) (found bool, err error) {
		err = filer.Retry(ctx, func(ctx context.Context) error {
			e, err := a.store.Lookup(ctx, recordPath(id))
			found = err == nil && string(e.Content) == tb.UUID()
			return err
		})
		if errors.Is(err, filer.ErrNotFound) {
			return false, nil
		}
		return found, err
	}
}

// run is what the compactor does: all segments but the last in one commit, their
// records, and then the last one.
func (a *actor) run() error {
	last := len(a.w.adds) - 1
	if last > 0 {
		if err := a.runSome(a.w.adds[:last]); err != nil {
			return err
		}
	}
	return a.runSome(a.w.adds[last:])
}

// runSome opens the table, commits, and writes the records.
func (a *actor) runSome(adds []table.Addition) error {
	tb, err := a.open()
	if err != nil {
		return err
	}
	done, err := tb.Commit(a.ctx, adds, a.recorded(tb))
	if err != nil {
		return err
	}
	for _, id := range slices.Concat(done.Added, done.Already) {
		if err := a.record(tb, id); err != nil {
			return err
		}
	}
	return nil
}

// record says in a segment's record that it is in the table.
func (a *actor) record(tb *table.Table, id topic.SegmentID) error {
	f := filer.File{ID: filer.NewID(), Content: []byte(tb.UUID())}
	e, err := filer.Create(a.ctx, a.store, recordPath(id), f)
	if errors.Is(err, filer.ErrExists) && string(e.Content) != tb.UUID() {
		return filer.Replace(a.ctx, a.store, recordPath(id), e.ID, f)
	}
	if errors.Is(err, filer.ErrExists) {
		return nil
	}
	return err
}

// check sees that each segment is in the table once, before and after a sweep.
func (w *world) check(ctx context.Context) error {
	a := w.actor(ctx, 0)
	a.now = func() time.Time { return time.Now().Add(73 * time.Hour) }
	tb, err := a.open()
	if err != nil {
		return err
	}
	if err := tabletest.Check(ctx, tb, 0, w.adds...); err != nil {
		return err
	}
	if _, err := tb.Sweep(ctx); err != nil {
		return err
	}
	if err := tabletest.Check(ctx, tb, 0, w.adds...); err != nil {
		return fmt.Errorf("after the sweep: %w", err)
	}
	d, err := tb.Describe(ctx)
	if err != nil {
		return err
	}
	if len(d.Pending) > len(w.adds) {
		return fmt.Errorf("pending: %v", d.Pending)
	}
	if problems := w.fs.Problems(); len(problems) > 0 {
		return fmt.Errorf("problems: %q", problems)
	}
	return nil
}
