package client

import (
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// Formats and compressions of [Batch].
const (
	NDJSON  = "ndjson"
	CSV     = "csv"
	TSV     = "tsv"
	Avro    = "avro"
	Parquet = "parquet"
	Gzip    = "gzip"
	Zstd    = "zstd" // of files; batches of records in a lane have [Zstandard]
)

// Batch says how the records in an object are read. Without a Format the object's name
// says it, as in "2026/flights.csv.gz"; Parquet is not compressed as a whole. What is a
// row, and which number it has, is in docs/FORMAT.md, "Row numbers".
//
// With Expand the rows become records of the topic, by a job of the ingest side;
// without, readers expand the reference when they read it.
type Batch = ref.Batch

// CSVOptions say how CSV is read, if it has another delimiter than a comma, no header,
// or one that does not suit.
type CSVOptions = ref.CSV

// BatchError says why a [Batch] is none: an unknown format, a name that does not tell
// it, options that contradict each other.
type BatchError = ref.BatchError

// batched is a record that says of its reference how the records in the object are
// read.
func (r Reference) batched(rec Record) (Record, error) {
	if r.Batch == nil {
		// The headers may have been made by somebody else, and must be right all the same.
		_, _, err := ref.BatchOf(&record.Record{Headers: rec.Headers, Ref: &record.Ref{}})
		return rec, err
	}
	i := slices.IndexFunc(rec.Headers, func(h Header) bool { return ref.IsBatchHeader(h.Name) })
	if i >= 0 {
		return rec, &BatchError{Header: rec.Headers[i].Name, Reason: "it is given as a header, and by the reference's Batch"}
	}
	b, err := r.batch()
	if err != nil {
		return rec, err
	}
	rec.Headers = append(slices.Clip(rec.Headers), b.Headers()...)
	return rec, nil
}

// batch is r.Batch with what the object's name says.
func (r Reference) batch() (Batch, error) {
	b := *r.Batch
	if b.Format == "" {
		name, err := r.name()
		if err != nil {
			return b, err
		}
		named, err := ref.BatchNamed(name.Key)
		if err != nil {
			return b, err
		}
		if b.Compression != "" && b.Compression != named.Compression {
			return b, &BatchError{Header: ref.HeaderRows, Reason: fmt.Sprintf("the name %.200q does not say that it is packed as %s: give a format too", name.Key, b.Compression)}
		}
		b.Format, b.Compression = named.Format, named.Compression
	}
	return b, b.Check()
}
