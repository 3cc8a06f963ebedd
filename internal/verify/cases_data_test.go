package verify

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
)

// compactedWith is a fixture whose first segment is compacted, all its chunks gone but
// for some, with a change of what is written.
func compactedWith(keep int, change func(f *fixture, p *packed)) func(*fixture) {
	return func(f *fixture) {
		f.compact(keep)
		change(f, f.segs[0].data)
	}
}

// stated changes what the manifest says.
func stated(name string, value any) func(*fixture) {
	return compactedWith(0, func(_ *fixture, p *packed) { p.manifest = func(m map[string]any) { m[name] = value } })
}

// file changes what the manifest says of its second file.
func statedOf(name string, value any) func(*fixture) {
	return compactedWith(0, func(_ *fixture, p *packed) {
		p.manifest = func(m map[string]any) { m["files"].([]any)[1].(map[string]any)[name] = value }
	})
}

// rowsAs changes the rows before they are written.
func rowsAs(keep int, change func(t testing.TB, rows []parquet.Row) []parquet.Row) func(*fixture) {
	return compactedWith(keep, func(_ *fixture, p *packed) { p.rows = change })
}

// dataFiles are the paths of the first segment's data files.
func dataFiles(t testing.TB, f *fixture) []string {
	t.Helper()
	list, err := f.client.List(t.Context(), strings.TrimSuffix(f.segs[0].dataPath(""), "/"), "", 0)
	if err != nil || len(list) < 2 {
		t.Fatalf("%d data files, %v", len(list), err)
	}
	var paths []string
	for _, e := range list {
		paths = append(paths, e.Path)
	}
	return paths
}

// onFile applies a change to the second data file.
func onFile(change func(path string) func(testing.TB, *fixture)) func(testing.TB, *fixture) {
	return func(t testing.TB, f *fixture) { change(dataFiles(t, f)[1])(t, f) }
}

func manifestFaults() []fault {
	manifest := seg0 + "/manifest.json"
	plain := compactedWith(0, func(*fixture, *packed) {})
	return []fault{
		{"the manifest is no JSON", one("manifest.file"), plain, text(manifest, "{")},
		{"the manifest has other bytes than it had", one("manifest.file"), plain, replaced(manifest, func(file *filer.File) {
			file.Content = append(slices.Clone(file.Content), '\n')
		})},
		{"the manifest is of a later format", one("manifest.file"), stated("format", 2), nil},
		{"the manifest is of another segment", one("manifest.file"), stated("segment", "00000000-01-bbbbbbbb"), nil},
		{"the manifest names another seal", one("manifest.seal"), stated("seal", 9), nil},
		{"the manifest of a segment that is not sealed", []Kind{"manifest.seal", "seal.missing"}, compactedWith(0, func(f *fixture, p *packed) {
			f.segs[0].chunks, f.segs[0].first = f.segs[0].chunks[:2], 0
		}), nil},
		{"the manifest gives up what is in a file", one("manifest.ranges"), stated("dropped", []any{map[string]any{"first": 3, "last": 4, "reason": "x"}}), nil},
		{"the manifest leaves a file out", []Kind{"manifest.ranges", "manifest.sums", "data.positions"}, compactedWith(0, func(_ *fixture, p *packed) {
			p.manifest = func(m map[string]any) { m["files"] = slices.Delete(m["files"].([]any), 1, 2) }
		}), nil},
		{"the manifest ends early", []Kind{"manifest.seal", "manifest.ranges"}, compactedWith(0, func(_ *fixture, p *packed) {
			p.manifest = func(m map[string]any) { m["end"] = m["end"].(int) - 1 }
		}), nil},
		{"the manifest counts other rows", one("manifest.sums"), stated("rows", 1), nil},
		{"the manifest counts other records", one("manifest.sums"), stated("records", 1), nil},
		{"the manifest counts other bytes", one("manifest.sums"), compactedWith(9, func(f *fixture, p *packed) {
			f.segs[0].first = 0
			p.manifest = func(m map[string]any) { m["bytes"] = 1 }
		}), nil},
	}
}

func dataFaults() []fault {
	plain := compactedWith(0, func(*fixture, *packed) {})
	return []fault{
		{"a data file is gone", one("data.lost"), plain, onFile(remove)},
		{"a data file is longer", one("data.lost"), plain, onFile(func(path string) func(testing.TB, *fixture) {
			return replaced(path, func(file *filer.File) { file.Blobs, file.Content = nil, []byte("short") })
		})},
		{"a data file has another digest", one("data.digest"), compactedWith(0, func(_ *fixture, p *packed) {
			p.manifest = func(m map[string]any) {
				file := m["files"].([]any)[1].(map[string]any)
				file["digest"] = file["digest"].(string)[:64] + "0000000"
			}
		}), nil},
		{"a data file is damaged", one("data.digest"), plain, onFile(corrupt)},
		{"a data file is none", one("data.decode"), compactedWith(0, func(_ *fixture, p *packed) {
			p.bytes = func(data []byte) []byte { return []byte(strings.Repeat("x", len(data))) }
		}), nil},
		{"a batch misses a row", one("data.rows"), rowsAs(0, func(t testing.TB, rows []parquet.Row) []parquet.Row { return batched(t, rows, 0, 1, 3) }), nil},
		{"a batch begins late", one("data.rows"), rowsAs(0, func(t testing.TB, rows []parquet.Row) []parquet.Row { return batched(t, rows, 1, 2) }), nil},
		{"a file has other times than said", one("data.count"), statedOf("to", "2030-01-01T00:00:00Z"), nil},
		{"a file has other counts than said", []Kind{"manifest.sums", "data.count"}, statedOf("rows", 1), nil},
		{"the data end before the seal", one("data.positions"), rowsAs(0, endedAt(sourceB, 7)), nil},
		{"a data file has another value than a chunk", one("data.differs"), rowsAs(2, func(_ testing.TB, rows []parquet.Row) []parquet.Row {
			rows[len(rows)-1].Headers = append(rows[len(rows)-1].Headers, rows[0].Headers...)
			rows[len(rows)-1].Value = []byte("another")
			return rows
		}), nil},
		{"a row of the data goes back", one("records.order"), rowsAs(0, func(_ testing.TB, rows []parquet.Row) []parquet.Row {
			rows[0].Position, rows[1].Position = rows[1].Position, rows[0].Position
			return rows
		}), nil},
		{"a row of the data belongs elsewhere", one("records.range"), rowsAs(0, func(_ testing.TB, rows []parquet.Row) []parquet.Row {
			for i := range 100 {
				rows[0].Key = []byte{byte(i)}
				if slotOf("header", sourceA, &rows[0].Record) >= 1<<15 {
					break
				}
			}
			return rows
		}), nil},
		{"a row of the data is in another segment too", []Kind{"data.positions", "rows.twice"}, rowsAs(0, endedAt(sourceB, 3)), nil},
	}
}

// batched makes rows of a batch of the first reference.
func batched(t testing.TB, rows []parquet.Row, numbers ...int32) []parquet.Row {
	t.Helper()
	i := slices.IndexFunc(rows, func(r parquet.Row) bool { return r.Ref != nil })
	if i < 0 {
		t.Fatal("there is no reference")
	}
	var batch []parquet.Row
	for _, n := range numbers {
		r := rows[i]
		r.Batch, r.Value = n, []byte{byte(n)}
		batch = append(batch, r)
	}
	return slices.Concat(rows[:i], batch, rows[i+1:])
}

// endedAt moves the last record of a source, which is the last of its message.
func endedAt(source string, seq uint64) func(t testing.TB, rows []parquet.Row) []parquet.Row {
	return func(t testing.TB, rows []parquet.Row) []parquet.Row {
		for i := range slices.Backward(rows) {
			if rows[i].Source == source {
				rows[i].Position.Sequence, rows[i].Position.Row = seq, 0
				return rows
			}
		}
		t.Fatal("no record of the source")
		return nil
	}
}

// tabledWith is a compacted fixture whose table has the segment.
func tabledWith(change func(f *fixture, p *packed)) func(*fixture) {
	return compactedWith(0, func(f *fixture, p *packed) {
		f.table = &fakeTable{uuid: "u-1"}
		p.note = `{"table":"spillway.flights","uuid":"u-1","snapshot":7,"at":"2026-03-01T12:00:00Z"}`
		if change != nil {
			change(f, p)
		}
	})
}

func inTable(change func(t *fakeTable)) func(testing.TB, *fixture) {
	return func(_ testing.TB, f *fixture) { change(f.table) }
}

func tableFaults() []fault {
	plain := tabledWith(nil)
	return []fault{
		{"table.json is none", one("table.file"), tabledWith(func(_ *fixture, p *packed) { p.note = "{" }), nil},
		{"a segment is not in its table", one("table.missing"), plain, inTable(func(t *fakeTable) { t.files = nil })},
		{"a segment is in its table in part", one("table.missing"), tabledWith(func(_ *fixture, p *packed) { p.note = "" }),
			inTable(func(t *fakeTable) { t.files = t.files[1:] })},
		{"the table names a file twice", one("table.twice"), plain, inTable(func(t *fakeTable) { t.files = append(t.files, t.files[0]) })},
		{"the table says other rows", one("table.rows"), plain, inTable(func(t *fakeTable) { t.files[0].Rows++ })},
		{"the table names a file that no manifest lists", one("table.stray"), plain, inTable(func(t *fakeTable) {
			t.files = append(t.files, TableFile{URL: strings.Replace(t.files[0].URL, "-", "0", 1), Rows: 1})
		})},
		{"the table names a file of a segment that is not compacted", one("table.stray"), plain, inTable(func(t *fakeTable) {
			t.files = append(t.files, TableFile{URL: strings.Replace(t.files[0].URL, f0, f1, 1), Rows: 1})
		})},
	}
}

const f0, f1 = "00000000-00-aaaaaaaa", "00000000-01-bbbbbbbb"
