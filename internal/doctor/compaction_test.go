package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// fakeTables say what a test wants of all tables.
type fakeTables struct {
	err   error
	asked []string
}

func (f *fakeTables) Look(_ context.Context, name, incarnation string) (bool, error) {
	f.asked = append(f.asked, name)
	if incarnation == "" {
		return false, errors.New("no incarnation")
	}
	return f.err == nil, f.err
}

// rolled is a topic with a sealed segment of two chunks.
func rolled(t *testing.T, store *segment.Store) (*segment.Topic, *segment.Segment) {
	t.Helper()
	top, err := store.CreateTopic(t.Context(), orders, 1, noon)
	if err != nil {
		t.Fatal(err)
	}
	segs, err := top.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= 2; seq++ {
		set := &record.Set{}
		r := record.Record{Time: noon, Position: topic.Position{Sequence: seq}, Value: []byte("value")}
		if err := set.Append(&r, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := segs[0].Append(t.Context(), segment.Input{
			Source: "lane.default.0.now", Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := top.Edit(t.Context(), noon, func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) }); err != nil {
		t.Fatal(err)
	}
	return top, segs[0]
}

// TestCompaction: what hinders a segment from becoming files, and what is wrong with
// files and tables, each by one line.
func TestCompaction(t *testing.T) {
	errForeign := errors.New("table spillway.orders was not made by Spillway")
	for name, c := range map[string]struct {
		tables *fakeTables
		with   func(w *compactionWorld)
		want   []Finding // Seen and Do are parts
	}{
		"not compacted, without a catalog": {want: []Finding{{Check: "compaction", Status: OK, Seen: "0 of 1 sealed segments"}}},
		"not compacted yet": {
			tables: &fakeTables{}, want: []Finding{{Check: "compaction", Status: OK, Seen: "0 of 1 sealed segments"}},
		},
		"not compacted for long": {
			tables: &fakeTables{}, with: func(w *compactionWorld) { w.now = w.now.Add(7 * time.Hour) },
			want: []Finding{{Check: "compaction", Status: Warn, Seen: "1 sealed segments are not compacted, the oldest for 7h", Do: "run compact"}},
		},
		"compacted": {
			tables: &fakeTables{}, with: func(w *compactionWorld) { w.compact() },
			want: []Finding{{Check: "compaction", Status: OK, Seen: "1 of 1 sealed segments"}},
		},
		"files beside": {
			with: func(w *compactionWorld) {
				w.compact()
				w.put(w.seg.DataPath("other.parquet"), "1234")
			},
			want: []Finding{{Check: "compaction", Status: Warn, Seen: "1 files with 4 bytes", Do: "next sweep"}},
		},
		"in quarantine": {
			with: func(w *compactionWorld) {
				w.ok(w.fs.Corrupt(strings.Replace(w.seg.DataPath("0000000000000001.avro"), "/data/", "/segments/", 1)))
				w.compact()
			},
			want: []Finding{{Check: "compaction", Status: Fail, Seen: "digest", Do: "--drop 1-1 --reason"}},
		},
		"given up": {
			with: func(w *compactionWorld) {
				w.ok(w.seg.SetQuarantine(w.Context(), segment.Quarantine{Chunk: 1, First: 1, Last: 1, Reason: "digest", Drop: []segment.DroppedRange{{First: 0, Last: 1, Reason: "x"}}}))
			},
			want: []Finding{{Check: "compaction", Status: OK, Seen: "0 of 1"}},
		},
		"a table of somebody else": {
			tables: &fakeTables{err: errForeign},
			want: []Finding{
				{Check: "table", Status: Fail, Seen: "not made by Spillway", Do: "COMPACTION"},
				{Check: "compaction", Status: OK, Seen: "0 of 1"},
			},
		},
		"a silent catalog": {
			tables: &fakeTables{err: fmt.Errorf("%w: refused", ErrAway)},
			want: []Finding{
				{Check: "table", Status: Fail, Seen: "refused", Away: true},
				{Check: "compaction", Status: OK, Seen: "0 of 1"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fs := memfs.New()
			w := &compactionWorld{T: t, fs: fs, store: segment.NewStore(fs.Client("c", nil), "test"), now: time.Now().Add(time.Minute)}
			_, w.seg = rolled(t, w.store)
			if c.with != nil {
				c.with(w)
			}
			var tables Tables
			if c.tables != nil {
				tables = c.tables
			}
			got := compacted(t.Context(), w.store, tables, w.now)
			if len(got) != len(c.want) {
				t.Fatalf("%+v", got)
			}
			for i, f := range got {
				want := c.want[i]
				if f.Check != want.Check || f.Status != want.Status || f.Away != want.Away || !strings.Contains(f.Seen, want.Seen) || !strings.Contains(f.Do, want.Do) {
					t.Errorf("%+v, want %+v", f, want)
				}
			}
		})
	}
}

type compactionWorld struct {
	*testing.T
	fs    *memfs.FS
	store *segment.Store
	seg   *segment.Segment
	now   time.Time
}

func (w *compactionWorld) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *compactionWorld) compact() {
	w.Helper()
	_, err := compactor.New(compactor.Options{Store: w.store, Holder: "test"}).Topic(w.Context(), w.Context(), "orders")
	w.ok(err)
}

func (w *compactionWorld) put(path, content string) {
	w.Helper()
	w.ok(w.store.Filer.Create(w.Context(), path, filer.File{ID: filer.NewID(), Attrs: filer.Attrs{}, Content: []byte(content)}))
}

// COMPACTION and ADR 0025 say that doctor finds a data file that is gone.
func TestDataFileGone(t *testing.T) {
	fs := memfs.New()
	w := &compactionWorld{T: t, fs: fs, store: segment.NewStore(fs.Client("c", nil), "test"), now: time.Now().Add(time.Minute)}
	_, w.seg = rolled(t, w.store)
	w.compact()
	m, err := w.seg.Manifest(t.Context())
	w.ok(err)
	w.ok(w.seg.Trim(t.Context(), m.Seal))
	for _, f := range m.Files {
		w.ok(w.store.Filer.Delete(t.Context(), w.seg.DataPath(f.Name), ""))
	}
	for _, f := range compacted(t.Context(), w.store, nil, w.now) {
		t.Logf("%+v", f)
		if f.Status == OK {
			t.Error("doctor finds nothing wrong with a segment whose records are gone")
		}
	}
}
