package tabletest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Start is the append time of the record at offset 0 in all data of this package.
// One at offset n is n milliseconds later.
var Start = time.Date(2026, 3, 29, 0, 30, 0, 123456000, time.UTC)

// SegmentID names the n-th segment of a test.
func SegmentID(n int) topic.SegmentID { return topic.NewSegmentID(uint64(n), 0, "abcdefgh") }

// DataFile is a Parquet file as the compactor writes it, with the records of a
// segment from an offset on.
func DataFile(segment topic.SegmentID, first, count uint64) ([]byte, error) {
	var buf bytes.Buffer
	w, err := parquet.NewWriter(&buf, parquet.WriterOptions{Segment: segment})
	if err != nil {
		return nil, err
	}
	for offset := first; offset < first+count; offset++ {
		err := w.Write(&parquet.Row{
			Segment: segment, Offset: offset, Source: "lane/test", Batch: parquet.NoBatch,
			Record: record.Record{
				Time:     Start.Add(time.Duration(offset) * time.Millisecond),
				Position: topic.Position{Sequence: offset + 1},
				Key:      []byte("key-" + strconv.FormatUint(offset%10, 10)),
				Headers:  []record.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: nil}},
				Value:    fmt.Appendf(nil, `{"segment":%q,"offset":%d}`, segment, offset),
			},
		})
		if err != nil {
			return nil, err
		}
	}
	_, err = w.Close()
	return buf.Bytes(), err
}

// Place is a topic's folder, where its data files lie.
type Place struct {
	Store  filer.Store
	Bucket string
	Topic  table.Topic
}

// Write writes the data files of a segment, with so many records each, as the
// compactor does, and returns what to commit. Files that are there already stay.
func (p Place) Write(ctx context.Context, segment topic.SegmentID, records ...uint64) (table.Addition, error) {
	a := table.Addition{Segment: segment}
	var first uint64
	for _, n := range records {
		data, err := DataFile(segment, first, n)
		if err != nil {
			return a, err
		}
		sum := sha256.Sum256(data)
		at := path.Join("topics", p.Topic.Name, p.Topic.Incarnation, "data", string(segment),
			fmt.Sprintf("%020d-%020d-%x.parquet", first, first+n-1, sum[:8]))
		if err := put(ctx, p.Store, "/buckets/"+p.Bucket+"/"+at, data); err != nil {
			return a, err
		}
		a.Files = append(a.Files, "s3://"+p.Bucket+"/"+at)
		a.Rows += n
		first += n
	}
	return a, nil
}

func put(ctx context.Context, store filer.Store, at string, data []byte) error {
	if _, err := store.Lookup(ctx, at); err == nil {
		return nil
	}
	blobs, err := filer.UploadParts(ctx, store, at, data)
	if err != nil {
		return err
	}
	_, err = filer.Create(ctx, store, at, filer.File{ID: filer.NewID(), Blobs: blobs})
	return err
}
