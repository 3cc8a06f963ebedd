package verify

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// packed is what a compacted segment has become. Functions change what is written.
type packed struct {
	perFile  int // records
	rows     func(t testing.TB, rows []parquet.Row) []parquet.Row
	bytes    func(data []byte) []byte // of the second file, before its digest is made
	manifest func(m map[string]any)
	dropped  [][2]uint64
	note     string // table.json; empty: none
}

// newCompacted is the model of a valid topic whose rolled segment is compacted, its
// chunks gone but for the last keep.
func newCompacted(keep int) *fixture {
	f := newFixture()
	f.compact(keep)
	return f
}

func (f *fixture) compact(keep int) {
	s := f.segs[0]
	s.data = &packed{perFile: 9}
	s.first = len(s.chunks) - 1 - keep
}

// writeData makes the data files and the manifest of a segment.
func (f *fixture) writeData(t testing.TB, s *seg) {
	t.Helper()
	if s.data == nil {
		return
	}
	rows, size := s.asRows()
	if s.data.rows != nil {
		rows = s.data.rows(t, rows)
	}
	var files []any
	var records, all uint64
	for len(rows) > 0 {
		part := s.cutFile(&rows)
		file := f.writeFile(t, s, part, len(files))
		files = append(files, file)
		all += uint64(len(part))
		records += file["records"].(uint64)
	}
	end := 0
	for _, c := range s.chunks {
		end += len(c.rows)
	}
	m := map[string]any{
		"format": 1, "segment": s.id, "base": 0, "end": end, "seal": len(s.chunks) - 1, "records": records, "rows": all,
		"bytes": size, "created": began.Format(time.RFC3339), "files": orNone(files),
	}
	if len(s.data.dropped) > 0 {
		var list []any
		for _, d := range s.data.dropped {
			list = append(list, map[string]any{"first": d[0], "last": d[1], "reason": "lost"})
		}
		m["dropped"] = list
	}
	if s.data.manifest != nil {
		s.data.manifest(m)
	}
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, s.dir()+"/manifest.json", "manifest", filer.Attrs{"Digest": digestOf(text)}, text, false)
	if s.data.note != "" {
		f.put(t, s.dir()+"/table.json", "note", filer.Attrs{}, []byte(s.data.note), false)
	}
}

func orNone(files []any) []any { return append([]any{}, files...) }

// asRows is the segment's records as rows, and their bytes as chunks count them.
func (s *seg) asRows() (rows []parquet.Row, size int) {
	offset := uint64(0)
	for _, c := range s.chunks {
		for _, r := range c.rows {
			at := offset
			offset++
			size += encodedSize(r)
			if slices.ContainsFunc(s.data.dropped, func(d [2]uint64) bool { return d[0] <= at && at <= d[1] }) {
				continue
			}
			rows = append(rows, parquet.Row{Segment: topic.SegmentID(s.id), Offset: at, Source: c.source, Batch: parquet.NoBatch, Record: asRecord(r)})
		}
	}
	return rows, size
}

// cutFile takes the rows of the next file.
func (s *seg) cutFile(rows *[]parquet.Row) []parquet.Row {
	n, list := 1, *rows
	for n < len(list) && list[n].Offset-list[0].Offset < uint64(s.data.perFile) && list[n].Offset-list[n-1].Offset < 2 {
		n++
	}
	*rows = list[n:]
	return list[:n]
}

func (f *fixture) writeFile(t testing.TB, s *seg, rows []parquet.Row, n int) map[string]any {
	t.Helper()
	var b bytes.Buffer
	w, err := parquet.NewWriter(&b, parquet.WriterOptions{Segment: topic.SegmentID(s.id)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if err := w.Write(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	if n == 1 && s.data.bytes != nil {
		data = s.data.bytes(data)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	name := fmt.Sprintf("%020d-%020d-%s.parquet", stats.First, stats.Last, sum[:16])
	f.put(t, s.dataPath(name), "data-"+name, filer.Attrs{"Digest": "sha256:" + sum}, data, true)
	s.data.written(name, stats.Rows, f)
	return map[string]any{
		"name": name, "size": len(data), "digest": "sha256:" + sum, "first": stats.First, "last": stats.Last,
		"records": stats.Records, "rows": stats.Rows, "from": stats.From.Format(time.RFC3339Nano), "to": stats.To.Format(time.RFC3339Nano),
	}
}

func (s *seg) dataPath(name string) string { return dir + "/data/" + s.id + "/" + name }

// written puts a file into the table, if there is one.
func (p *packed) written(name string, rows uint64, f *fixture) {
	if f.table != nil {
		f.table.files = append(f.table.files, TableFile{URL: "s3://test/topics/flights/inc00001/data/" + f.segs[0].id + "/" + name, Rows: rows})
	}
}

// asRecord is a record as a reader of its chunk gets it.
func asRecord(r row) record.Record {
	out := record.Record{Time: r.TS.UTC(), Position: topic.Position{Sequence: uint64(r.Sequence), Row: uint32(r.Row)}}
	if r.ID != nil {
		out.ID = &record.ID{Producer: r.ID.Producer, Sequence: uint64(r.ID.Sequence)}
	}
	if r.Rejected != nil {
		out.Rejected = *r.Rejected
	}
	if r.EventTS != nil {
		out.EventTime = r.EventTS.UTC()
	}
	if r.Key != nil {
		out.Key = *r.Key
	}
	if r.Value != nil {
		out.Value = *r.Value
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, record.Header{Name: h.Name, Value: h.Value})
	}
	if f := r.Ref; f != nil {
		out.Ref = &record.Ref{URL: f.URL, Size: f.Size, ETag: f.ETag, Version: f.Version, ContentType: f.ContentType, Records: f.Records}
		if f.SHA256 != nil {
			out.Ref.SHA256 = *f.SHA256
		}
		out.Pending = r.Rejected == nil && f.Size%2 == 1 // see refs
	}
	return out
}

// fakeTable is a table that names files.
type fakeTable struct {
	uuid  string
	files []TableFile
}

func (t *fakeTable) Name() string { return "spillway.flights" }
func (t *fakeTable) UUID() string { return t.uuid }

func (t *fakeTable) Files(context.Context) iter.Seq2[TableFile, error] {
	return func(yield func(TableFile, error) bool) {
		for _, f := range t.files {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// open is for [InTable].
func (t *fakeTable) open(context.Context, *segment.Topic) (Table, error) { return t, nil }
