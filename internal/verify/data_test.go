package verify

import (
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/segment"
)

// TestCompactedSound: a segment may be compacted, and its chunks go, at any time.
func TestCompactedSound(t *testing.T) {
	for name, c := range map[string]struct {
		keep int // chunks
		with func(f *fixture, p *packed)
		want Report
	}{
		"all chunks are gone": {want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2}},
		"all chunks are there": {
			keep: 2, with: func(f *fixture, _ *packed) { f.segs[0].first = 0 },
			want: Report{Records: 82, Chunks: 10, Compacted: 1, DataFiles: 2},
		},
		"some chunks are gone": {keep: 1, want: Report{Records: 82, Chunks: 9, Compacted: 1, DataFiles: 2}},
		"with the lanes": {
			with: func(f *fixture, _ *packed) { f.feed() }, want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2},
		},
		"many small files": {
			keep: 1, with: func(f *fixture, p *packed) { p.perFile = 1 },
			want: Report{Records: 82, Chunks: 9, Compacted: 1, DataFiles: 16},
		},
		"rows of batches": {
			with: func(_ *fixture, p *packed) {
				p.rows = func(t testing.TB, rows []parquet.Row) []parquet.Row { return batched(t, rows, 0, 1, 2, 3) }
			},
			want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2},
		},
		"in the table": {
			with: tableOf(`{"table":"spillway.flights","uuid":"u-1"}`),
			want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2, InTable: 1, TableRows: 16},
		},
		"in the table, and nobody noted it yet": {
			with: tableOf(""), want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2, InTable: 1, TableRows: 16},
		},
		"the table was dropped and made again": {
			with: func(f *fixture, p *packed) {
				tableOf(`{"table":"spillway.flights","uuid":"u-0"}`)(f, p)
				p.manifest = func(map[string]any) { f.table.files = nil }
			},
			want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2},
		},
		"others have rewritten the table": {
			with: func(f *fixture, p *packed) {
				tableOf(`{"table":"spillway.flights","uuid":"u-1"}`)(f, p)
				p.manifest = func(map[string]any) { f.table.files = []TableFile{{URL: "s3://warehouse/x/data/1.parquet", Rows: 16}} }
			},
			want: Report{Records: 82, Chunks: 8, Compacted: 1, DataFiles: 2, TableRows: 16},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newCompacted(c.keep)
			if c.with != nil {
				c.with(f, f.segs[0].data)
			}
			f.write(t)
			r := f.verify(t)
			for _, v := range r.Violations {
				t.Error(v)
			}
			got := Report{
				Records: r.Records, Chunks: r.Chunks, Compacted: r.Compacted, DataFiles: r.DataFiles, InTable: r.InTable, TableRows: r.TableRows,
			}
			if got.Records != c.want.Records || got.Chunks != c.want.Chunks || got.DataFiles != c.want.DataFiles ||
				got.Compacted != c.want.Compacted || got.InTable != c.want.InTable || got.TableRows != c.want.TableRows {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if plain := newFixture(); c.keep == 0 {
				plain.write(t)
				if want := plain.verify(t).Bytes; r.Bytes != want {
					t.Errorf("%d bytes, without compaction %d", r.Bytes, want)
				}
			}
		})
	}
}

// tableOf gives the fixture a table that has the segment.
func tableOf(note string) func(f *fixture, p *packed) {
	return func(f *fixture, p *packed) { f.table, p.note = &fakeTable{uuid: "u-1"}, note }
}

// TestLostData: a record less than the segment had is seen by its end, and by what was
// last of a source.
func TestLostData(t *testing.T) {
	f := newCompacted(0)
	f.feed()
	f.segs[0].data.rows = func(_ testing.TB, rows []parquet.Row) []parquet.Row { return rows[:len(rows)-1] }
	f.segs[0].data.manifest = func(m map[string]any) { m["end"] = m["end"].(int) - 1 }
	f.write(t)
	want := []Kind{"manifest.seal", "data.positions"}
	if got := found(f.verify(t)); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("found %v, want %v", got, want)
	}
}

// TestGivenUp: what an operator gave up is told, and is no violation, before the segment
// is compacted and after; nor is it one that it is missing.
func TestGivenUp(t *testing.T) {
	quarantine := func(t testing.TB, f *fixture, first, last int) {
		f.put(t, seg0+"/quarantine.json", "q", filer.Attrs{}, []byte(strings.NewReplacer("F", strconv.Itoa(first), "L", strconv.Itoa(last)).Replace(
			`{"chunk":1,"path":"x","first":F,"last":L,"reason":"damaged","at":"2026-03-01T12:00:00Z","drop":[{"first":F,"last":L,"reason":"lost"}]}`)), false)
	}
	t.Run("before", func(t *testing.T) {
		f := newFixture()
		f.feed()
		f.write(t)
		if err := f.fs.Corrupt(at(seg0, 1)); err != nil {
			t.Fatal(err)
		}
		if r := f.verify(t); r.OK {
			t.Fatal("the damage is not seen")
		}
		quarantine(t, f, 9, 15)
		checkGivenUp(t, f.verify(t), 75)
	})
	t.Run("after", func(t *testing.T) {
		for _, keep := range []int{0, 2} {
			f := newCompacted(keep)
			f.feed()
			f.segs[0].first = max(f.segs[0].first, 0)
			f.segs[0].data.dropped = [][2]uint64{{9, 15}}
			f.write(t)
			if keep > 0 {
				if err := f.fs.Corrupt(at(seg0, 1)); err != nil {
					t.Fatal(err)
				}
			}
			checkGivenUp(t, f.verify(t), 75)
		}
	})
}

func checkGivenUp(t *testing.T, r Report, records uint64) {
	t.Helper()
	for _, v := range r.Violations {
		t.Error(v)
	}
	if len(r.GivenUp) != 1 || r.GivenUp[0].First != 9 || r.GivenUp[0].Last != 15 || r.GivenUp[0].Reason != "lost" || r.Records != records {
		t.Errorf("%d records, given up %+v", r.Records, r.GivenUp)
	}
}

// TestCompactedMeanwhile: a segment is compacted and its chunks deleted at each call of
// a verification.
func TestCompactedMeanwhile(t *testing.T) {
	calls := 0
	for n := 0; n <= calls; n++ {
		f := newFixture()
		f.segs[0].chunks[0].blob, f.segs[0].chunks[1].blob = true, true
		f.write(t)
		calls = 0
		store := segment.NewStore(f.fs.Client("verify", func(memfs.Op) memfs.Fault {
			if calls++; calls == n+1 {
				f.becomeCompacted(t)
			}
			return memfs.Fault{}
		}), "test")
		r, err := Topic(t.Context(), store, nil, "flights")
		if err != nil {
			t.Fatalf("at call %d: %v", n, err)
		}
		for _, v := range r.Violations {
			t.Errorf("at call %d: %s", n, v)
		}
		if r.Records != 82 {
			t.Errorf("at call %d: %d records", n, r.Records)
		}
	}
	if calls < 20 {
		t.Errorf("%d calls only", calls)
	}
}

// becomeCompacted compacts the first segment of a fixture that is written.
func (f *fixture) becomeCompacted(t testing.TB) {
	s := f.segs[0]
	s.data = &packed{perFile: 9}
	f.writeData(t, s)
	replaced(s.dir()+"/head", func(file *filer.File) { file.Attrs["Head"] = "2" })(t, f)
	remove(s.path(0))(t, f)
	remove(s.path(1))(t, f)
}
