package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/segment"
)

// bareBatch is how many rows the bare writer is given at a time.
const bareBatch = 8192

// bareWriter is how long arrow-go's own writer takes for the rows of a topic: from
// records in memory, by its builders, to nowhere, with the settings of a data file.
// Reading them does not count.
func (b *bulk) bareWriter(ctx context.Context, t *segment.Topic) (took time.Duration, err error) {
	r, err := t.Read(ctx, nil)
	if err != nil {
		return 0, err
	}
	w, err := newBare()
	if err != nil {
		return 0, err
	}
	group := make([]segment.Item, 0, parquet.DefaultGroupRows)
	rows := 0
	for item, err := range r.Next(ctx) {
		if err != nil {
			return 0, err
		}
		rows++
		if group = append(group, item); len(group) == cap(group) {
			if err := w.write(group, &took); err != nil {
				return 0, err
			}
			group = group[:0]
		}
	}
	if err := w.write(group, &took); err != nil {
		return 0, err
	}
	if rows != b.parquet.Rows() {
		return 0, fmt.Errorf("the topic has %d records of %d", rows, b.parquet.Rows())
	}
	begin := time.Now()
	err = w.file.Close()
	return took + time.Since(begin), err
}

// bare is arrow-go's writer.
type bare struct {
	file *pqarrow.FileWriter
	rows *array.RecordBuilder
}

func newBare() (*bare, error) {
	props := []arrowparquet.WriterProperty{
		arrowparquet.WithVersion(arrowparquet.V2_LATEST), arrowparquet.WithDataPageSize(256 << 10),
		arrowparquet.WithCompression(compress.Codecs.Zstd), arrowparquet.WithCompressionLevel(1),
		arrowparquet.WithDictionaryDefault(false), arrowparquet.WithDictionaryFor("_segment", true), arrowparquet.WithDictionaryFor("_source", true),
		arrowparquet.WithStats(false), arrowparquet.WithPageIndexEnabled(true),
		arrowparquet.WithBloomFilterEnabledFor("_key", true), arrowparquet.WithAdaptiveBloomFilterEnabledFor("_key", true),
		arrowparquet.WithMaxBloomFilterBytes(parquet.DefaultGroupRows),
	}
	for _, name := range []string{"_segment", "_offset", "_ts", "_key"} {
		props = append(props, arrowparquet.WithStatsFor(name, true))
	}
	for _, name := range []string{"_offset", "_ts", "_source_seq", "_source_row"} {
		props = append(props, arrowparquet.WithEncodingFor(name, arrowparquet.Encodings.DeltaBinaryPacked))
	}
	// The struct hides whatever else io.Discard can do.
	file, err := pqarrow.NewFileWriter(parquet.ArrowSchema(), struct{ io.Writer }{io.Discard}, arrowparquet.NewWriterProperties(props...), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, fmt.Errorf("open the bare writer: %w", err)
	}
	return &bare{file, array.NewRecordBuilder(memory.DefaultAllocator, parquet.ArrowSchema())}, nil
}

// write writes a row group and adds how long it took.
func (w *bare) write(group []segment.Item, took *time.Duration) error {
	begin := time.Now()
	defer func() { *took += time.Since(begin) }()
	w.file.NewBufferedRowGroup()
	for len(group) > 0 {
		part := group[:min(bareBatch, len(group))]
		for i := range part {
			if err := w.add(&part[i]); err != nil {
				return err
			}
		}
		batch := w.rows.NewRecordBatch()
		err := w.file.WriteBuffered(batch)
		batch.Release()
		if err != nil {
			return fmt.Errorf("write with the bare writer: %w", err)
		}
		group = group[len(part):]
	}
	return nil
}

// add adds a row of a flight: what flights do not have is null.
func (w *bare) add(r *segment.Item) error {
	for i, f := range w.rows.Fields() {
		switch f := f.(type) {
		case *array.StringBuilder:
			w.text(i, f, r)
		case *array.Int64Builder:
			w.long(i, f, r)
		case *array.TimestampBuilder:
			if i == 2 {
				f.Append(arrow.Timestamp(r.Time.UnixMicro()))
			} else {
				f.AppendNull()
			}
		case *array.BinaryBuilder:
			if i == 4 {
				f.Append(r.Key)
			} else {
				f.Append(r.Value)
			}
		default:
			f.AppendNull()
		}
	}
	if r.Headers != nil || r.Ref != nil || r.ID != nil || r.Rejected != "" {
		return fmt.Errorf("segment %s, offset %d: no flight", r.Segment, r.Offset)
	}
	return nil
}

func (w *bare) text(column int, b *array.StringBuilder, r *segment.Item) {
	switch column {
	case 0:
		b.Append(string(r.Segment))
	case 10:
		b.Append(r.Source)
	default:
		b.AppendNull()
	}
}

func (w *bare) long(column int, b *array.Int64Builder, r *segment.Item) {
	switch column {
	case 1:
		b.Append(int64(r.Offset))
	case 11:
		b.Append(int64(r.Position.Sequence))
	case 12:
		b.Append(int64(r.Position.Row))
	default:
		b.AppendNull()
	}
}
