package expand

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
)

// file is the object of a reference as a [rows.File], with its digest. It is for one
// goroutine.
type file struct {
	*object.File
	name object.Name
	head []byte // of the object, so that it is not fetched twice

	want   []byte // digest; nil: none to compare
	sum    hash.Hash
	hashed int64 // how far sum has got: bytes that come out of order are read once more in the end
}

// errNoETag: other requests may then be answered from another object.
var errNoETag = errors.New("the endpoint tells neither its ETag nor its version, so that it cannot be read by several requests")

// openFile looks at the object, and compares it before anything is read.
func openFile(ctx context.Context, store *object.Store, f record.Ref) (*file, error) {
	n, err := ref.NameOf(f)
	if err != nil {
		return nil, err
	}
	info, err := store.Head(ctx, n.Bucket, n.Key, n.Version)
	if err != nil {
		return nil, err
	}
	if err := ref.Compare(f, info); err != nil {
		return nil, fmt.Errorf("read %.200q: %w", n.String(), err)
	}
	if info.ETag == "" && info.Version == "" {
		return nil, &object.UnavailableError{Op: "get", Name: n, Err: errNoETag}
	}
	if n.Version == "" {
		n.Version = info.Version
	}
	return &file{File: store.File(ctx, n, info.Size, info.ETag), name: n, want: f.SHA256, sum: sha256.New()}, nil
}

// is compares the object's beginning with what the reference says of it.
func (f *file) is(b ref.Batch) error {
	head, err := headOf(f.File)
	if err != nil {
		return err
	}
	f.head = head
	return isOf(b, head)
}

func headOf(f rows.File) ([]byte, error) {
	head := make([]byte, min(rows.HeadSize, f.Size()))
	if _, err := io.ReadFull(io.NewSectionReader(f, 0, f.Size()), head); err != nil {
		return nil, err
	}
	return head, nil
}

// ReadAt implements [io.ReaderAt].
func (f *file) ReadAt(p []byte, off int64) (n int, err error) {
	if off >= 0 && off < int64(len(f.head)) {
		n = copy(p, f.head[off:])
	}
	if n < len(p) {
		var more int
		more, err = f.File.ReadAt(p[n:], off+int64(n))
		n += more
	}
	f.hash(p[:n], off)
	return n, err
}

// hash takes bytes that continue those before.
func (f *file) hash(p []byte, off int64) {
	if skip := f.hashed - off; f.want != nil && skip >= 0 && skip < int64(len(p)) {
		f.sum.Write(p[skip:])
		f.hashed += int64(len(p)) - skip
	}
}

// verify reads what was not read in order, and compares the digest.
func (f *file) verify() error {
	if f.want == nil {
		return nil
	}
	if _, err := io.Copy(io.Discard, io.NewSectionReader(f, f.hashed, f.Size()-f.hashed)); err != nil {
		return err
	}
	if got := f.sum.Sum(nil); !bytes.Equal(got, f.want) {
		return fmt.Errorf("read %.200q: %w", f.name.String(), &ref.MismatchError{What: "sha256", Want: fmt.Sprintf("%x", f.want), Got: fmt.Sprintf("%x", got)})
	}
	return nil
}
