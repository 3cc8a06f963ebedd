package compactor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
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
	var zombie *Compactor
	zombie = New(w.options(func(op memfs.Op) memfs.Fault {
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

// Another catalog, and back again: everything is in the first one twice.
func TestOtherCatalogAndBack(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	id = w.roll(t, id)
	w.compact(t, w.compactor())
	w.add(t, id, "..")
	id = w.roll(t, id)
	w.compact(t, w.compactor()) // in the table, and the first is not in the property any more
	w.audit(t)

	second := tabletest.NewServer(w.fs.Client("catalog2", nil), "warehouse2")
	o := w.options(nil, nil)
	o.Tables = table.New(table.Options{Catalog: second.Client(nil), Store: o.Store.Filer, Warehouse: "warehouse2", Bucket: w.bucket, Now: w.clock})
	r := w.compact(t, New(o))
	t.Logf("%+v", r)

	r = w.compact(t, w.compactor())
	t.Logf("%+v", r)
	w.audit(t)
}

// Probe: ReadSince at each record's time, with a seal whose clock is behind.
func TestSinceBeforeAndAfter(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "....")
	w.add(t, id, "..b.")
	w.roll(t, id)
	count := func(k int) (n int) {
		r, err := w.top.ReadSince(t.Context(), noon.Add(time.Duration(k)*time.Millisecond))
		must(t, err)
		for it, err := range r.Next(t.Context()) {
			must(t, err)
			_ = it
			n++
		}
		return n
	}
	var before []int
	for k := range 12 {
		before = append(before, count(k))
	}
	w.finish(t)
	var after []int
	for k := range 12 {
		after = append(after, count(k))
	}
	t.Log(before, after)
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Error("differ")
	}
}

// Probe: forget deletes what another compactor has made, while topic.json is away for a moment.
func TestForgetsNothingOfAnother(t *testing.T) {
	w := sealedWorld(t)
	away := false
	done := false
	c := New(w.options(func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.HasSuffix(op.Path, ".parquet") && !done {
			done = true
			o := w.options(nil, nil)
			o.Grace = 0
			r, err := New(o).Topic(t.Context(), t.Context(), w.name) // everything, up to the trim
			t.Logf("%+v %v", r, err)
			away = true
		}
		if op.Name == "Lookup" && strings.HasSuffix(op.Path, "/topic.json") && away {
			return memfs.Fault{Before: filer.ErrNotFound}
		}
		if op.Name == "Delete" && strings.HasSuffix(op.Path, "/manifest.json") {
			away = false // it is back
		}
		return memfs.Fault{}
	}, nil))
	r, err := c.Topic(t.Context(), t.Context(), w.name)
	t.Logf("%+v %v", r, err)
	w.readable(t)
}

// Manifest.json of a trimmed segment is lost: an empty one is made, and the data files,
// of which all could be made again, are swept.
func TestManifestLost(t *testing.T) {
	w := sealedWorld(t)
	id := w.sealed(t)[0]
	c := w.compactor()
	w.compact(t, c)
	w.pass(2 * grace)
	w.compact(t, c)
	w.trimmed(t)
	s := w.segment(t, id)
	before := w.dataNames(t, s)
	must(t, w.store.Filer.Delete(t.Context(), w.top.Dir()+"/segments/"+string(id)+"/manifest.json", ""))
	for range 3 {
		sum, err := w.compactor().Sweep(t.Context(), t.Context(), true)
		t.Logf("%+v, %v", sum, err)
		w.pass(2 * grace)
	}
	m, err := s.Manifest(t.Context())
	t.Logf("%+v, %v", m, err)
	if after := w.dataNames(t, s); len(after) < len(before) {
		t.Errorf("the only copy of the records was deleted: %q", before)
	}
}

// One damaged topic.json (of any topic) keeps a resident compactor from all topics, for ever.
func TestOneBadTopicKeepsNobodyOut(t *testing.T) {
	w := sealedWorld(t)
	must(t, w.store.Filer.Create(t.Context(), "/buckets/test/topics/other/topic.json", filer.File{ID: filer.NewID(), Content: []byte("{")}))
	for range 3 {
		sum, err := w.compactor().Sweep(t.Context(), t.Context(), true) // what Run does, again and again until it succeeds
		t.Logf("%+v, %v", sum, err)
		if sum.Compacted == 1 {
			return
		}
		w.pass(time.Hour)
	}
	t.Error("nothing is compacted")
}

// No room on the volume servers: chunks whose grace is over, which would make room, are
// not deleted, since a rewriting waits for room first.
func TestNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		id := w.live(t)[0]
		w.add(t, id, "ll")
		id = w.roll(t, id)
		w.compact(t, w.compactor())
		w.pass(2 * grace) // the first may be trimmed now
		w.add(t, id, "ll")
		w.roll(t, id)
		full := errors.New("no free volumes left")
		c := New(w.options(func(op memfs.Op) memfs.Fault {
			if strings.HasPrefix(op.Name, "Upload") {
				return memfs.Fault{Before: full}
			}
			return memfs.Fault{}
		}, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Hour)
		defer cancel()
		r, err := c.Topic(ctx, ctx, w.name)
		t.Logf("%+v %v", r, err)
		if r.Trimmed != 1 {
			t.Error("nothing was deleted in twelve hours")
		}
	})
}

// F: --once with a deadline that is shorter than the backlog: nothing ever comes into the
// table, and no chunks go, however often it runs.
func TestDeadlineStarvesNobody(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	committed, trimmed, compacted := 0, 0, 0
	for range 3 {
		w.add(t, id, "..")
		id = w.roll(t, id)
	}
	for range 12 {
		w.add(t, id, "..")
		id = w.roll(t, id)
		stop, end := context.WithCancel(t.Context())
		c := New(w.options(func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" && strings.HasSuffix(op.Path, "/manifest.json") {
				end() // one segment is done, when the deadline comes
			}
			return memfs.Fault{}
		}, nil))
		r, err := c.Topic(t.Context(), stop, w.name)
		must(t, err)
		end()
		committed, trimmed, compacted = committed+r.Committed, trimmed+r.Trimmed, compacted+r.Compacted
		w.pass(2 * grace)
	}
	t.Log(compacted, committed, trimmed)
	if compacted == 12 && committed+trimmed == 0 {
		t.Error("twelve segments compacted in 24 hours, none in the table, none trimmed")
	}
}
