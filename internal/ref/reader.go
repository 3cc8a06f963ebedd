package ref

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strconv"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
)

// Getter is the part of [object.Store] that a [Reader] needs.
type Getter interface {
	Get(ctx context.Context, n Name, off int64, ifMatch string) (io.ReadCloser, object.Info, error)
}

// Reader reads the object of a reference and verifies it. It opens the object at
// the first Read, and only if it is the one that the reference is about. io.EOF
// says that all its bytes were read, that they are as many as they should be, and
// that their SHA-256 is the reference's, if that has one. So what was read before
// another error proves nothing. It never gives more bytes than the object should
// have.
//
// Errors say what was wrong: *ParseError, *MismatchError, those of package
// object; [StateOf] has a word for each. They stay. A connection that breaks is
// made once more, where it broke, to the same object.
//
// A Reader is for one goroutine at a time, and is closed by whoever made it.
type Reader struct {
	ctx     context.Context // an io.Reader has no other place for it
	store   Getter
	ref     record.Ref
	name    Name
	info    object.Info
	body    io.ReadCloser // nil: not open yet
	pos     int64
	sum     hash.Hash // nil: the reference has no digest
	resumed bool
	err     error // of the next Read
}

// NewReader makes a reader. It does nothing yet. ctx is for all of its reading.
func NewReader(ctx context.Context, store Getter, f record.Ref) *Reader {
	r := &Reader{ctx: ctx, store: store, ref: f}
	if f.SHA256 != nil {
		r.sum = sha256.New()
	}
	r.name, r.err = NameOf(f)
	return r
}

// Read implements [io.Reader].
func (r *Reader) Read(p []byte) (int, error) {
	if r.err == nil && r.body == nil {
		r.err = r.open()
	}
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if r.pos == r.info.Size {
		r.err = r.finish()
		return 0, r.err
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.info.Size-r.pos)])
	r.pos += int64(n)
	if r.sum != nil {
		r.sum.Write(p[:n])
	}
	if err != nil && r.pos < r.info.Size {
		r.err = r.resume(err)
	}
	return n, r.err
}

// Close gives the connection back. Reads after it fail.
func (r *Reader) Close() error {
	r.err = fs.ErrClosed
	if r.body == nil {
		return nil
	}
	body := r.body
	r.body = nil
	return body.Close()
}

// open gets the object and compares it before its first byte is given away.
func (r *Reader) open() error {
	body, info, err := r.store.Get(r.ctx, r.name, 0, unquote(r.ref.ETag))
	if errors.Is(err, object.ErrChanged) && r.ref.SHA256 != nil {
		// Perhaps the same bytes, put there once more: Compare knows by the digest.
		body, info, err = r.store.Get(r.ctx, r.name, 0, "")
	}
	if err != nil {
		return r.changed(err)
	}
	if err := Compare(r.ref, info); err != nil {
		_ = body.Close()
		return r.wrap(err)
	}
	r.body, r.info = body, info
	return nil
}

// resume goes on after err where the bytes have stopped too early.
func (r *Reader) resume(err error) error {
	var broken *object.UnavailableError
	short := errors.Is(err, io.EOF)
	switch {
	case !short && !errors.As(err, &broken):
		return err
	case short && r.resumed:
		return r.wrap(&MismatchError{"size", strconv.FormatInt(r.info.Size, 10), strconv.FormatInt(r.pos, 10)})
	case r.resumed || r.info.ETag == "": // without an ETag, the rest might be another object's
		if short {
			err = io.ErrUnexpectedEOF
		}
		return r.wrap(err)
	}
	r.resumed = true
	_ = r.body.Close()
	body, info, err := r.store.Get(r.ctx, r.name, r.pos, r.info.ETag)
	if err != nil {
		r.body = nil
		return r.changed(err)
	}
	r.body = body
	if info.Size != r.info.Size {
		return r.wrap(&MismatchError{"size", strconv.FormatInt(r.info.Size, 10), strconv.FormatInt(info.Size, 10)})
	}
	return nil
}

// finish verifies what was read, at the end of the object.
func (r *Reader) finish() error {
	var more [1]byte
	n, err := io.ReadFull(r.body, more[:])
	if n > 0 {
		size := strconv.FormatInt(r.info.Size, 10)
		return r.wrap(&MismatchError{"size", size, "more than " + size})
	}
	if r.sum == nil {
		return err
	}
	if want, got := r.ref.SHA256, r.sum.Sum(nil); !bytes.Equal(got, want) {
		return r.wrap(&MismatchError{"sha256", fmt.Sprintf("%x", want), fmt.Sprintf("%x", got)})
	}
	return io.EOF
}

// changed names the ETag when that is what did not match.
func (r *Reader) changed(err error) error {
	if want := unquote(r.ref.ETag); want != "" && errors.Is(err, object.ErrChanged) {
		return fmt.Errorf("%w: %w", err, &MismatchError{What: "etag", Want: want})
	}
	return err
}

func (r *Reader) wrap(err error) error { return fmt.Errorf("read %.200q: %w", r.name.String(), err) }
