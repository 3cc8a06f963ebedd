package compactor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
)

// postponedError says that a segment has to wait, as a batch reference in it cannot be
// read from here, or not now.
type postponedError struct {
	elsewhere bool // nobody here can read it: the settings would have to be other ones
	err       error
}

func (e *postponedError) Error() string { return e.err.Error() }
func (e *postponedError) Unwrap() error { return e.err }

// ErrNoObjects says that a segment holds batch references, and no S3 endpoint is set by
// which their objects could be read.
var ErrNoObjects = errors.New("it holds batch references, and no S3 endpoint is set: give --s3, or another S3 setting")

// pendingFor is for how long an object is waited for that was not there when its
// reference was committed: as long as the follow-up looks for it.
const pendingFor = 24 * time.Hour

// batch writes the rows of a batch reference: each with all that the reference's record
// has, but its value. One whose object is gone, or is not what the reference says, stays
// one row, which says why: nothing of it is written before all of it was read.
func (w *rewriter) batch(ctx context.Context, b ref.Batch) error {
	if w.Expander == nil {
		return &postponedError{true, ErrNoObjects}
	}
	n, err := w.countRows(ctx, b)
	switch {
	case err != nil && w.definite(err):
		w.row.Error = clip(err.Error())
		return w.put(ctx)
	case err != nil:
		return w.postponed(ctx, err)
	case n == 0:
		w.row.Error = "the object has no rows"
		return w.put(ctx)
	case n > math.MaxInt32:
		w.row.Error = fmt.Sprintf("the object has %d rows, which are more than can be numbered", n)
		return w.put(ctx)
	}
	return w.writeRows(ctx, b, n)
}

// countRows reads all of the object: only then is known that it is the one.
func (w *rewriter) countRows(ctx context.Context, b ref.Batch) (n uint64, err error) {
	in, err := w.Expander.Open(ctx, w.topic.Definition, *w.row.Ref, b)
	if err != nil {
		return 0, err
	}
	defer in.Close() //nolint:errcheck // read-only
	for ; ; n++ {
		if _, err = in.Next(); err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// writeRows writes the rows. That they cannot be read now says nothing of the object:
// they could a moment ago.
func (w *rewriter) writeRows(ctx context.Context, b ref.Batch, want uint64) error {
	in, err := w.Expander.Open(ctx, w.topic.Definition, *w.row.Ref, b)
	if err != nil {
		return w.postponed(ctx, err)
	}
	defer in.Close() //nolint:errcheck // read-only
	for n := uint64(0); ; n++ {
		row, err := in.Next()
		switch {
		case err == io.EOF && n == want: //nolint:errorlint // the contract is io.EOF itself
			return nil
		case err == io.EOF || err == nil && n == want: //nolint:errorlint // as above
			return &postponedError{err: fmt.Errorf("the object of the batch reference at offset %d had %d rows, and has other ones now", w.row.Offset, want)}
		case err != nil:
			return w.postponed(ctx, err)
		}
		w.row.Batch, w.row.Value, w.row.Error = int32(n), row.Value, clip(row.Rejected)
		if err := w.put(ctx); err != nil {
			return err
		}
		if n%batchItems == batchItems-1 {
			w.tell()
		}
	}
}

// definite tells whether an object cannot be read, now and later. One that was not there
// when its reference was committed may still come; and a bucket that is not there says
// something about the endpoint, not about the object.
func (w *rewriter) definite(err error) bool {
	if errors.Is(err, object.ErrNoBucket) {
		return false
	}
	late := w.row.Pending && errors.Is(err, object.ErrNotFound) && w.Now().Before(w.row.Time.Add(pendingFor))
	return expand.Definite(err) && !late
}

func (w *rewriter) postponed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var other *ElsewhereError
	return &postponedError{errors.As(err, &other), fmt.Errorf("batch reference at offset %d: %w", w.row.Offset, err)}
}

// clip keeps a text of others short and on one line.
func clip(text string) string {
	const most = 1000
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, text), "\ufffd")
}
