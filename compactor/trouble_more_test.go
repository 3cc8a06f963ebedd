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
)

// Another catalog, and back again: everything is in the first one twice.
func TestOtherCatalogAndBack(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "...")
	id = w.roll(t, id)
	w.compact(t, w.compactor())
	w.add(t, id, "..")
	w.roll(t, id)
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
