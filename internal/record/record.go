// Package record turns records into bytes and back: the messages of a batch as
// producers send it, the sets that an ingest worker splices from them, and the
// chunk files of segments, which are plain Avro files. docs/FORMAT.md is the
// specification; this package does no I/O, reads no clock and knows no topics.
//
// The hot loops are written by hand for the two fixed schemas. Tests and fuzzing
// hold them against two Avro libraries.
package record

import (
	"bytes"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Codec names as in Avro files.
const (
	CodecNull = "null"
	CodecZstd = "zstandard"
)

// Limits of one batch, checked before anything is allocated.
const (
	MaxBatchRows  = 1 << 16
	MaxBatchBytes = 8 << 20   // decoded
	MaxInline     = 512 << 10 // largest value; above it: a reference
)

// Limits of one record. The decoders hold to them too, except to MaxInline.
const (
	MaxHeaders = 1024
	MaxText    = 64 << 10 // bytes of a header name or of any other text
	MaxRecord  = 12 << 20 // bytes of a record in a chunk
)

// Header is a name with a value. Names may repeat in a record.
type Header struct {
	Name  string // valid UTF-8
	Value []byte // decoded: never nil
}

// ID is the producer's identity of the batch that brought a record.
type ID struct {
	Producer string
	Sequence uint64
}

// Ref is a reference to the object that is the payload.
type Ref struct {
	URL                        string
	Size                       int64
	ETag, Version, ContentType string // empty: unknown or none
	SHA256                     []byte // nil, or 32 bytes
	Records                    *int64 // nil: the object is one payload
}

// Record is one record.
type Record struct {
	Time      time.Time      // append time, UTC, microseconds
	Position  topic.Position // the source's sequence and row
	ID        *ID            // nil: none
	Rejected  string         // reason; empty: accepted
	EventTime time.Time      // zero: none
	Key       []byte         // nil: none; empty: the empty key
	Headers   []Header
	Value     []byte // nil: null
	Ref       *Ref   // may be there with Rejected too
	// Pending: the object was not verified when the record was committed. It is
	// not encoded with the record: whoever reads a chunk takes it from the
	// chunk's attributes. It is never set without Ref, or with Rejected.
	Pending bool
}

// Clone returns a copy of r that shares no memory with it.
func (r *Record) Clone() Record {
	c := *r
	c.Key, c.Value = bytes.Clone(r.Key), bytes.Clone(r.Value)
	c.Headers = slices.Clone(r.Headers)
	for i := range c.Headers {
		c.Headers[i].Value = bytes.Clone(c.Headers[i].Value)
	}
	if r.ID != nil {
		id := *r.ID
		c.ID = &id
	}
	if r.Ref != nil {
		c.Ref = r.Ref.clone()
	}
	return c
}

func (f *Ref) clone() *Ref {
	c := *f
	c.SHA256 = bytes.Clone(f.SHA256)
	if f.Records != nil {
		n := *f.Records
		c.Records = &n
	}
	return &c
}
