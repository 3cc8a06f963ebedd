package repair_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/repair"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// sealed is a world with a sealed segment of several chunks, of which some are damaged.
func sealed(t *testing.T, chunks int, damaged ...int) (*world, *segment.Segment, []segment.Chunk) {
	t.Helper()
	w := newWorld(t, topic.Definition{Key: topic.KeyHeader}, 0)
	for range chunks {
		w.send(20)
		w.ingest()
	}
	w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
	s := w.segments()[0]
	list := w.chunks(s)
	if len(list) != chunks {
		t.Fatalf("%d chunks", len(list))
	}
	for _, i := range damaged {
		if err := w.fs.Corrupt(list[i].Entry.Path); err != nil {
			t.Fatal(err)
		}
	}
	return w, s, list
}

func of(chunks []segment.Chunk, first, last int) repair.Drop {
	return repair.Drop{First: chunks[first].Base, Last: chunks[last].End() - 1, Reason: "volume 7 is lost"}
}

// TestDrop: what cannot be read is given up, by whole chunks, once.
func TestDrop(t *testing.T) {
	w, s, chunks := sealed(t, 4, 1, 2)
	r := w.repairer(w.store)
	o := of(chunks, 1, 2)
	o.DryRun = true
	report, err := r.Drop(t.Context(), "orders", s.ID, o)
	if err != nil || len(report.Dropped) != 2 || report.Lost() != 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if _, err := s.Quarantine(t.Context()); !errors.Is(err, filer.ErrNotFound) {
		t.Fatalf("a dry run wrote: %v", err)
	}
	o.DryRun = false
	for range 2 {
		if report, err = r.Drop(t.Context(), "orders", s.ID, o); err != nil {
			t.Fatal(err)
		}
	}
	q, err := s.Quarantine(t.Context())
	if err != nil || len(q.Drop) != 2 || !slices.Equal(q.Drop, report.Dropped) {
		t.Fatalf("%+v, %v", q, err)
	}
	for i, d := range q.Drop {
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		c := chunks[1+i]
		if d.First != c.Base || d.Last != c.End()-1 || !strings.Contains(string(text), "volume 7 is lost") || !strings.Contains(string(text), "me@here") {
			t.Errorf("%s", text)
		}
	}
	v := w.verify()
	for _, bad := range v.Violations {
		t.Error(bad)
	}
	if len(v.GivenUp) != 2 {
		t.Errorf("given up: %+v", v.GivenUp)
	}
}

// TestDropRefused: nothing is given up that can be read, or would be in part.
func TestDropRefused(t *testing.T) {
	w, s, chunks := sealed(t, 4, 1, 3)
	live := w.segments()[1]
	for name, c := range map[string]struct {
		id   topic.SegmentID
		drop repair.Drop
		want string
	}{
		"a chunk that can be read": {s.ID, of(chunks, 0, 0), "can be read"},
		"one between":              {s.ID, of(chunks, 1, 3), fmt.Sprintf("record %d can be read", chunks[2].Base)},
		"the end of a chunk":       {s.ID, repair.Drop{First: chunks[1].Base + 1, Last: chunks[1].End() - 1, Reason: "x"}, "what cannot be read is"},
		"the begin of a chunk":     {s.ID, repair.Drop{First: chunks[1].Base, Last: chunks[1].End() - 2, Reason: "x"}, "what cannot be read is"},
		"more than there is":       {s.ID, repair.Drop{First: chunks[3].Base, Last: chunks[3].End(), Reason: "x"}, "offsets end"},
		"upside down":              {s.ID, repair.Drop{First: 5, Last: 4, Reason: "x"}, "cannot be given up"},
		"without a reason":         {s.ID, repair.Drop{First: chunks[1].Base, Last: chunks[1].End() - 1}, "reason"},
		"with bytes as the reason": {s.ID, repair.Drop{First: chunks[1].Base, Last: chunks[1].End() - 1, Reason: "\xff"}, "reason"},
		"of a live segment":        {live.ID, repair.Drop{First: 0, Last: 0, Reason: "x"}, repair.ErrLive.Error()},
		"of no segment":            {"00000000-09-zzzzzzzz", repair.Drop{First: 0, Last: 0, Reason: "x"}, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := w.repairer(w.store).Drop(t.Context(), "orders", c.id, c.drop)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v, %v, want %q", report, err, c.want)
			}
			if _, err := s.Quarantine(t.Context()); !errors.Is(err, filer.ErrNotFound) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

// TestDropKeepsQuarantine: what the compactor says stays, and what others gave up, on a
// filer that loses replies.
func TestDropKeepsQuarantine(t *testing.T) {
	w, s, chunks := sealed(t, 5, 0, 1, 2, 3, 4)
	was := segment.Quarantine{Chunk: 1, Path: chunks[1].Entry.Path, First: chunks[1].Base, Last: chunks[1].End() - 1, Reason: "damaged"}
	if err := s.SetQuarantine(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	store := *w.store
	store.Filer = w.fs.Client("lossy", func(op memfs.Op) memfs.Fault {
		if op.Name == "Update" && calls.Add(1)%2 == 0 {
			return memfs.Fault{After: memfs.ErrLost}
		}
		return memfs.Fault{}
	})
	var all errgroup.Group
	for i := range chunks {
		all.Go(func() error {
			_, err := w.repairer(&store).Drop(t.Context(), "orders", s.ID, of(chunks, i, i))
			return err
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	q, err := s.Quarantine(t.Context())
	if err != nil || q.Reason != was.Reason || q.Chunk != was.Chunk || len(q.Drop) != len(chunks) {
		t.Fatalf("%+v, %v", q, err)
	}
	for i, d := range q.Drop {
		if d.First != chunks[i].Base {
			t.Errorf("%+v", q.Drop)
		}
	}
}

// TestTakenBack: what was given up and is mended after all is given up no more.
func TestTakenBack(t *testing.T) {
	w, s, chunks := sealed(t, 3, 0, 2)
	r := w.repairer(w.store)
	for _, i := range []int{0, 2} {
		if _, err := r.Drop(t.Context(), "orders", s.ID, of(chunks, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	report, err := r.FromLane(t.Context(), "orders", s.ID, false)
	if err != nil || report.Lost() > 0 || len(report.Dropped) > 0 {
		t.Fatalf("%+v, %v", report, err)
	}
	if q, err := s.Quarantine(t.Context()); err == nil && len(q.Drop) > 0 {
		t.Errorf("%+v", q)
	}
	w.sound()
	if v := w.verify(); len(v.GivenUp) > 0 {
		t.Errorf("%+v", v.GivenUp)
	}
}

// TestMissingEntries: records whose entries in the log are gone, or cannot be read, can
// be given up, also the first ones.
func TestMissingEntries(t *testing.T) {
	for _, gone := range [][]int{{0}, {1}, {1, 2}, {0, 1, 2, 3}} {
		w, s, chunks := sealed(t, 4)
		for _, i := range gone {
			if err := w.store.Filer.Delete(t.Context(), chunks[i].Entry.Path, ""); err != nil {
				t.Fatal(err)
			}
		}
		first, last := gone[0], gone[len(gone)-1]
		report, err := w.repairer(w.store).FromLane(t.Context(), "orders", s.ID, false)
		if err != nil || report.Lost() != 1 || report.Damaged[0].First != chunks[first].Base || report.Damaged[0].Last != chunks[last].End()-1 {
			t.Fatalf("%v: %+v, %v", gone, report, err)
		}
		report, err = w.repairer(w.store).Drop(t.Context(), "orders", s.ID, of(chunks, first, last))
		if err != nil || len(report.Dropped) != 1 || report.Lost() != 0 {
			t.Errorf("%v: %+v, %v", gone, report, err)
		}
	}
}
