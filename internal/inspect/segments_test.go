package inspect

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		if got := w.look(Options{Live: true}, 0); len(got) != 1 || got[0].Records != 0 || got[0].Bytes != 0 || got[0].State != StateLive || got[0].First != nil {
			t.Fatalf("of a new topic: %+v", got)
		}
		for i := range 200 { // one record a second, in a chunk each, that lay in its lane for an hour
			w.wait(i)
			w.append("lane", rec{uint64(i + 1), 0, 7, i - 3600})
		}
		s := w.look(Options{Live: true}, 200)[0]
		if s.Records != 200 || s.Chunks != 200 || s.Next != 200 || s.Oldest != 0 {
			t.Errorf("%+v", s)
		}
		if !s.First.Equal(noon.Add(-3600*time.Second)) || !s.Last.Equal(noon.Add(-3401*time.Second)) {
			t.Errorf("first %s, last %s", s.First, s.Last)
		}
		_, bytes := w.sizes()
		if s.Bytes != bytes[0] || s.Bytes < 200*100 {
			t.Errorf("%d bytes, want %d", s.Bytes, bytes[0])
		}
		// The window holds the seconds 140 to 199.
		if s.RecordRate != 1 || s.ByteRate != float64(bytes[140])/60 {
			t.Errorf("%v records/s, %v bytes/s", s.RecordRate, s.ByteRate)
		}
		if idle := w.look(Options{Live: true}, 1000)[0]; idle.RecordRate != 0 || idle.ByteRate != 0 || idle.Records != 200 || idle.Bytes != s.Bytes {
			t.Errorf("idle: %+v", idle)
		}
		if short := w.look(Options{Live: true, Window: 4 * time.Second}, 200)[0]; short.RecordRate != 1 {
			t.Errorf("over 4 s: %v records/s", short.RecordRate)
		}
		if all := w.look(Options{Live: true, Window: time.Hour}, 400)[0]; all.RecordRate != 0.5 || all.ByteRate != float64(bytes[0])/400 {
			t.Errorf("over all its life: %v records/s, %v bytes/s", all.RecordRate, all.ByteRate)
		}
		w.trim(150)
		s = w.look(Options{Live: true}, 200)[0]
		if s.Records != 50 || s.Chunks != 50 || s.Oldest != 150 || !s.First.Equal(noon.Add(-3450*time.Second)) || s.RecordRate != 50.0/60 {
			t.Errorf("trimmed: %+v", s)
		}
		if s.Bytes != bytes[150] || s.ByteRate != float64(bytes[150])/60 {
			t.Errorf("trimmed: %d bytes, %v/s; want %d", s.Bytes, s.ByteRate, bytes[150])
		}
	})
}

// TestSealedTail: the seal is none of what a segment holds, but it counts on.
func TestSealedTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		for i := range 20 {
			w.wait(i)
			w.append("lane", rec{uint64(i + 1), 0, 7, i})
		}
		_, bytes := w.sizes()
		w.wait(30)
		w.edit(func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
		s := w.look(Options{Sealed: true, Window: 20 * time.Second}, 30)[0]
		if s.Records != 20 || s.Chunks != 20 || s.Bytes != bytes[0] || !s.Last.Equal(noon.Add(19*time.Second)) {
			t.Errorf("%+v", s)
		}
		if s.RecordRate != 0.5 || s.ByteRate != float64(bytes[10])/20 {
			t.Errorf("%v records/s, %v bytes/s", s.RecordRate, s.ByteRate)
		}
		if s := w.look(Options{Sealed: true, Window: 5 * time.Second}, 33)[0]; s.RecordRate != 0 || s.ByteRate != 0 {
			t.Errorf("only the seal lies in the window: %v records/s, %v bytes/s", s.RecordRate, s.ByteRate)
		}
	})
}

// TestCountsAddUp: over any window and after any trim, records and bytes are what
// adding up the chunks gives.
func TestCountsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		rnd := rand.New(rand.NewPCG(1, 2))
		var at []int
		seq := uint64(0)
		for now := 0; len(at) < 50; now += rnd.IntN(4) {
			w.wait(now)
			at = append(at, now)
			var recs []rec
			for range 1 + rnd.IntN(5) {
				seq++
				recs = append(recs, rec{seq, 0, topic.Slot(rnd.Uint32()), now})
			}
			w.append("lane", recs...)
		}
		records, bytes := w.sizes()
		end := at[len(at)-1] + 1
		for kept := 0; kept < len(at); kept += 7 {
			if kept > 0 {
				w.trim(uint64(kept))
			}
			for window := 1; window <= end; window++ {
				first := kept
				for first < len(at) && at[first] < end-window {
					first++
				}
				s := w.look(Options{Live: true, Window: time.Duration(window) * time.Second}, end)[0]
				if s.Records != records[kept] || s.Bytes != bytes[kept] {
					t.Fatalf("%d chunks trimmed: %d records, %d bytes; want %d, %d", kept, s.Records, s.Bytes, records[kept], bytes[kept])
				}
				length := float64(window)
				if s.RecordRate != float64(records[first])/length || s.ByteRate != float64(bytes[first])/length {
					t.Fatalf("%d chunks trimmed, %d s: %v records/s, %v bytes/s; want %d, %d in all",
						kept, window, s.RecordRate, s.ByteRate, records[first], bytes[first])
				}
			}
		}
	})
}

// wait sleeps, in a bubble, until so many seconds after noon.
func (w *world) wait(seconds int) {
	time.Sleep(time.Until(noon.Add(time.Duration(seconds) * time.Second)))
	synctest.Wait() // panics outside of a bubble: no test waits in real time
}

// sizes adds up the records and bytes of the first segment's chunks from each on.
func (w *world) sizes() (records, bytes []uint64) {
	w.t.Helper()
	s, err := w.Segment(w.t.Context(), w.live("slot:0").ID)
	w.check(err)
	for c, err := range s.Chunks(w.t.Context(), 0) {
		w.check(err)
		records, bytes = append(records, 0), append(bytes, 0)
		for i := range records {
			records[i] += c.Count
			bytes[i] += c.Bytes
		}
	}
	return append(records, 0), append(bytes, 0)
}

func (w *world) trim(n uint64) {
	w.t.Helper()
	s, err := w.Segment(w.t.Context(), w.live("slot:0").ID)
	w.check(err)
	w.check(s.Trim(w.t.Context(), n))
}

// TestSealedSegments: what --all, --sealed and a pending edit show.
func TestSealedSegments(t *testing.T) { synctest.Test(t, testSealedSegments) }

func testSealedSegments(t *testing.T) {
	w := newWorld(t, 1)
	w.wait(5)
	w.append("lane", rec{1, 0, 1, 5}, rec{2, 0, 60000, 5})
	w.edit(splitFirst)
	w.wait(10)
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
func TestLookingIsCheap(t *testing.T) { synctest.Test(t, testLookingIsCheap) }

func testLookingIsCheap(t *testing.T) {
	w := newWorld(t, 1)
	const chunks = 1000
	for i := range chunks {
		w.wait(i)
		w.append("lane", rec{uint64(i + 1), 0, topic.Slot(i), i})
	}
	calls := 0
	store := segment.NewStore(w.fs.Client("d", func(memfs.Op) memfs.Fault { calls++; return memfs.Fault{} }), "test")
	top, err := Open(t.Context(), store, "orders")
	w.check(err)
	for seconds, most := range map[int]int{chunks: 60, 10 * chunks: 40} { // busy, and idle since long
		calls = 0
		_, err = top.Segments(t.Context(), Options{Live: true, Window: time.Minute, Now: noon.Add(time.Duration(seconds) * time.Second)})
		w.check(err)
		t.Logf("%d calls for %d chunks, %d s after noon", calls, chunks, seconds)
		if calls > most {
			t.Errorf("more than %d", most)
		}
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
