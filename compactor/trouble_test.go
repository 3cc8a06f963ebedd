package compactor

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
)

// One answer "not found" for topic.json while a visit ends deletes the whole topic,
// with what was never compacted.
func TestOneWrongNotFoundDeletesNothing(t *testing.T) {
	for wrong := 2; wrong < 8; wrong++ {
		t.Run(fmt.Sprint(wrong), func(t *testing.T) {
			w := sealedWorld(t)
			id := w.live(t)[0]
			w.add(t, id, "....") // not even sealed
			n := 0
			c := New(w.options(func(op memfs.Op) memfs.Fault {
				if op.Name == "Lookup" && strings.HasSuffix(op.Path, "/topic.json") {
					if n++; n == wrong { // one wrong answer
						return memfs.Fault{Before: filer.ErrNotFound}
					}
				}
				return memfs.Fault{}
			}, nil))
			r, err := c.Topic(t.Context(), t.Context(), w.name)
			t.Logf("%+v %v", r, err)
			_, err = w.store.Topic(t.Context(), w.name)
			must(t, err)
			w.readable(t)
		})
	}
}

// A compactor that wakes after its table was dropped and made again writes the old
// table's uuid over the new one's, and the segment comes into the new table twice.
func TestLateRecordOfADroppedTable(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	next := w.roll(t, id)
	old := id
	done := false
	zombie := New(w.options(func(op memfs.Op) memfs.Fault {
		// The zombie stops after its commit, before it looks at table.json to write it.
		if op.Name == "Lookup" && strings.HasSuffix(op.Path, string(old)+"/table.json") && op.N == 3 && !done {
			done = true
			other := w.compactor()
			other.Holder = "test"
			must(t, other.Tables.Drop(t.Context(), w.name))
			r := w.compact(t, other) // the new table has the segment
			t.Logf("other: %+v", r)
			w.add(t, next, "..")
			next = w.roll(t, next)
			r = w.compact(t, other) // and its property has it no more
			t.Logf("other: %+v", r)
		}
		return memfs.Fault{}
	}, nil))
	r, err := zombie.Topic(t.Context(), t.Context(), w.name)
	t.Logf("zombie: %+v %v", r, err)
	if !done {
		t.Fatal("not reached")
	}
	w.add(t, next, "..")
	w.roll(t, next)
	sum, err := w.compactor().Sweep(context.Background(), context.Background(), true)
	t.Logf("%+v %v", sum, err)
	w.audit(t)
}

// Table.json is lost (restored from a backup, deleted by hand): rows twice.
func TestRecordLost(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	next := w.roll(t, id)
	w.compact(t, w.compactor())
	w.add(t, next, "..")
	w.roll(t, next)
	w.compact(t, w.compactor()) // prunes
	must(t, w.store.Filer.Delete(t.Context(), w.top.Dir()+"/segments/"+string(id)+"/table.json", ""))
	r, err := w.compactor().Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.audit(t)
}

// One segment whose data file is gone before the commit keeps all others out of the table.
func TestOneBadFileKeepsNobodyOut(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	first := id
	for range 3 {
		w.add(t, id, "...")
		id = w.roll(t, id)
	}
	down := New(w.options(nil, func(op tabletest.Op) tabletest.Fault { return tabletest.Fault{Before: tabletest.ErrDown} }))
	down.Tables = nil
	w.compact(t, down)
	s := w.segment(t, first)
	for _, n := range w.dataNames(t, s) {
		must(t, w.store.Filer.Delete(t.Context(), s.DataPath(n), ""))
	}
	for range 3 {
		r, err := w.compactor().Topic(t.Context(), t.Context(), w.name)
		t.Logf("%+v %v", r, err)
		w.pass(2 * grace)
		if r.Committed == 2 {
			return
		}
	}
	t.Error("the two good segments never come into the table")
}

// One damaged table.json keeps all others out of the table.
func TestOneBadRecordKeepsNobodyOut(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	first := id
	w.add(t, id, "...")
	id = w.roll(t, id)
	w.compact(t, w.compactor())
	path := w.top.Dir() + "/segments/" + string(first) + "/table.json"
	e, err := w.store.Filer.Lookup(t.Context(), path)
	must(t, err)
	must(t, w.store.Filer.Update(t.Context(), path, e.ID, filer.File{ID: filer.NewID(), Content: []byte("{")}))
	for range 3 {
		w.add(t, id, "...")
		id = w.roll(t, id)
	}
	for range 3 {
		r, err := w.compactor().Topic(t.Context(), t.Context(), w.name)
		t.Logf("%+v %v", r, err)
		w.pass(2 * grace)
		if r.Committed == 3 {
			return
		}
	}
	t.Error("the good segments never come into the table")
}

// No bucket (a wrong or empty endpoint, for a night) is taken for an answer about the
// object for ever.
func TestNoBucketIsNoAnswer(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "b")
	w.roll(t, id)
	w.objects.fail(fmt.Errorf("head: %w", object.ErrNoBucket))
	r, err := w.compactor().Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.objects.fail(nil)
	w.pass(2 * grace)
	w.compact(t, w.compactor())
	t.Log(w.rowsOf(t, id))
	w.audit(t)
}

// Records that are mended while a compactor is at the segment are left out all the
// same, and then deleted.
func TestMendedWhileCompacted(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	w.add(t, id, "...")
	w.roll(t, id)
	s := w.segment(t, id)
	must(t, s.SetQuarantine(t.Context(), segment.Quarantine{Drop: []segment.DroppedRange{{First: 0, Last: 2, Reason: "lost"}}}))
	done := false
	c := New(w.options(func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.HasSuffix(op.Path, ".parquet") && !done {
			done = true // what repair --from-lane does once it has mended the chunk
			q, err := s.Quarantine(t.Context())
			must(t, err)
			q.Drop = []segment.DroppedRange{}
			must(t, s.SetQuarantine(t.Context(), q))
		}
		return memfs.Fault{}
	}, nil))
	r, err := c.Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.pass(2 * grace)
	r, err = c.Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.readable(t)
}

// A data file that a run that ended left behind, whose bytes were lost since, keeps the
// segment in quarantine for ever, and doctor proposes to give up record 0.
func TestLeftoverDamaged(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "ll")
	w.roll(t, id)
	c := New(w.options(func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.HasSuffix(op.Path, "/manifest.json") {
			return memfs.Fault{Before: filer.ErrReadOnly}
		}
		return memfs.Fault{}
	}, nil))
	_, err := c.Topic(t.Context(), t.Context(), w.name)
	t.Log(err)
	s := w.segment(t, id)
	for _, n := range w.dataNames(t, s) {
		must(t, w.fs.LoseBlobs(s.DataPath(n)))
	}
	for range 5 {
		r, err := w.compactor().Topic(t.Context(), t.Context(), w.name)
		t.Logf("%+v %v", r, err)
		w.pass(2 * grace)
	}
	q, err := s.Quarantine(t.Context())
	t.Logf("%+v %v", q, err)
	if err == nil {
		t.Error("it is in quarantine, though all its chunks can be read")
	}
}

// One wrong "not found" for a segment.json takes a segment out of the property that no
// table.json tells of.
func TestNotPrunedByOneWrongNotFound(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	first := id
	w.add(t, id, "...")
	next := w.roll(t, id)
	second := next
	w.add(t, next, "..")
	// A commits, and ends before it records.
	a := New(w.options(func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.HasSuffix(op.Path, "/table.json") {
			return memfs.Fault{Before: filer.ErrReadOnly}
		}
		return memfs.Fault{}
	}, nil))
	r, err := a.Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.roll(t, next)
	b := New(w.options(func(op memfs.Op) memfs.Fault {
		if op.Name == "Lookup" && strings.HasSuffix(op.Path, string(first)+"/segment.json") && op.N == 1 {
			return memfs.Fault{Before: filer.ErrNotFound}
		}
		return memfs.Fault{}
	}, nil))
	r, err = b.Segment(t.Context(), t.Context(), w.name, second)
	t.Logf("%+v %v", r, err)
	r, err = w.compactor().Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.audit(t)
}
