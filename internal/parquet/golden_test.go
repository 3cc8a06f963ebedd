package parquet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

var update = flag.Bool("update", false, "write the golden file anew (never for a released format)")

const (
	goldenFile   = "testdata/golden.parquet"
	goldenJSON   = "testdata/golden.ndjson"
	goldenDigest = "9fa01513b5eb316223d776a81c2d9caef03c0559045be81f5f8b6c61cb94cd13"
)

// goldenRows have all that a row can have.
func goldenRows() []Row {
	forty := int64(40)
	rows := []Row{
		{Offset: 7, Batch: NoBatch, Record: record.Record{
			ID: &record.ID{Producer: "p7", Sequence: 9}, EventTime: time.Date(2001, 1, 1, 0, 12, 0, 0, time.UTC), Key: []byte("SAN"),
			Headers: []record.Header{{Name: "h", Value: []byte("1")}, {Name: "h", Value: []byte{}}}, Value: []byte(`{"delay":-3}`),
		}},
		{Offset: 8, Batch: NoBatch, Record: record.Record{Ref: &record.Ref{
			URL: "s3://b/k", Size: 1000, ETag: "e1", Version: "v1", ContentType: "text/csv", SHA256: bytes.Repeat([]byte{7}, 32), Records: &forty,
		}}},
		{Offset: 9, Batch: NoBatch, Record: record.Record{Ref: &record.Ref{URL: "s3://b/later", Size: 1}, Pending: true, Key: []byte{}}},
		{Offset: 11, Batch: NoBatch, Record: record.Record{Rejected: "no", Value: []byte("\xff")}},
		{Offset: 12, Batch: 0, Record: record.Record{Ref: &record.Ref{URL: "s3://b/rows", Size: 30}, Value: []byte(`{"n":0}`)}},
		{Offset: 12, Batch: 1, Error: "row 1 is no JSON", Record: record.Record{Ref: &record.Ref{URL: "s3://b/rows", Size: 30}, Value: []byte(`{"n"`)}},
		{Offset: 13, Batch: NoBatch, Error: "the object is gone", Record: record.Record{Ref: &record.Ref{URL: "s3://b/gone", Size: 30}}},
	}
	for i := range rows {
		r := &rows[i]
		r.Segment, r.Source = testSegment, "lane.orders.0.k3j9x2ab"
		r.Time = t0.Add(time.Duration(r.Offset) * time.Second)
		r.Position = topic.Position{Sequence: 800 + r.Offset, Row: uint32(r.Offset % 3)}
	}
	return rows
}

// TestGolden holds the bytes: another library, or another version of it, must not change
// what equal rows become, for that is their file's name.
func TestGolden(t *testing.T) {
	data, _ := write(t, WriterOptions{GroupRows: 4}, goldenRows())
	if *update {
		if err := os.WriteFile(goldenFile, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); !bytes.Equal(data, want) || hex.EncodeToString(sum[:]) != goldenDigest {
		t.Errorf("the rows became %d bytes with the digest %x, not the golden file", len(data), sum)
	}
	if d := diff(goldenRows(), rowsOf(t, open(t, want), Filter{})); d != "" {
		t.Error(d)
	}
}

// TestOthersRead has the golden file read by a reader that shares no code with ours
// above the pages: the library's own, by way of Arrow's arrays.
func TestOthersRead(t *testing.T) {
	table, err := pqarrow.ReadTable(t.Context(), bytes.NewReader(golden(t)), nil, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Release()
	var got bytes.Buffer
	rows := array.NewTableReader(table, 0)
	defer rows.Release()
	for rows.Next() {
		if err := array.RecordToJSON(rows.RecordBatch(), &got); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(goldenJSON, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(goldenJSON)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
	if !table.Schema().Equal(ArrowSchema()) {
		t.Errorf("the schema came back as %s", table.Schema())
	}
}

// TestFooter looks at what engines look at.
func TestFooter(t *testing.T) {
	data, _ := write(t, WriterOptions{GroupRows: 4}, goldenRows())
	r, err := file.NewParquetReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	meta := r.MetaData()
	if meta.GetCreatedBy() != createdBy || meta.NumRowGroups() != 2 || meta.NumRows != 7 {
		t.Errorf("created by %q, %d row groups, %d rows", meta.GetCreatedBy(), meta.NumRowGroups(), meta.NumRows)
	}
	for g := range meta.NumRowGroups() {
		group := meta.RowGroup(g)
		if s := meta.RowGroups[g].SortingColumns; len(s) != 1 || s[0].ColumnIdx != colOffset || s[0].Descending {
			t.Errorf("row group %d is sorted by %v", g, s)
		}
		for i, path := range paths() {
			c, err := group.ColumnChunk(i)
			if err != nil {
				t.Fatal(err)
			}
			checkChunk(t, path, c)
		}
	}
}

func checkChunk(t *testing.T, path string, c *metadata.ColumnChunkMetaData) {
	t.Helper()
	bounded := map[string]bool{"_segment": true, "_offset": true, "_ts": true, "_event_ts": true}
	set, err := c.StatsSet()
	if err != nil || set != bounded[path] {
		t.Errorf("%s has statistics: %v, %v", path, set, err)
	}
	if c.GetOffsetIndexLocation() == nil || (c.GetColumnIndexLocation() != nil) != bounded[path] {
		t.Errorf("%s: offset index %v, column index %v", path, c.GetOffsetIndexLocation(), c.GetColumnIndexLocation())
	}
	if (c.BloomFilterOffset() > 0) != (path == "_key") {
		t.Errorf("%s has a bloom filter at %d", path, c.BloomFilterOffset())
	}
}
