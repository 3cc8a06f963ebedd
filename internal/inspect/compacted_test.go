package inspect

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// compact has all sealed segments compacted, their chunks deleted after grace.
func (w *world) compact(t *testing.T, grace time.Duration) {
	t.Helper()
	_, err := compactor.New(compactor.Options{Store: w.store, Holder: "test", FileBytes: 1, Grace: grace}).Topic(t.Context(), t.Context(), w.Name)
	if err != nil {
		t.Fatal(err)
	}
}

// TestFindCompacted: every record is found where a reader finds it, in the file that has
// it, whether its segment is compacted or not, and its chunks are gone or not.
func TestFindCompacted(t *testing.T) {
	for name, grace := range map[string]time.Duration{"chunks are there": time.Hour, "chunks are gone": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			for seq := uint64(1); seq <= 12; seq++ {
				w.append("lane", rec{seq, 0, 100, int(seq)}, rec{seq, 1, 40000, int(seq)}, rec{seq, 2, 100, int(seq)})
				w.append("other", rec{seq, 0, 100, int(seq)})
				switch seq {
				case 4:
					w.edit(mergeAll)
				case 8:
					w.edit(splitFirst)
				}
			}
			w.compact(t, grace)
			seen, files := 0, 0
			r, err := w.Read(t.Context(), nil)
			w.check(err)
			for item, err := range r.Next(t.Context()) {
				w.check(err)
				seen++
				f, err := w.Find(t.Context(), item.Source, OneRow(item.Position))
				if err != nil || len(f.Places) != 1 || f.Trimmed != nil {
					t.Fatalf("%s at %s:%d: %+v, %v", item.Position, item.Segment, item.Offset, f, err)
				}
				p := f.Places[0]
				if p.Segment != item.Segment || p.Offset != item.Offset || !p.Time.Equal(item.Time) {
					t.Errorf("%s: %+v", item.Position, p)
				}
				if in := strings.HasSuffix(p.File, ".parquet"); in {
					files++
					if p.Chunk.Entry.ID != "" {
						t.Errorf("%s is in %s and in chunk %s", item.Position, p.File, p.Chunk.Entry.Path)
					}
				}
			}
			if seen != 48 || (files > 0) != (grace == 0) {
				t.Errorf("%d records, %d in data files", seen, files)
			}
			for _, rows := range []Rows{AllRows(13), OneRow(topic.Position{Sequence: 3, Row: 3})} {
				if f, err := w.Find(t.Context(), "lane", rows); err != nil || f.Places != nil || f.Trimmed != nil {
					t.Errorf("%+v: %+v, %v", rows, f, err)
				}
			}
		})
	}
}

// TestFindDamaged: a chunk that cannot be read stands in nobody's way once its segment is
// compacted.
func TestFindDamaged(t *testing.T) {
	w := newWorld(t, 1)
	w.append("lane", rec{1, 0, 7, 1}, rec{2, 0, 7, 2})
	w.append("lane", rec{3, 0, 7, 3})
	w.edit(splitFirst)
	w.compact(t, time.Hour)
	for _, p := range w.fs.Paths() {
		if strings.HasSuffix(p, "0000000000000000.avro") {
			w.check(w.fs.Corrupt(p))
		}
	}
	f, err := w.Find(t.Context(), "lane", AllRows(2))
	if err != nil || len(f.Places) != 1 || f.Places[0].Offset != 1 || !strings.HasSuffix(f.Places[0].File, ".parquet") {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestSegmentsCompacted: a compacted segment has all its records, and its files.
func TestSegmentsCompacted(t *testing.T) {
	w := newWorld(t, 1)
	for seq := uint64(1); seq <= 8; seq++ {
		w.append("lane", rec{seq, 0, 100, int(seq)}, rec{seq, 1, 40000, int(seq)})
	}
	w.edit(splitFirst)
	o := Options{Live: true, Sealed: true, Window: time.Minute, Now: time.Now()}
	before, err := w.Segments(t.Context(), o)
	w.check(err)
	w.compact(t, 0)
	after, err := w.Segments(t.Context(), o)
	w.check(err)
	was, is := before.Segments[0], after.Segments[0]
	if is.Data == nil || is.Data.Files == 0 || is.Data.Bytes == 0 || is.Data.Rows != 16 || is.Data.Records != 16 || is.Data.Created.IsZero() || is.Data.Table != "" {
		t.Fatalf("%+v", is.Data)
	}
	if is.Chunks != 0 || is.Records != was.Records || is.Bytes != was.Bytes || is.Oldest != 0 || is.Next != was.Next || is.State != StateSealed ||
		is.First == nil || !is.First.Equal(*was.First) || !is.Last.Equal(*was.Last) {
		t.Errorf("%+v, before %+v", is, was)
	}
	for _, s := range after.Segments[1:] {
		if s.Data != nil {
			t.Errorf("live: %+v", s.Data)
		}
	}
}

// TestHistoryCompacted: the picture of a topic keeps the load of segments whose chunks
// are gone.
func TestHistoryCompacted(t *testing.T) {
	w := newWorld(t, 1)
	for seq := uint64(1); seq <= 20; seq++ {
		w.append("lane", rec{seq, 0, 100, int(seq)})
	}
	w.edit(splitFirst)
	total := func() (bytes, records float64) {
		_, p, err := w.History(t.Context(), time.Now().UTC(), nil)
		w.check(err)
		return integral(p.Load, p.Now)
	}
	b1, r1 := total()
	w.compact(t, 0)
	b2, r2 := total()
	if r1 < 15 || r2 < 0.9*r1 || r2 > 1.1*r1 || b2 < 0.9*b1 || b2 > 1.1*b1 {
		t.Errorf("%.1f records and %.0f bytes, before %.1f and %.0f", r2, b2, r1, b1)
	}
}

// TestCompactedMeanwhile: a segment is compacted at each call of a search.
func TestCompactedMeanwhile(t *testing.T) {
	calls := 0
	for n := 0; n <= calls; n++ {
		w := newWorld(t, 1)
		w.store.Inline = 0
		for seq := uint64(1); seq <= 9; seq++ {
			w.append("lane", rec{seq, 0, 7, int(seq)})
		}
		w.edit(splitFirst)
		calls = 0
		store := segment.NewStore(w.fs.Client("reader", func(memfs.Op) memfs.Fault {
			if calls++; calls == n+1 {
				w.compact(t, 0)
			}
			return memfs.Fault{}
		}), "test")
		top, err := Open(t.Context(), store, w.Name)
		w.check(err)
		f, err := top.Find(t.Context(), "lane", AllRows(4))
		if err != nil || len(f.Places) != 1 || f.Places[0].Offset != 3 || f.Trimmed != nil {
			t.Errorf("at call %d: %+v, %v", n, f, err)
		}
	}
	if calls < 10 {
		t.Error(errors.New("few calls"))
	}
}
