// Package expand reads the rows of batch references: records whose object is a file of
// many records (FORMAT, "Batch references"). It joins package ref, which knows the
// object, with package rows, which knows files. Its memory is bounded, whatever is in
// an object.
package expand

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
)

// Rows are the rows of one batch reference. They are for one goroutine.
type Rows struct {
	in    *file
	rows  rows.Reader
	says  *int64 // how many there are
	count uint64
	err   error // of the next Next
}

// Open begins to read the object of a batch reference, if it is the one that the
// reference is about. All of it is then read from that very object: each request
// names its ETag, and its version if there is one. ctx is for all of the reading.
//
// Errors, here and from Next, are those of [ref.Reader], *ref.BatchError, *CountError,
// and *rows.FileError where the object is the one, and no file as its reference says.
// [Definite] sorts them.
func Open(ctx context.Context, store *object.Store, f record.Ref, b ref.Batch) (*Rows, error) {
	o, err := Options(b)
	if err != nil {
		return nil, err
	}
	in, err := openFile(ctx, store, f)
	if err != nil {
		return nil, err
	}
	r := &Rows{in: in, says: f.Records}
	if err = in.is(b); err == nil {
		r.rows, err = rows.Open(in, o)
	}
	if err != nil {
		err = r.judge(err)
		return nil, errors.Join(err, in.Close())
	}
	return r, nil
}

// Next gives the next row; its Value is valid until the next call. Rows that cannot be
// taken are rows. io.EOF says that these were all, that they are as many as the
// reference says, and that the object's bytes have the reference's digest, if it has
// one: that is known only at the end, so what was read before another error may be
// of other bytes, where the endpoint gave them under the same ETag. Errors stay.
func (r *Rows) Next() (rows.Row, error) {
	if r.err != nil {
		return rows.Row{}, r.err
	}
	row, err := r.rows.Next()
	if err == nil {
		r.count++
		return row, nil
	}
	r.err = r.judge(err)
	if r.err == io.EOF && r.says != nil && uint64(*r.says) != r.count { //nolint:errorlint // only the end itself is the end
		r.err = &CountError{Says: *r.says, Has: r.count}
	}
	return rows.Row{}, r.err
}

// judge decides between an object that is another one and one that is no such file:
// the digest is compared when rows have ended in either way.
func (r *Rows) judge(err error) error {
	var broken *rows.FileError
	if err != io.EOF && !errors.As(err, &broken) { //nolint:errorlint // only the end itself is the end
		return err
	}
	if other := r.in.verify(); other != nil {
		return other
	}
	return err
}

// Close gives the connection back.
func (r *Rows) Close() error { return errors.Join(r.rows.Close(), r.in.Close()) }

// Count is what is in an object.
type Count struct {
	Rows     uint64 // with those that cannot be taken
	Rejected uint64 // those
	// First of them, and why.
	First  uint64
	Reason string
}

// Add counts a row.
func (c *Count) Add(row rows.Row) {
	c.Rows++
	if row.Rejected == "" {
		return
	}
	if c.Rejected++; c.Rejected == 1 {
		c.First, c.Reason = row.N, row.Rejected
	}
}

// Read counts the rows of a batch reference. With an error the count is of those before
// it.
func (c *Count) Read(ctx context.Context, store *object.Store, f record.Ref, b ref.Batch) error {
	r, err := Open(ctx, store, f, b)
	if err != nil {
		return err
	}
	return errors.Join(c.All(r), r.Close())
}

// All counts the rows that a reader gives to its end.
func (c *Count) All(r interface{ Next() (rows.Row, error) }) error {
	for {
		row, err := r.Next()
		if err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
			return nil
		}
		if err != nil {
			return err
		}
		c.Add(row)
	}
}

// CountError says that an object holds another number of records than its reference
// says.
type CountError struct {
	Says int64
	Has  uint64
}

func (e *CountError) Error() string {
	return fmt.Sprintf("the object holds %d records, its reference says %d", e.Has, e.Says)
}

// Definite tells whether an error is about the object or its reference, so that reading
// again gives the same until somebody changes something there. Others are of the
// endpoint, the settings or the caller.
func Definite(err error) bool {
	var header *ref.BatchError
	var broken *rows.FileError
	var count *CountError
	return errors.As(err, &header) || errors.As(err, &broken) || errors.As(err, &count) ||
		err != nil && ref.StateOf(err) != ref.Pending
}

// Options say in the words of package rows how a batch is read. MaxRow is the default:
// whether a row is too long must not depend on the reader. Errors are *ref.BatchError.
func Options(b ref.Batch) (rows.Options, error) {
	if err := b.Check(); err != nil {
		return rows.Options{}, err
	}
	o := rows.Options{
		Format: rows.Format(b.Format), Compression: rows.Compression(b.Compression),
		CSV: rows.CSVOptions{Names: b.CSV.Names, NoHeader: b.CSV.NoHeader},
	}
	if b.CSV.Comma != "" {
		o.CSV.Comma = b.CSV.Comma[0]
	}
	return o, nil
}

// Local opens a file that is to become the object of a batch reference.
func Local(f rows.File, b ref.Batch) (rows.Reader, error) {
	o, err := Options(b)
	if err != nil {
		return nil, err
	}
	head, err := headOf(f)
	if err == nil {
		err = isOf(b, head)
	}
	if err != nil {
		return nil, err
	}
	return rows.Open(f, o)
}

// extensions are what names end in, by what [ref.Batch.Rows] says.
var extensions = map[string]string{"": "", "gzip": ".gz", "zstd": ".zst"}

// isOf compares what a file begins with with what it is said to be.
func isOf(b ref.Batch, head []byte) error {
	_, _, err := rows.Detect("x."+b.Format+extensions[b.Compression], head)
	var other *rows.FormatError
	if !errors.As(err, &other) {
		return err
	}
	what := strings.ReplaceAll(other.What, "by its name", "by its reference")
	return &rows.FileError{What: "the object is not as its reference says: " + what}
}
