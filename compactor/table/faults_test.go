package table_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/apache/iceberg-go/catalog"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/topic"
)

// faulty opens the table of a world without faults, and gives the handle of an
// actor whose calls of the catalog have faults from then on.
func faulty(t *testing.T, w *world, hook tabletest.Hook) *table.Table {
	t.Helper()
	on := false
	tables := table.New(table.Options{
		Store: w.fs.Client("faulty", nil), Bucket: "spillway",
		Catalog: w.server.Client(func(op tabletest.Op) tabletest.Fault {
			if !on {
				return tabletest.Fault{}
			}
			return hook(op)
		}),
	})
	tb, err := tables.Open(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	on = true
	return tb
}

// commits is a hook for calls of CommitTable: the n-th has the n-th fault, those
// that come after the last one have none.
func commits(faults ...tabletest.Fault) tabletest.Hook {
	return func(op tabletest.Op) tabletest.Fault {
		if op.Name != "CommitTable" || len(faults) == 0 {
			return tabletest.Fault{}
		}
		f := faults[0]
		faults = faults[1:]
		return f
	}
}

func always(f tabletest.Fault) tabletest.Hook {
	return func(tabletest.Op) tabletest.Fault { return f }
}

func never(context.Context, topic.SegmentID) (bool, error) { return false, nil }

// TestCommitInSpite: faults that a commit gets over, and what it says then.
func TestCommitInSpite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hook func(*world) tabletest.Hook
	}{
		"the answer is lost": {func(*world) tabletest.Hook { return commits(tabletest.Fault{After: tabletest.ErrLost}) }},
		"500 after success":  {func(*world) tabletest.Hook { return commits(tabletest.Fault{After: errors.New("EOF")}) }},
		"503 and no effect":  {func(*world) tabletest.Hook { return commits(down(), down(), down()) }},
		"409 and no effect": {func(*world) tabletest.Hook {
			return commits(conflict(), conflict(), conflict(), conflict(), conflict())
		}},
		"409 though it had its effect": {func(*world) tabletest.Hook { return commits(tabletest.Fault{After: tabletest.ErrConflict}) }},
		"all kinds, one after the other": {func(*world) tabletest.Hook {
			return commits(down(), conflict(), down(), down(), conflict(), tabletest.Fault{After: tabletest.ErrLost})
		}},
		"the request is late, and arrives with the next one": {func(w *world) tabletest.Hook {
			return arriving(w, "CommitTable")
		}},
		"the request is late, and arrives with the next look": {func(w *world) tabletest.Hook {
			return arriving(w, "LoadTable")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 2)
			tb := faulty(t, w, c.hook(w))
			done, err := tb.Commit(t.Context(), w.adds, never)
			if err != nil {
				t.Fatal(err)
			}
			if len(done.Added) != 2 || len(done.Already) != 0 {
				t.Errorf("it says %+v", done)
			}
			if err := w.check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func down() tabletest.Fault     { return tabletest.Fault{Before: tabletest.ErrDown} }
func conflict() tabletest.Fault { return tabletest.Fault{Before: tabletest.ErrConflict} }

// arriving delays the first commit until the next call of a kind.
func arriving(w *world, name string) tabletest.Hook {
	sent := false
	return func(op tabletest.Op) tabletest.Fault {
		switch {
		case !sent && op.Name == "CommitTable":
			sent = true
			return tabletest.Fault{Late: true}
		case sent && op.Name == name:
			w.server.Arrive()
		}
		return tabletest.Fault{}
	}
}

// TestCommitGivesUp: faults that last, and by which error they are known.
func TestCommitGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		hook tabletest.Hook
		want func(error) bool
	}{
		"down":       {always(down()), is[*table.UnavailableError]},
		"it hangs":   {always(tabletest.Fault{Hang: true}), is[*table.UnavailableError]},
		"conflicts":  {commits(repeat(conflict(), 100)...), is[*table.ConflictError]},
		"no answers": {commits(repeat(tabletest.Fault{Before: tabletest.ErrLost}, 100)...), is[*table.UnavailableError]},
		"forbidden":  {commits(repeat(tabletest.Fault{Before: tabletest.ErrForbidden}, 100)...), is[*table.ConfigError]},
		"dropped":    {always(tabletest.Fault{Before: catalog.ErrNoSuchTable}), func(err error) bool { return errors.Is(err, table.ErrNoTable) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			synctest.Test(t, func(t *testing.T) {
				tb := faulty(t, w, c.hook)
				_, err := tb.Commit(t.Context(), w.adds, never)
				if err == nil || !c.want(err) {
					t.Errorf("got %T %v", err, err)
				}
			})
			if err := w.actor(t.Context(), 0).run(); err != nil {
				t.Fatal(err)
			}
			if err := w.check(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func is[T error](err error) bool {
	var e T
	return errors.As(err, &e)
}

func repeat(f tabletest.Fault, n int) []tabletest.Fault {
	faults := make([]tabletest.Fault, n)
	for i := range faults {
		faults[i] = f
	}
	return faults
}

// TestOpenGivesUp is the same for Open.
func TestOpenGivesUp(t *testing.T) {
	hidden := func(op tabletest.Op) tabletest.Fault { // it may be made, but not seen
		if op.Name == "LoadTable" {
			return tabletest.Fault{Before: catalog.ErrNoSuchTable}
		}
		return tabletest.Fault{}
	}
	for name, c := range map[string]struct {
		hook tabletest.Hook
		want func(error) bool
	}{
		"down":         {always(down()), is[*table.UnavailableError]},
		"it hangs":     {always(tabletest.Fault{Hang: true}), is[*table.UnavailableError]},
		"forbidden":    {always(tabletest.Fault{Before: tabletest.ErrForbidden}), is[*table.ConfigError]},
		"hidden":       {hidden, is[*table.ConfigError]},
		"no warehouse": {always(tabletest.Fault{Before: catalog.ErrNoSuchNamespace}), is[*table.ConfigError]},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			synctest.Test(t, func(t *testing.T) {
				tables := table.New(table.Options{Store: w.fs.Client("x", nil), Bucket: "spillway", Catalog: w.server.Client(c.hook)})
				_, err := tables.Open(t.Context(), orders)
				if err == nil || !c.want(err) {
					t.Errorf("got %T %v", err, err)
				}
			})
		})
	}
}

// TestCommitEnds: the caller's context ends, or its record cannot be read.
func TestCommitEnds(t *testing.T) {
	w := newWorld(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	tb := faulty(t, w, func(tabletest.Op) tabletest.Fault { cancel(); return tabletest.Fault{} })
	if _, err := tb.Commit(ctx, w.adds, never); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	broken := errors.New("the filer is away")
	_, err := tb.Commit(t.Context(), w.adds, func(context.Context, topic.SegmentID) (bool, error) { return false, broken })
	if !errors.Is(err, broken) {
		t.Errorf("a record that cannot be read: %v", err)
	}
}

// TestSomebodyBetween lets somebody do something after each call of a commit.
func TestSomebodyBetween(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(*actor) error{
		"commits the same":   (*actor).run,
		"commits one of two": func(a *actor) error { return a.runSome(a.w.adds[1:]) },
		"drops the table": func(a *actor) error {
			return table.New(table.Options{Catalog: a.catalog, Store: a.store, Bucket: "spillway"}).Drop(a.ctx, orders.Name)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 1; between(t, n, do); n++ {
			}
		})
	}
}

// between does something before the n-th call. It tells whether there was one.
func between(t *testing.T, n int, do func(*actor) error) bool {
	t.Helper()
	w := newWorld(t, 2)
	calls := 0
	tb := faulty(t, w, func(tabletest.Op) tabletest.Fault {
		if calls++; calls == n {
			if err := do(w.actor(t.Context(), 0)); err != nil {
				t.Error(err)
			}
		}
		return tabletest.Fault{}
	})
	if _, err := tb.Commit(t.Context(), w.adds, w.actor(t.Context(), 0).recorded(tb)); err != nil && !errors.Is(err, table.ErrNoTable) {
		t.Errorf("call %d: %v", n, err)
	}
	if err := w.actor(t.Context(), 0).run(); err != nil {
		t.Fatal(err)
	}
	if err := w.check(t.Context()); err != nil {
		t.Errorf("call %d: %v", n, err)
	}
	return calls >= n
}
