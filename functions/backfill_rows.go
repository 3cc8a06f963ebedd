package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/topic"
)

// objectFile is an object of a backfill that is being read.
type objectFile interface {
	rows.File
	// Check looks whether the object is still the one that is meant, for one that is
	// not read since it is empty.
	Check(ctx context.Context) error
	Close() error
}

// opener begins to read an object of a backfill, which ends with ctx.
type opener func(ctx context.Context, o backfill.Object) (objectFile, error)

// openWith opens files of this machine, and the others in s3, which may be nil if
// there are none.
func openWith(s3 *object.Store) opener {
	return func(ctx context.Context, o backfill.Object) (objectFile, error) {
		if o.Path != "" {
			return backfill.OpenLocal(o.Path, o.ETag)
		}
		if s3 == nil {
			return nil, errors.New("no S3 endpoint is set")
		}
		return s3.File(ctx, o.Name(), o.Size, o.ETag), nil
	}
}

// sourceObjects are the objects of one source of a job, as ingest reads them.
type sourceObjects struct {
	read   backfill.Read
	list   []backfill.Object
	picker *rows.Picker
	open   opener
}

var _ ingest.Objects = (*sourceObjects)(nil)

func newSourceObjects(read backfill.Read, list []backfill.Object, open opener) (*sourceObjects, error) {
	picker, err := read.Picker()
	if err != nil {
		return nil, err
	}
	return &sourceObjects{read, list, picker, open}, nil
}

func (s *sourceObjects) Len() uint64          { return uint64(len(s.list)) }
func (s *sourceObjects) Name(n uint64) string { return s.list[n-1].String() }

// Open begins to read object n at a row, once its first bytes are what they have to
// be.
func (s *sourceObjects) Open(ctx context.Context, n uint64, from uint32) (ingest.RowReader, error) {
	o := s.list[n-1]
	f, err := s.open(ctx, o)
	if err != nil {
		return nil, unreadable(o, err)
	}
	in, err := s.begin(ctx, f, o, from)
	if err != nil {
		return nil, errors.Join(unreadable(o, err), f.Close())
	}
	return &objectRows{sourceObjects: s, object: o, file: f, in: in}, nil
}

func (s *sourceObjects) begin(ctx context.Context, f objectFile, o backfill.Object, from uint32) (rows.Reader, error) {
	if f.Size() == 0 {
		if err := f.Check(ctx); err != nil {
			return nil, err
		}
	}
	how := s.read.Options(o)
	head := make([]byte, min(rows.HeadSize, f.Size()))
	if n, err := f.ReadAt(head, 0); n < len(head) {
		return nil, err
	}
	if err := rows.Check(o.String(), how.Format, how.Compression, head); err != nil {
		return nil, err
	}
	how.From = uint64(from)
	return rows.Open(f, how)
}

// objectRows are the rows of one object.
type objectRows struct {
	*sourceObjects
	object backfill.Object
	file   objectFile
	in     rows.Reader
}

// Next makes of a row what ingest takes. Rows that are not as the job says they are
// become rejected ones, with what the object has there as their value.
func (r *objectRows) Next(ctx context.Context) (ingest.BackfillRow, error) {
	if err := ctx.Err(); err != nil {
		return ingest.BackfillRow{}, err
	}
	row, err := r.in.Next()
	switch {
	case errors.Is(err, io.EOF):
		return ingest.BackfillRow{}, io.EOF
	case err != nil:
		return ingest.BackfillRow{}, unreadable(r.object, err)
	case row.N > topic.MaxRow:
		return ingest.BackfillRow{}, &ingest.ObjectError{Reason: fmt.Sprintf("it has more than %d rows, and no position is left for them: divide it", topic.MaxRow+1)}
	}
	out := ingest.BackfillRow{N: uint32(row.N), Value: row.Value, Rejected: row.Rejected}
	if out.Rejected != "" {
		return out, nil
	}
	picked, err := r.picker.Pick(row.Value)
	if err != nil {
		out.Rejected = err.Error()
		return out, nil //nolint:nilerr // the row tells it
	}
	out.Key, out.Time, out.Headers = picked.Key, picked.Time, picked.Headers
	if r.read.FixedKey != nil {
		out.Key = r.read.FixedKey
	}
	out.Skip = !r.read.Within(picked.Time)
	return out, nil
}

func (r *objectRows) Close() error { return errors.Join(r.in.Close(), r.file.Close()) }

// unreadable tells what trying again cannot mend from what passes. What may be a
// fault of the worker's settings passes: where the endpoint is another one there is
// no such bucket, and the objects must not be counted as done for that.
func unreadable(o backfill.Object, err error) error {
	var file *rows.FileError
	var format *rows.FormatError
	var changed *object.ChangedError
	switch {
	case errors.As(err, &file):
		return &ingest.ObjectError{Reason: file.Error()}
	case errors.As(err, &format):
		return &ingest.ObjectError{Reason: format.What}
	case errors.As(err, &changed) && changed.Found != "":
		return &ingest.ObjectError{Reason: fmt.Sprintf("it has changed since the job was made: its ETag was %q, and is %q", o.ETag, changed.Found)}
	case errors.Is(err, object.ErrChanged):
		return &ingest.ObjectError{Reason: "it has changed since the job was made", Err: err}
	case errors.Is(err, object.ErrNoBucket):
		return err
	case errors.Is(err, object.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return &ingest.ObjectError{Reason: fmt.Sprintf("it is gone, whose ETag was %q", o.ETag), Err: err}
	}
	return err
}
