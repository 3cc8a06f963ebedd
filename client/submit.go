package client

import (
	"bytes"
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// Reference names an object on S3 that is a record's payload.
type Reference struct {
	// URL is s3://bucket/key, the key as it is, with nothing escaped.
	URL string

	// What the object is known to be. Empty: not known, and filled in from the
	// object, unless it is not looked at (see [Unchecked]).
	Size        int64
	ETag        string
	Version     string // of an object in a versioned bucket
	ContentType string
	SHA256      []byte // 32 bytes

	// Batch: the object is a file of many records, to be read so. nil: it is one
	// payload.
	Batch *Batch

	// Records is how many records the object holds. 0: not known, or one payload.
	Records int64
}

// Submit publishes a record whose payload is an object on S3, of any size. The
// object itself is not moved and not read. r has no value of its own. All else
// is as with Publish, errors and order included.
//
// Submit looks at the object first: it fills in what ref leaves open, and fails
// if the object is not there, or is not as ref says ([*ReferenceError]), or if
// that cannot be told ([*ObjectsError]). It needs Objects in the producer's
// [Options] for that, and fails with [ErrNoObjects] without; with [Unchecked] it
// does not look.
//
// The object must stay as it is for as long as its record is to be of use. The
// ingest worker looks at it once more, and pins it, if it is on Spillway's own
// filer; a topic that does not allow its bucket has the record rejected. Submit waits for one look at a time; programs that submit many
// run [Objects.Check] concurrently and submit what it returns Unchecked, in
// order.
//
// A reference with a Batch is of a file of many records: readers expand it, row by
// row. Submit does not look into it. It fails with [*BatchError] if it is not clear
// how the file is to be read.
func (p *Producer) Submit(ctx context.Context, topic string, ref Reference, r Record, opts ...PublishOption) (*Pending, error) {
	c := callOptions{ack: p.opts.Ack}.with(opts)
	if r.Value != nil {
		return nil, &RecordError{Field: "value", Reason: "a record whose payload is an object has no value of its own"}
	}
	r, err := ref.batched(r)
	if err != nil {
		return nil, err
	}
	if ref, err = p.checked(ctx, ref, c); err != nil {
		return nil, err
	}
	in := ref.internal()
	r.ref = &in
	return p.publish(ctx, topic, &r, c)
}

// Unchecked makes Submit publish a reference as it is given, without a look at
// the object. What it says must be right: readers compare it.
func Unchecked() PublishOption {
	return PublishOption{func(c *callOptions) { c.unchecked = true }}
}

// checked looks at the object of a reference, or only at the reference.
func (p *Producer) checked(ctx context.Context, r Reference, c callOptions) (Reference, error) {
	if c.unchecked {
		_, err := r.name()
		return r, err
	}
	if p.opts.Objects == nil {
		return r, ErrNoObjects
	}
	ctx, stop := p.whileOpen(ctx)
	defer stop()
	o, err := p.opts.Objects.Check(ctx, r)
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		err = ErrClosed
	}
	return o.Reference, err
}

// name reads the URL.
func (r Reference) name() (object.Name, error) {
	n, err := ref.Parse(r.URL)
	if bad, ok := errors.AsType[*ref.ParseError](err); ok {
		return n, referenceError(bad.URL, err) // without what may be secret in it
	}
	if n.Version = r.Version; n.Version == "null" { // S3's word for none
		n.Version = ""
	}
	if err = n.Check(); err != nil {
		return n, referenceError(r.URL, err)
	}
	return n, nil
}

func (r Reference) internal() record.Ref {
	f := record.Ref{
		URL: r.URL, Size: r.Size, ETag: r.ETag, Version: r.Version, ContentType: r.ContentType,
		SHA256: bytes.Clone(r.SHA256),
	}
	if r.Records != 0 {
		f.Records = &r.Records
	}
	return f
}

// filled is r with what it leaves open taken from what the object is.
func (r Reference) filled(is record.Ref) Reference {
	r.Size = is.Size
	r.ETag = orDefault(is.ETag, r.ETag) // without the quotes in which it may have been given
	r.Version = is.Version
	r.ContentType = orDefault(r.ContentType, is.ContentType)
	if r.SHA256 == nil {
		r.SHA256 = is.SHA256
	}
	return r
}
