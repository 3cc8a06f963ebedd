package filer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
)

// AttrDigest names the attribute that a [FileWriter] gives a file: "sha256:" and the
// hexadecimal digest of its bytes.
const AttrDigest = "Digest"

// ErrAborted says that the file was given up.
var ErrAborted = errors.New("the file was aborted")

// FileWriter writes one file of any size that is known only at its end, and whose name
// may say what is in it. Bytes are uploaded while more are written, a few parts at a
// time, and no file names them before [FileWriter.Finish]. It takes about 10 MiB,
// however large the file. Abort may be called at any time; all else is for one
// goroutine.
type FileWriter struct {
	ctx    context.Context // of the uploads; ended by Abort and by the first that fails
	cancel context.CancelCauseFunc
	whole  context.Context // the caller's
	store  Store
	dir    string
	how    Storage
	parts  *errgroup.Group
	free   chan []byte // room for parts

	mu    sync.Mutex
	part  []byte // not yet uploaded
	sum   hash.Hash
	size  int64
	blobs []*Blob // in order; empty until uploaded
	done  bool
}

// NewFileWriter begins a file below dir, as dir's storage rules say.
func NewFileWriter(ctx context.Context, s Store, dir string) *FileWriter {
	return NewFileWriterAs(ctx, s, dir, Storage{})
}

// NewFileWriterAs is [NewFileWriter] with settings that win over the storage rules.
func NewFileWriterAs(ctx context.Context, s Store, dir string, how Storage) *FileWriter {
	w := &FileWriter{whole: ctx, store: s, dir: dir, how: how, sum: sha256.New(), free: make(chan []byte, partsAtOnce+1)}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.parts = &errgroup.Group{}
	w.parts.SetLimit(partsAtOnce)
	return w
}

// Write takes bytes, and waits while too many are on their way. Uploads are repeated
// until they succeed, fail definitely, or the context ends; their error comes from a
// later call.
func (w *FileWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for n < len(p) {
		if err := w.state(); err != nil {
			return n, err
		}
		if w.part == nil {
			w.part = w.room()
		}
		k := min(PartSize-len(w.part), len(p)-n)
		w.part = append(w.part, p[n:n+k]...)
		_, _ = w.sum.Write(p[n : n+k]) // never fails
		n += k
		w.size += int64(k)
		if len(w.part) == PartSize {
			w.upload()
		}
	}
	return n, nil
}

// state tells why nothing can be written any more.
func (w *FileWriter) state() error {
	switch err := context.Cause(w.ctx); {
	case w.done && !errors.Is(err, ErrAborted):
		return fmt.Errorf("write below %s: %w: the file is finished", w.dir, ErrInvalid)
	case err != nil:
		return fmt.Errorf("write below %s: %w", w.dir, err)
	}
	return nil
}

func (w *FileWriter) room() []byte {
	select {
	case b := <-w.free:
		return b
	default:
		return make([]byte, 0, PartSize)
	}
}

// upload sends the part off.
func (w *FileWriter) upload() {
	data, blob := w.part, &Blob{}
	w.part = nil
	w.blobs = append(w.blobs, blob)
	w.parts.Go(func() error {
		err := Retry(w.ctx, func(ctx context.Context) (err error) {
			*blob, err = w.store.UploadAs(ctx, w.dir+"/part", data, w.how)
			return err
		})
		if err != nil {
			*blob = Blob{}
			w.cancel(err) // the first one stays
		}
		w.free <- data[:0]
		return err
	})
}

// Sum is the digest of what was written so far.
func (w *FileWriter) Sum() [32]byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return [32]byte(w.sum.Sum(nil))
}

// Size is how much was written so far.
func (w *FileWriter) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Finish creates the file at path, exclusively and settled as by [Create], with attrs
// and [AttrDigest]. On nil the file there has the bytes that were written: either this
// wrote it, or it existed, and what was uploaded is discarded. A file with other bytes
// at path is an [ErrCorrupt], since its name is about bytes. After any other error the
// file may be there. The writer is done either way.
func (w *FileWriter) Finish(path string, attrs Attrs) (e Entry, existed bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.state(); err != nil {
		return Entry{}, false, errors.Join(err, w.drop())
	}
	w.done = true
	f := File{ID: NewID(), Attrs: maps.Clone(attrs)}
	if f.Attrs == nil {
		f.Attrs = Attrs{}
	}
	f.Attrs[AttrDigest] = "sha256:" + hex.EncodeToString(w.sum.Sum(nil))
	switch {
	case len(w.blobs) == 0 && len(w.part) <= InlineLimit:
		f.Content = w.part
	case len(w.part) > 0:
		w.upload()
	}
	if err := w.parts.Wait(); err != nil {
		return Entry{}, false, errors.Join(fmt.Errorf("write %s: %w", path, err), w.drop())
	}
	f.Blobs = w.uploaded()
	e, err = Create(w.ctx, w.store, path, f)
	w.cancel(nil)
	return w.settled(e, f, err)
}

// settled decides what the outcome of the create means for the bytes.
func (w *FileWriter) settled(e Entry, f File, err error) (Entry, bool, error) {
	switch {
	case err == nil:
		return e, false, nil
	case errors.Is(err, ErrExists):
		return w.met(e, f, errors.Is(err, ErrStray))
	case refused(err):
		return Entry{}, false, errors.Join(err, w.drop())
	}
	return Entry{}, false, err // the file may be there, and name the bytes
}

// met decides what a file that was there already means. One that says it is the same and
// has lost its bytes gets ours, in one atomic change, unless a request of ours may still
// arrive that names them too.
func (w *FileWriter) met(e Entry, f File, stray bool) (Entry, bool, error) {
	same := e.Size == w.size && e.Attrs[AttrDigest] == f.Attrs[AttrDigest]
	var err error
	if !same {
		err = fmt.Errorf("%s: %w: it has %d bytes (%s) where %d (%s) belong", e.Path, ErrCorrupt,
			e.Size, e.Attrs[AttrDigest], w.size, f.Attrs[AttrDigest])
	} else if !stray && !w.sound(e) {
		f.Attrs[AttrDigest], f.ID = e.Attrs[AttrDigest], NewID()
		if err = Replace(w.whole, w.store, e.Path, e.ID, f); err == nil {
			e, err = w.store.Lookup(w.whole, e.Path)
			return e, true, err
		}
		if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrNotFound) && !refused(err) {
			return e, true, err // the file may name our bytes
		}
	}
	if !stray {
		_ = w.drop() // what stays is lost space
	}
	return e, true, err
}

// sound tells whether the bytes of a file can be read, and have its digest. It is false
// only if they are known not to.
func (w *FileWriter) sound(e Entry) bool {
	sum := sha256.New()
	err := Retry(w.whole, func(ctx context.Context) error {
		sum.Reset()
		r, err := w.store.Open(ctx, e, 0)
		if err != nil {
			return err
		}
		defer r.Close() //nolint:errcheck // read-only
		_, err = io.Copy(sum, r)
		return err
	})
	if err != nil {
		return !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCorrupt)
	}
	return "sha256:"+hex.EncodeToString(sum.Sum(nil)) == e.Attrs[AttrDigest]
}

// uploaded gives the blobs that are there.
func (w *FileWriter) uploaded() []Blob {
	var blobs []Blob
	for _, b := range w.blobs {
		if b.ID != "" {
			blobs = append(blobs, *b)
		}
	}
	return slices.Clip(blobs)
}

// drop discards what is uploaded, as far as it can.
func (w *FileWriter) drop() error {
	w.cancel(ErrAborted)
	_ = w.parts.Wait() // the uploads have ended; why is known
	blobs := w.uploaded()
	w.blobs, w.part, w.done = nil, nil, true
	return discardAll(context.WithoutCancel(w.whole), w.store, blobs)
}

// Abort gives the file up and discards what was uploaded, as far as it can: the rest is
// lost space. After [FileWriter.Finish] it does nothing.
func (w *FileWriter) Abort() {
	w.cancel(ErrAborted) // a Write that waits for room goes on
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.done {
		_ = w.drop()
	}
}
