package tabletest

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/topic"
)

func looks(t *testing.T, e *env) {
	tp := e.topic("looks")
	tb := e.open(t, tp)
	if d, err := tb.Describe(t.Context()); err != nil || d.Snapshot != 0 || d.Rows != 0 || d.Files != 0 || len(d.Columns) != 16 || d.Columns[15].Name != "value" {
		t.Errorf("a new table: %+v, %v", d, err)
	}
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	first := e.commit(t, tb, a)
	second := e.commit(t, tb, b)
	d, err := tb.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "suite."+tp.Name || d.UUID != tb.UUID() || d.Topic != tp.Name || d.Incarnation != tp.Incarnation || d.Snapshot != second.Snapshot ||
		d.Snapshots != 2 || d.Rows != 84 || d.Files != 4 || d.Bytes < 1000 || time.Since(d.At) > time.Hour || d.Properties["gc.enabled"] != "false" {
		t.Errorf("it is described as %+v", d)
	}
	if !strings.HasPrefix(d.Location, "s3://"+e.Warehouse+"/") || !strings.HasPrefix(d.Metadata, d.Location+"/metadata/") {
		t.Errorf("it is at %s, with metadata %s", d.Location, d.Metadata)
	}
	wantIDs(t, "pending", d.Pending, b.Segment)
	lookAtFiles(t, tb, a, b)
	snapshots, err := tb.Snapshots(t.Context())
	if err != nil || len(snapshots) != 2 {
		t.Fatalf("snapshots %+v, %v", snapshots, err)
	}
	for i, want := range []table.Snapshot{
		{ID: first.Snapshot, Rows: 42, Files: 2, Segments: string(a.Segment)},
		{ID: second.Snapshot, Parent: first.Snapshot, Rows: 84, Files: 4, Segments: string(b.Segment), Current: true},
	} {
		want.Operation, want.AddedRows, want.AddedFiles, want.At = "append", 42, 2, snapshots[i].At
		if snapshots[i] != want {
			t.Errorf("snapshot %+v, want %+v", snapshots[i], want)
		}
	}
	in, err := tb.SegmentsIn(t.Context())
	if err != nil || !slices.Equal(slices.Sorted(maps.Keys(in)), ids(a, b)) || in[a.Segment].Files != 2 || in[a.Segment].Rows != 42 {
		t.Errorf("segments %+v, %v", in, err)
	}
}

func lookAtFiles(t *testing.T, tb *table.Table, adds ...table.Addition) {
	t.Helper()
	files := map[string]table.File{}
	for f, err := range tb.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		files[f.URL] = f
	}
	for _, a := range adds {
		for i, url := range a.Files {
			first, last := int64(i*30), int64(29+i*12)
			want := table.File{
				URL: url, Segment: a.Segment, Rows: last - first + 1, Size: files[url].Size, First: first, Last: last,
				From: Start.Add(time.Duration(first) * time.Millisecond), To: Start.Add(time.Duration(last) * time.Millisecond),
			}
			if files[url] != want || want.Size < 1000 {
				t.Errorf("file %+v, want %+v", files[url], want)
			}
		}
	}
	for f, err := range tb.Files(t.Context()) { // one is enough
		if err != nil || f.URL == "" {
			t.Errorf("%+v, %v", f, err)
		}
		break
	}
}

// upkeep: more commits than snapshots are kept, with a tag on an early one; then
// what nothing names any more is swept, and the table still reads.
func upkeep(t *testing.T, e *env) {
	tp := e.topic("upkeep")
	tb := e.open(t, tp)
	var all []table.Addition
	var tagged int64
	for i := range table.MaxSnapshots + 15 {
		a, err := e.place(tp).Write(t.Context(), SegmentID(i), 1)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
		done := e.commit(t, tb, a)
		if i == 3 {
			tagged = done.Snapshot
			e.tag(t, tb, tagged)
		}
	}
	meta := e.iceberg(t, tb).Metadata()
	if n := len(meta.Snapshots()); n > table.MaxSnapshots+10 || n < table.MaxSnapshots {
		t.Errorf("%d snapshots", n)
	}
	if s := meta.SnapshotByName("keep"); s == nil || s.SnapshotID != tagged {
		t.Errorf("the tag names %v, and named %d", s, tagged)
	}
	if n, err := tb.Maintain(t.Context()); n != 0 || err != nil {
		t.Errorf("once more: %d snapshots removed, %v", n, err)
	}
	e.wantSegments(t, tb, 0, all...)
	e.sweep(t, tp, all)
	e.wantSegments(t, tb, 0, all...)
	ice := e.iceberg(t, tb)
	if _, err := ice.SnapshotByName("keep").Manifests(must(ice.FS(t.Context()))); err != nil {
		t.Errorf("the tagged snapshot after the sweep: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func (e *env) tag(t *testing.T, tb *table.Table, snapshot int64) {
	t.Helper()
	ice := e.iceberg(t, tb)
	update := icetable.NewSetSnapshotRefUpdate("keep", snapshot, icetable.TagRef, 0, 0, 0)
	if _, _, err := e.Catalog.CommitTable(t.Context(), ice.Identifier(), nil, []icetable.Update{update}); err != nil {
		t.Fatal(err)
	}
}

// sweep sweeps as three days later.
func (e *env) sweep(t *testing.T, tp table.Topic, all []table.Addition) {
	t.Helper()
	now, err := e.tables().Find(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	if early, err := now.Orphans(t.Context()); err != nil || len(early) > 0 {
		t.Errorf("orphans that are seconds old: %v, %v", early, err)
	}
	later, err := e.tablesAt(func() time.Time { return time.Now().Add(73 * time.Hour) }).Find(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	orphans, err := later.Orphans(t.Context())
	if err != nil || len(orphans) == 0 {
		t.Fatalf("orphans %v, %v: snapshots were removed", orphans, err)
	}
	for _, o := range orphans {
		if name := path.Base(o.URL); !strings.HasSuffix(name, ".avro") && !strings.HasSuffix(name, ".metadata.json") || o.Size <= 0 {
			t.Errorf("orphan %+v", o)
		}
	}
	if n, err := later.Sweep(t.Context()); n != len(orphans) || err != nil {
		t.Errorf("%d of %d orphans swept, %v", n, len(orphans), err)
	}
	if left, err := later.Orphans(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("orphans after the sweep: %v, %v", left, err)
	}
	var gone []topic.SegmentID
	for _, a := range all {
		for _, f := range a.Files {
			if _, err := e.Store.Lookup(t.Context(), "/buckets/"+strings.TrimPrefix(f, "s3://")); err != nil {
				gone = append(gone, a.Segment)
			}
		}
	}
	wantIDs(t, "segments whose files are gone", gone)
}
