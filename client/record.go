package client

import (
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
)

// MaxValue is the largest value of a record in a lane. Larger ones go by
// reference: Objects in [Options], and [Producer.Submit].
const MaxValue = record.MaxInline

// Header is one of a record's headers: Name, of UTF-8, and Value, of any bytes.
// Names may repeat and keep their order.
type Header = record.Header

// Record is what is published. Its bytes are copied before Publish returns.
type Record struct {
	// Key is the partition key: records of one key keep their order and lie
	// together. nil is "no key", which is another thing than the empty key;
	// records without a key are spread over the key space.
	Key []byte

	// Value is the payload, of at most [MaxValue] bytes, or [MaxUpload] where there
	// is a bucket for large ones. nil is "no value", which is another thing than the
	// empty value.
	Value []byte

	Headers []Header

	// EventTime is when the recorded event happened, kept in microseconds. Zero:
	// not known. When the record was taken in is noted without it.
	EventTime time.Time

	ref *record.Ref // Submit's
}

// Level says how far a record has got.
type Level uint8

// Levels. See the package comment for what each survives.
const (
	Buffered Level = iota // JetStream has it: it is in a lane
	Stored                // it is in a committed file on the filer
)

// String gives "buffered" or "stored".
func (l Level) String() string {
	switch l {
	case Buffered:
		return "buffered"
	case Stored:
		return "stored"
	}
	return fmt.Sprintf("level %d", uint8(l))
}

// PublishOption changes one call.
type PublishOption struct{ apply func(*callOptions) }

type callOptions struct {
	ack Level
	now bool // do not linger

	unchecked bool // submit without a look at the object
}

func (c callOptions) with(opts []PublishOption) callOptions {
	for _, o := range opts {
		o.apply(&c)
	}
	return c
}

// WithAck sets the level that the outcome of this record stands for.
func WithAck(l Level) PublishOption {
	return PublishOption{func(c *callOptions) { c.ack = l }}
}

// What a record takes in a batch besides its bytes, at most: lengths, markers,
// times. And what it takes in memory besides.
const (
	recordFrame = 40
	headerFrame = 12
	refFrame    = 80
	recordHeap  = 64
)

// sizes gives the bytes of a record's fields and at most how many it takes when
// encoded.
func (r *Record) sizes() (plain, encoded int) {
	plain = len(r.Key) + len(r.Value)
	for i := range r.Headers {
		plain += len(r.Headers[i].Name) + len(r.Headers[i].Value)
	}
	encoded = recordFrame + headerFrame*len(r.Headers)
	if f := r.ref; f != nil {
		plain += len(f.URL) + len(f.ETag) + len(f.Version) + len(f.ContentType)
		encoded += refFrame
	}
	return plain, plain + encoded
}

func (r *Record) internal() record.Record {
	return record.Record{Key: r.Key, Value: r.Value, Headers: r.Headers, EventTime: r.EventTime, Ref: r.ref}
}
