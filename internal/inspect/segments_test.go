package inspect

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// look asks for segments as of so many seconds after noon.
func (w *world) look(o Options, seconds int) []Segment {
	w.t.Helper()
	if o.Window == 0 {
		o.Window = time.Minute
	}
	o.Now = noon.Add(time.Duration(seconds) * time.Second)
	r, err := w.Segments(w.t.Context(), o)
	w.check(err)
	return r.Segments
}

// TestSegments: what is kept, trimmed, taken in lately, and where it came from.
func TestSegments(t *testing.T) {
	w := newWorld(t, 1)
	if got := w.look(Options{Live: true}, 0); len(got) != 1 || got[0].Records != 0 || got[0].State != StateLive || got[0].First != nil || !got[0].Exact {
		t.Fatalf("of a new topic: %+v", got)
	}
	for i := range 200 { // one record a second, in a chunk each
		w.append("lane", rec{uint64(i + 1), 0, 7, i})
	}
	s := w.look(Options{Live: true}, 200)[0]
	if s.Records != 200 || s.Chunks != 200 || s.Next != 200 || s.Oldest != 0 || s.Exact {
		t.Errorf("%+v", s)
	}
	if !s.First.Equal(noon) || !s.Last.Equal(noon.Add(199*time.Second)) {
		t.Errorf("first %s, last %s", s.First, s.Last)
	}
	// The window holds the seconds 140 to 199.
	if s.RecordRate != 1 {
		t.Errorf("%v records/s", s.RecordRate)
	}
	exact := w.look(Options{Live: true, Exact: true}, 200)[0]
	if !exact.Exact || exact.Bytes < 200*100 || math.Abs(float64(exact.Bytes)-float64(s.Bytes)) > 0.01*float64(exact.Bytes) {
		t.Errorf("%d bytes exactly, %d estimated", exact.Bytes, s.Bytes)
	}
	if exact.RecordRate != 1 || math.Abs(exact.ByteRate-s.ByteRate) > 1 || math.Abs(s.ByteRate-float64(exact.Bytes)/200) > 2 {
		t.Errorf("rates %v %v exactly, %v %v otherwise", exact.RecordRate, exact.ByteRate, s.RecordRate, s.ByteRate)
	}
	if idle := w.look(Options{Live: true}, 1000)[0]; idle.RecordRate != 0 || idle.ByteRate != 0 || idle.Records != 200 {
		t.Errorf("idle: %+v", idle)
	}
	if short := w.look(Options{Live: true, Window: 4 * time.Second}, 200)[0]; short.RecordRate != 1 {
		t.Errorf("over 4 s: %v records/s", short.RecordRate)
	}
	w.trim(150)
	s = w.look(Options{Live: true}, 200)[0]
	if s.Records != 50 || s.Chunks != 50 || s.Oldest != 150 || !s.First.Equal(noon.Add(150*time.Second)) || s.RecordRate != 50.0/60 {
		t.Errorf("trimmed: %+v", s)
	}
}

func (w *world) trim(n uint64) {
	w.t.Helper()
	s, err := w.Segment(w.t.Context(), w.live("slot:0").ID)
	w.check(err)
	w.check(s.Trim(w.t.Context(), n))
}

// TestSealedSegments: what --all, --sealed and a pending edit show.
func TestSealedSegments(t *testing.T) {
	w := newWorld(t, 1)
	w.append("lane", rec{1, 0, 1, 5}, rec{2, 0, 60000, 5})
	w.edit(splitFirst)
	w.append("lane", rec{3, 0, 60000, 10})
	live, all, sealed := w.look(Options{Live: true}, 20), w.look(Options{Live: true, Sealed: true}, 20), w.look(Options{Sealed: true}, 20)
	if len(live) != 2 || len(all) != 3 || len(sealed) != 1 {
		t.Fatalf("%d live, %d in all, %d sealed", len(live), len(all), len(sealed))
	}
	root := sealed[0]
	if root.State != StateSealed || root.Records != 2 || root.Chunks != 1 || len(root.Children) != 2 || !root.Last.Equal(noon.Add(5*time.Second)) {
		t.Errorf("sealed: %+v", root)
	}
	if live[0].Epoch != 2 || live[0].Parents[0] != root.ID || live[0].Records != 0 || live[1].Records != 1 || live[0].Share() != 0.5 {
		t.Errorf("live: %+v", live)
	}
	// Made 20 s ago at most: the rate is over that.
	if live[1].RecordRate <= 1.0/60 {
		t.Errorf("%v records/s in a segment that is 15 s old", live[1].RecordRate)
	}
	// An edit that stops after its intent.
	store := segment.NewStore(w.fs.Client("d", func(op memfs.Op) memfs.Fault {
		if op.Name == "Create" && strings.HasSuffix(op.Path, ".avro") {
			return memfs.Fault{Before: filer.ErrInvalid}
		}
		return memfs.Fault{}
	}), "test")
	top, err := store.Topic(t.Context(), "orders")
	w.check(err)
	if _, err := top.Edit(t.Context(), noon, splitFirst); err == nil {
		t.Fatal("the edit was finished without its seal")
	}
	report, err := w.Segments(t.Context(), Options{Live: true, Window: time.Minute, Now: noon})
	w.check(err)
	if !report.Layout.Pending || report.Segments[0].State != StateSealing || report.Segments[1].State != StateLive {
		t.Errorf("pending %v: %+v", report.Layout.Pending, report.Segments)
	}
	w.edit(mergeAll)
	if got := w.look(Options{Live: true}, 30); len(got) != 1 || len(got[0].Parents) != 3 {
		t.Errorf("after a merge: %+v", got)
	}
}

// TestLookingIsCheap: a live segment takes few calls, however many chunks it has.
func TestLookingIsCheap(t *testing.T) {
	w := newWorld(t, 1)
	const chunks = 500
	for i := range chunks {
		w.append("lane", rec{uint64(i + 1), 0, topic.Slot(i), i})
	}
	calls := 0
	store := segment.NewStore(w.fs.Client("d", func(memfs.Op) memfs.Fault { calls++; return memfs.Fault{} }), "test")
	top, err := Open(t.Context(), store, "orders")
	w.check(err)
	calls = 0
	_, err = top.Segments(t.Context(), Options{Live: true, Window: time.Second, Now: noon.Add(time.Hour)})
	w.check(err)
	t.Logf("%d calls for %d chunks", calls, chunks)
	if calls > 40 {
		t.Errorf("%d calls for an idle segment of %d chunks", calls, chunks)
	}
}

// TestDeletedMeanwhile: a topic that goes while it is looked at is told as such.
func TestDeletedMeanwhile(t *testing.T) {
	w := newWorld(t, 2)
	w.append("lane", rec{1, 0, 7, 0})
	remove := func() { w.check(w.store.DeleteTopic(t.Context(), "orders", noon)) }
	looks := map[string]func() error{
		"segments": func() error {
			_, err := w.Segments(t.Context(), Options{Live: true, Sealed: true, Window: time.Minute, Now: noon})
			return err
		},
		"find": func() error { _, err := w.Find(t.Context(), "lane", AllRows(1)); return err },
	}
	for name, look := range looks {
		w.check(look())
		remove()
		if err := look(); !errors.Is(err, segment.ErrNoTopic) {
			t.Errorf("%s of a topic that is gone: %v", name, err)
		}
		old := w.Topic
		w.create("orders", 1)
		fresh := w.Topic
		w.Topic = old
		if err := look(); !errors.Is(err, segment.ErrNoTopic) {
			t.Errorf("%s of a topic that was made again: %v", name, err)
		}
		w.Topic = fresh
		w.append("lane", rec{1, 0, 7, 0})
	}
}
