package filer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
)

// cachedBytes is about what a [ReaderAt] keeps: the places of some eight columns of a
// file that is read by columns.
const cachedBytes = 8 * PartSize

// ReaderAt reads the bytes of one file at any place. It reads blobs as a whole, which
// the filer checks against their checksums then, and keeps those that were read last.
// It may be used concurrently; reads wait for each other.
type ReaderAt struct {
	ctx   context.Context // of the reader: reads are part of that call
	store Store
	entry Entry

	mu    sync.Mutex
	spans []span // in order
	kept  []kept // the last used one last
	size  int64  // of kept
}

// span is what is read at a time.
type span struct{ off, size int64 }

type kept struct {
	span int
	data []byte
}

// NewReaderAt reads e as it was found, whatever is at its path now. Reads that fail are
// repeated until they succeed, fail definitely, or ctx ends. [ErrNotFound]: the file was
// deleted since.
func NewReaderAt(ctx context.Context, s Store, e Entry) *ReaderAt {
	r := &ReaderAt{ctx: ctx, store: s, entry: e}
	if r.byBlobs() {
		off := int64(0)
		for _, b := range e.Blobs {
			r.spans = append(r.spans, span{off, b.Size})
			off += b.Size
		}
		return r
	}
	for off := int64(0); off < e.Size; off += PartSize {
		r.spans = append(r.spans, span{off, min(PartSize, e.Size-off)})
	}
	return r
}

// byBlobs tells whether the blobs are those that a [Store] uploaded, one after the other.
func (r *ReaderAt) byBlobs() bool { return r.entry.ID != "" && len(r.entry.Blobs) > 0 }

// Size is the file's.
func (r *ReaderAt) Size() int64 { return r.entry.Size }

// ReadAt implements [io.ReaderAt].
func (r *ReaderAt) ReadAt(p []byte, off int64) (int, error) {
	switch {
	case off < 0:
		return 0, fmt.Errorf("read %s at %d: %w", r.entry.Path, off, ErrInvalid)
	case r.entry.Content != nil || r.entry.Size == 0:
		return bytes.NewReader(r.entry.Content).ReadAt(p, off)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for n < len(p) {
		at := off + int64(n)
		i := r.find(at)
		if at >= r.entry.Size || i == len(r.spans) {
			return n, io.EOF
		}
		data, err := r.span(i)
		if err != nil {
			return n, fmt.Errorf("read %s at %d: %w", r.entry.Path, at, err)
		}
		n += copy(p[n:], data[at-r.spans[i].off:])
	}
	return n, nil
}

// find gives the span that has the byte at off.
func (r *ReaderAt) find(off int64) int {
	i, _ := slices.BinarySearchFunc(r.spans, off, func(s span, off int64) int {
		if s.off+s.size <= off {
			return -1
		}
		return 1
	})
	return i
}

// span gives the bytes of a span, which is kept or read.
func (r *ReaderAt) span(i int) ([]byte, error) {
	at := slices.IndexFunc(r.kept, func(k kept) bool { return k.span == i })
	if at >= 0 {
		k := r.kept[at]
		r.kept = append(slices.Delete(r.kept, at, at+1), k)
		return k.data, nil
	}
	room := r.room(r.spans[i].size)
	err := Retry(r.ctx, func(ctx context.Context) error { return r.fetch(ctx, i, room) })
	if err != nil {
		return nil, err
	}
	r.kept = append(r.kept, kept{i, room})
	r.size += int64(len(room))
	return room, nil
}

// room makes room for a span: that of one that was not used for long, if it fits.
func (r *ReaderAt) room(size int64) []byte {
	var room []byte
	for len(r.kept) > 0 && r.size+size > cachedBytes {
		if old := r.kept[0].data; int64(cap(old)) >= size {
			room = old[:size]
		}
		r.size -= int64(len(r.kept[0].data))
		r.kept = slices.Delete(r.kept, 0, 1)
	}
	if room == nil {
		room = make([]byte, size)
	}
	return room
}

// fetch reads a span into room.
func (r *ReaderAt) fetch(ctx context.Context, i int, room []byte) error {
	e, off := r.entry, r.spans[i].off
	if r.byBlobs() {
		e.Blobs, e.Size, off = e.Blobs[i:i+1], e.Blobs[i].Size, 0
	}
	in, err := r.store.Open(ctx, e, off)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // it was only read
	if n, err := io.ReadFull(in, room); err != nil {
		return fmt.Errorf("after %d of %d bytes: %w", n, len(room), err)
	}
	if !r.byBlobs() {
		return nil
	}
	// The end is where the checksum is compared.
	switch n, err := in.Read(make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w: a blob has more than its %d bytes", ErrCorrupt, len(room))
	case err != io.EOF:
		return err
	}
	return nil
}
