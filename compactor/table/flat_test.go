package table_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// cheap puts a data file at the place of a segment's. It says that its records are
// of another segment, which nobody looks at.
func cheap(t testing.TB, store filer.Store, data []byte, tp table.Topic, id topic.SegmentID) table.Addition {
	t.Helper()
	at := fmt.Sprintf("spillway/topics/%s/%s/data/%s/%020d-%020d-0123456789abcdef.parquet", tp.Name, tp.Incarnation, id, 0, 0)
	blobs, err := filer.UploadParts(t.Context(), store, "/buckets/"+at, data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filer.Create(t.Context(), store, "/buckets/"+at, filer.File{ID: filer.NewID(), Blobs: blobs}); err != nil {
		t.Fatal(err)
	}
	return table.Addition{Segment: id, Files: []string{"s3://" + at}, Rows: 1}
}

// TestFlat commits 10,000 segments, and sees that neither the property nor the
// table's metadata nor what a commit asks of the filer grows with them.
func TestFlat(t *testing.T) {
	t.Parallel()
	const segments, each = 10_000, 50
	data, err := tabletest.DataFile(tabletest.SegmentID(0), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	fs := memfs.New()
	store := fs.Client("other", nil)
	var calls atomic.Int64 // of a commit, but for its data files
	tables := table.New(table.Options{
		Catalog: tabletest.NewServer(store, "warehouse").Client(nil), Bucket: "spillway",
		Store: fs.Client("tables", func(op memfs.Op) memfs.Fault {
			if !strings.HasSuffix(op.Path, ".parquet") {
				calls.Add(1)
			}
			return memfs.Fault{}
		}),
	})
	tb, err := tables.Open(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[topic.SegmentID]bool{}
	var early, most int64
	for n := 0; n < segments; n += each {
		var adds []table.Addition
		for i := n; i < n+each; i++ {
			adds = append(adds, cheap(t, store, data, orders, tabletest.SegmentID(i)))
		}
		calls.Store(0)
		asked := 0
		done, err := tb.Commit(t.Context(), adds, func(_ context.Context, id topic.SegmentID) (bool, error) {
			asked++
			return recorded[id], nil
		})
		if err != nil || len(done.Added) != each {
			t.Fatalf("after %d segments: %+v, %v", n, done, err)
		}
		for _, id := range done.Added {
			recorded[id] = true
		}
		if n < segments/10 {
			early = max(early, calls.Load())
		}
		most = max(most, calls.Load())
		if asked > 2*each {
			t.Fatalf("after %d segments a commit of %d asked for %d records", n, each, asked)
		}
	}
	if most > early+2 {
		t.Errorf("a commit takes up to %d calls of the filer, and %d among the first tenth", most, early)
	}
	d, err := tb.Describe(t.Context())
	if err != nil || d.Files != segments || d.Rows != segments || len(d.Pending) != each {
		t.Errorf("in the end %d files, %d rows, %d pending: %v", d.Files, d.Rows, len(d.Pending), err)
	}
	ice, err := tb.Iceberg(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	meta, err := json.Marshal(ice.Metadata())
	if err != nil || len(meta) > 400<<10 || len(d.Properties["spillway.segments"]) > each*30 {
		t.Errorf("metadata of %d bytes, the property of %d: %v", len(meta), len(d.Properties["spillway.segments"]), err)
	}
	t.Logf("calls of the filer: at most %d; metadata of %d KiB", most, len(meta)>>10)
}
