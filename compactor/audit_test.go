package compactor

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// audit compares readers, manifests and the table with what was appended.
func (w *world) audit(t tester) {
	t.Helper()
	w.readable(t)
	named := map[string]uint64{} // data files of all manifests, and their rows
	for _, id := range w.sealed(t) {
		w.auditSegment(t, id, named)
	}
	w.auditTable(t, named)
	if w.fs != nil {
		// A create without an answer may arrive when its file has been swept, bytes and
		// all: a file that no manifest names, and the next sweep takes.
		p := slices.DeleteFunc(w.fs.Problems(), func(p string) bool {
			file, _, lost := strings.Cut(p, " names blob ")
			_, is := named["s3://"+strings.TrimPrefix(file, "/buckets/")]
			return lost && !is && strings.Contains(file, "/data/")
		})
		if len(p) > 0 {
			t.Errorf("the filer was misused: %q", p)
		}
	}
}

// readable reads the topic as a consumer does.
func (w *world) readable(t tester) {
	t.Helper()
	got := map[topic.SegmentID][]string{}
	r, err := w.top.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for it, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if it.Offset != uint64(len(got[it.Segment])) {
			t.Fatalf("segment %s: offset %d comes after %d records", it.Segment, it.Offset, len(got[it.Segment]))
		}
		got[it.Segment] = append(got[it.Segment], dump(&it.Record))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := cmp.Diff(w.want, got); d != "" {
		t.Errorf("what is read is not what was appended (-want +got):\n%s", d)
	}
}

// auditSegment reads what a manifest names.
func (w *world) auditSegment(t tester, id topic.SegmentID, named map[string]uint64) {
	t.Helper()
	s := w.segment(t, id)
	m, err := s.Manifest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	rows := uint64(0)
	for _, f := range m.Files {
		rows += f.Rows
		for _, r := range w.dataFile(t, s, f) {
			if r.Offset == uint64(len(got)) { // else it goes on in this file
				got = append(got, dump(&r.Record))
			}
		}
		named[s.DataURL(f.Name)] = f.Rows
	}
	if d := cmp.Diff(w.want[id], got); d != "" {
		t.Errorf("segment %s: what its data files hold (-want +got):\n%s", id, d)
	}
	if rows != w.rows[id] || m.Rows != rows || m.Records != uint64(len(got)) {
		t.Errorf("segment %s: %d rows, want %d; its manifest says %d, and %d records", id, rows, w.rows[id], m.Rows, m.Records)
	}
	if names := w.dataNames(t, s); len(names) != len(m.Files) {
		t.Errorf("segment %s: its folder has %q, its manifest names %d files", id, names, len(m.Files))
	}
}

// dataFile reads the records of one file.
func (w *world) dataFile(t tester, s *segment.Segment, f segment.DataFile) (list []parquet.Row) {
	t.Helper()
	e, err := w.store.Filer.Lookup(t.Context(), s.DataPath(f.Name))
	if err != nil {
		t.Fatal(err)
	}
	r, err := parquet.Open(filer.NewReaderAt(t.Context(), w.store.Filer, e), e.Size)
	if err != nil {
		t.Fatal(err)
	}
	for row, err := range r.Records(t.Context(), parquet.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		c := *row
		c.Record = row.Clone()
		list = append(list, c)
	}
	return list
}

func (w *world) dataNames(t tester, s *segment.Segment) (names []string) {
	t.Helper()
	list, err := w.store.Filer.List(t.Context(), s.DataDir(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// auditTable compares the files that the table names with those of the manifests.
func (w *world) auditTable(t tester, named map[string]uint64) {
	t.Helper()
	tables := table.New(table.Options{Catalog: w.calls(nil), Store: w.store.Filer, Warehouse: "warehouse", Bucket: w.bucket})
	tbl, err := tables.Find(t.Context(), table.Topic{Name: w.name, Incarnation: w.top.Incarnation})
	if errors.Is(err, table.ErrNoTable) && len(named) == 0 {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for f, err := range tbl.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(f.URL, " ", f.Rows))
	}
	for url, rows := range named {
		want = append(want, fmt.Sprint(url, " ", rows))
	}
	slices.Sort(got)
	slices.Sort(want)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("files of the table (-of the manifests +of the table):\n%s", d)
	}
}

// trimmed checks that sealed segments have no chunks any more.
func (w *world) trimmed(t tester) {
	t.Helper()
	for _, id := range w.sealed(t) {
		seal, err := w.segment(t, id).Tail(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		list, err := w.store.Filer.List(t.Context(), path.Dir(seal.Entry.Path), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if path.Ext(e.Path) == ".avro" && e.Path != seal.Entry.Path {
				t.Errorf("%s is still there", e.Path)
			}
		}
	}
}
