package parquet

import (
	"math/bits"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/spillway-mq/spillway/internal/topic"
)

// What bounds a row group if [WriterOptions] do not say it.
const (
	DefaultGroupRows  = 131072
	DefaultGroupBytes = 32 << 20
	mostGroupRows     = 1 << 20
	mostGroupBytes    = 1 << 30
)

// WriterOptions are for one file.
type WriterOptions struct {
	Segment topic.SegmentID // of all rows
	// A row group ends before it would grow over either of these, 0: the default. They
	// are at most a million rows and 1 GiB.
	// GroupBytes counts what is in rows before anything is encoded. A larger row is a
	// row group by itself.
	GroupRows  int
	GroupBytes int64
}

func (o WriterOptions) withDefaults() WriterOptions {
	if o.GroupRows <= 0 {
		o.GroupRows = DefaultGroupRows
	}
	if o.GroupBytes <= 0 {
		o.GroupBytes = DefaultGroupBytes
	}
	o.GroupRows, o.GroupBytes = min(o.GroupRows, mostGroupRows), min(o.GroupBytes, mostGroupBytes)
	return o
}

const (
	// pageSize is about the size of a page before it is packed.
	pageSize = 256 << 10
	// indexedRows is how many rows a page of offsets or times has at most. Pages end by
	// their size, and these columns take next to no room: without this bound the page
	// index would not tell where in a row group an offset is.
	indexedRows = 4096
	// createdBy is in the form that readers look for the writer's known faults by.
	createdBy = "spillway version 1.0.0"
)

// bloomChance is the chance of a false positive that the library sizes bloom filters
// by. It takes twice the room that it computes, so a filter has from 9 to 19 bits for
// each key, and 8 where all keys of a full row group differ.
const bloomChance = 0.2

// properties say how columns are encoded.
func properties(o WriterOptions) *parquet.WriterProperties {
	name := paths()
	bloom := max(32, int64(1)<<bits.Len(uint(o.GroupRows-1))) // 8 bits for each row
	props := []parquet.WriterProperty{
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithCreatedBy(createdBy),
		parquet.WithCompression(compress.Codecs.Zstd),
		parquet.WithCompressionLevel(1),
		parquet.WithDataPageSize(pageSize),
		parquet.WithDictionaryDefault(false),
		parquet.WithStats(false),
		parquet.WithPageIndexEnabled(true),
		parquet.WithSortingColumns([]parquet.SortingColumn{{ColumnIdx: colOffset}}),
		parquet.WithBloomFilterEnabledFor(name[colKey], true),
		parquet.WithAdaptiveBloomFilterEnabledFor(name[colKey], true),
		parquet.WithBloomFilterCandidatesFor(name[colKey], bits.Len64(uint64(bloom))-5), // down to 32 bytes
		parquet.WithBloomFilterFPPFor(name[colKey], bloomChance),
		parquet.WithMaxBloomFilterBytes(bloom),
	}
	// Not of keys: a bound that is too long is left out, but the other one stays, which
	// the library reads, and gives to Iceberg, as if the one left out were empty.
	for _, c := range []int{colSegment, colOffset, colTime, colEventTime} {
		props = append(props, parquet.WithStatsFor(name[c], true))
	}
	for _, c := range []int{colOffset, colTime, colEventTime, colSequence, colSourceRow, colProducerSequence, colRow, colSize, colRecords} {
		props = append(props, parquet.WithEncodingFor(name[c], parquet.Encodings.DeltaBinaryPacked))
	}
	for _, c := range []int{colSegment, colHeaderName, colContentType, colRejected, colError, colSource, colProducer} {
		props = append(props, parquet.WithDictionaryFor(name[c], true))
	}
	return parquet.NewWriterProperties(props...)
}
