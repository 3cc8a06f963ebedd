package compactor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// While the catalog does not answer, segments are rewritten, and nothing goes.
func TestCatalogAway(t *testing.T) {
	for name, fault := range map[string]tabletest.Fault{
		"down":      {Before: tabletest.ErrDown},
		"5xx after": {After: tabletest.ErrLost},
		"conflict":  {Before: tabletest.ErrConflict},
		"hangs":     {Hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := sealedWorld(t)
				w.compact(t, w.compactor()) // so that there is a table
				id := w.live(t)[0]
				w.add(t, id, "..")
				w.roll(t, id)
				c := New(w.options(nil, func(op tabletest.Op) tabletest.Fault {
					if op.Name == "CommitTable" || name == "down" {
						return fault
					}
					return tabletest.Fault{}
				}))
				first := w.compact(t, c)
				if first.Compacted != 1 {
					t.Errorf("%+v", first)
				}
				w.pass(2 * grace)
				r := w.compact(t, c)
				landed := name == "5xx after" // and was seen
				if landed != (r.Silent == nil && first.Silent == nil) {
					t.Errorf("%+v, then %+v", first, r)
				}
				if !landed && (r.Next.IsZero() || r.Committed > 0 || r.Trimmed > 1) { // 1: it was in the table before
					t.Errorf("%+v", r)
				}
				w.audit2(t, landed)
				w.finish(t)
			})
		})
	}
}

// audit2 is audit, but for the table if that is behind.
func (w *world) audit2(t tester, table bool) {
	t.Helper()
	w.readable(t)
	if table {
		w.audit(t)
	}
}

// What only somebody can mend comes as an error, after all else was done.
func TestForeignTable(t *testing.T) {
	w := sealedWorld(t)
	w.compact(t, w.compactor())
	must(t, w.store.DeleteTopic(t.Context(), "orders", noon))
	again := newWorldOn(t, w)
	r, err := again.compactor().Topic(t.Context(), t.Context(), "orders")
	var foreign *table.ForeignError
	if !errors.As(err, &foreign) || r.Compacted != 1 || r.Committed != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	again.pass(2 * grace)
	if r, err := again.compactor().Topic(t.Context(), t.Context(), "orders"); !errors.As(err, &foreign) || r.Trimmed != 0 {
		t.Errorf("chunks went without a table: %+v, %v", r, err)
	}
	must(t, again.compactor().Tables.Drop(t.Context(), "orders"))
	again.finish(t)
}

// Without a catalog there are data files and manifests. A catalog that comes later gets
// all that there is, trimmed or not, and one whose table was dropped gets it once more.
func TestCatalogComesLater(t *testing.T) {
	w := sealedWorld(t)
	alone := New(w.options(nil, nil))
	alone.Tables = nil
	w.compact(t, alone)
	w.pass(grace)
	if r := w.compact(t, alone); r.Trimmed != 1 {
		t.Errorf("%+v", r)
	}
	w.readable(t)
	w.trimmed(t)
	c := w.compactor()
	if r := w.compact(t, c); r.Committed != 1 || r.Trimmed != 0 {
		t.Errorf("%+v", r)
	}
	w.audit(t)
	must(t, c.Tables.Drop(t.Context(), "orders"))
	sum, err := c.Sweep(t.Context(), t.Context(), true)
	if err != nil || sum.Committed != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	w.audit(t)
	w.finish(t)
}

// Many segments come in by few commits.
func TestManySegments(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	const n = 230
	for i := range n {
		if i%50 != 0 { // these are empty
			w.add(t, id, ".")
		}
		id = w.roll(t, id)
	}
	if r := w.compact(t, w.compactor()); r.Compacted != n || r.Committed != n-5 {
		t.Errorf("%+v", r)
	}
	if got := w.catalog.Commits(); got > 5 {
		t.Errorf("%d commits", got)
	}
	w.finish(t)
}

// A data file that is not what the manifest says keeps the chunks.
func TestMissingFile(t *testing.T) {
	for name, spoil := range map[string]func(w *world, path string, e filer.Entry) error{
		"gone": func(w *world, path string, _ filer.Entry) error {
			return w.store.Filer.Delete(context.Background(), path, "")
		},
		"longer": func(w *world, path string, e filer.Entry) error {
			return w.store.Filer.Update(context.Background(), path, e.ID, filer.File{ID: e.ID, Attrs: e.Attrs, Content: append(e.Content, 0)})
		},
		"another": func(w *world, path string, e filer.Entry) error {
			return w.store.Filer.Update(context.Background(), path, e.ID, filer.File{ID: e.ID, Attrs: filer.Attrs{filer.AttrDigest: "sha256:0"}, Content: e.Content})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := sealedWorld(t)
			c := w.compactor()
			w.compact(t, c)
			s := w.segment(t, w.sealed(t)[0])
			path := s.DataPath(w.dataNames(t, s)[0])
			e, err := w.store.Filer.Lookup(t.Context(), path)
			must(t, err)
			must(t, spoil(w, path, e))
			w.pass(2 * grace)
			r, err := c.Topic(t.Context(), t.Context(), "orders")
			var missing *MissingError
			if !errors.As(err, &missing) || missing.Path != path || r.Trimmed != 0 {
				t.Errorf("%+v, %v", r, err)
			}
			w.readable(t)
		})
	}
}

// A manifest that cannot be read is told each time, and nothing is done.
func TestBadManifest(t *testing.T) {
	w := sealedWorld(t)
	id := w.sealed(t)[0]
	must(t, w.store.Filer.Create(t.Context(), path.Join(segmentDir(w.top, id), "manifest.json"), fileOf("{")))
	c := w.compactor()
	for range 2 {
		r, err := c.Topic(t.Context(), t.Context(), w.name)
		var bad *segment.ManifestError
		if !errors.As(err, &bad) || r.Quarantined != 0 || r.Compacted != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	}
	w.readable(t)
}

// Files of somebody who came too late are swept; where there is no manifest, nothing is.
func TestOrphans(t *testing.T) {
	w := newWorld(t, 2)
	ids := w.live(t)
	for _, id := range ids {
		w.add(t, id, "..")
	}
	w.roll(t, ids[0])
	for i, id := range ids {
		s := w.segment(t, id)
		must(t, w.store.Filer.Create(t.Context(), s.DataPath(fmt.Sprintf("%d.parquet", i)), fileOf("x")))
	}
	c := w.compactor()
	w.compact(t, c)
	w.pass(grace)
	if r := w.compact(t, c); r.Swept != 1 || r.Trimmed != 1 {
		t.Errorf("%+v", r)
	}
	if got := w.dataNames(t, w.segment(t, ids[1])); len(got) != 1 {
		t.Errorf("the folder of a segment without a manifest has %q", got)
	}
	must(t, w.store.Filer.Create(t.Context(), w.segment(t, ids[0]).DataPath("late.parquet"), fileOf("x")))
	if r := w.compact(t, c); r != (Report{}) {
		t.Errorf("it is done with: %+v", r)
	}
	sum, err := c.Sweep(t.Context(), t.Context(), true)
	if err != nil || sum.Swept != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
}
