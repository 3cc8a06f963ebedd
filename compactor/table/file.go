package table

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/spillway-mq/spillway/internal/filer"
)

// file reads one file. Metadata and small files are fetched as a whole when the
// first byte is asked for; of a data file, of which only the footer is read, each
// ReadAt fetches what it needs. ReadAt may be called concurrently.
type file struct {
	io    *fileIO
	url   string
	entry filer.Entry
	pos   int64

	once sync.Once
	data []byte
	err  error
}

var _ iceio.File = (*file)(nil)

// wholeFile is the size up to which a data file is fetched as a whole.
const wholeFile = 1 << 20

// ReadAt implements io.ReaderAt.
func (f *file) ReadAt(p []byte, off int64) (int, error) {
	size := f.entry.Size
	switch {
	case off < 0:
		return 0, &FileError{"read", f.url, fmt.Errorf("%w: at %d", filer.ErrInvalid, off)}
	case off >= size:
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), size-off)]
	if err := f.readFull(want, off); err != nil {
		return 0, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

func (f *file) readFull(p []byte, off int64) error {
	metadata := isMetadata(f.entry.Path)
	switch {
	case metadata && f.entry.Size > maxMetadata:
		return &FileError{"read", f.url, fmt.Errorf("%w: %d bytes of metadata", filer.ErrInvalid, f.entry.Size)}
	case !metadata && f.entry.Size > wholeFile:
		return f.fetch(p, off)
	}
	f.once.Do(func() {
		f.data = make([]byte, f.entry.Size)
		f.err = f.fetch(f.data, 0)
	})
	if f.err != nil {
		return f.err
	}
	copy(p, f.data[off:])
	return nil
}

// fetch reads len(p) bytes from off, which are there.
func (f *file) fetch(p []byte, off int64) error {
	return f.io.do("read", f.url, func(ctx context.Context) error {
		r, err := f.io.store.Open(ctx, f.entry, off)
		if err != nil {
			return err
		}
		_, err = io.ReadFull(r, p)
		return errors.Join(err, r.Close())
	})
}

// Read implements io.Reader.
func (f *file) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := f.ReadAt(p, f.pos)
	f.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker.
func (f *file) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.pos
	case io.SeekEnd:
		offset += f.entry.Size
	}
	if offset < 0 {
		return f.pos, &FileError{"seek", f.url, fmt.Errorf("%w: to %d", filer.ErrInvalid, offset)}
	}
	f.pos = offset
	return offset, nil
}

// Close implements io.Closer. Nothing is held open between reads.
func (f *file) Close() error { return nil }

// Stat implements fs.File.
func (f *file) Stat() (fs.FileInfo, error) { return fileInfo{f.entry}, nil }

// fileInfo is what fs.File wants to be told of an entry.
type fileInfo struct{ entry filer.Entry }

func (i fileInfo) Name() string       { return i.entry.Name() }
func (i fileInfo) Size() int64        { return i.entry.Size }
func (i fileInfo) Mode() fs.FileMode  { return 0o444 }
func (i fileInfo) ModTime() time.Time { return i.entry.MTime }
func (i fileInfo) IsDir() bool        { return i.entry.IsDir }
func (i fileInfo) Sys() any           { return nil }

// writer collects what becomes a file when it is closed.
type writer struct {
	io     *fileIO
	url    string
	buf    bytes.Buffer
	closed bool
}

var _ iceio.FileWriter = (*writer)(nil)

// Write implements io.Writer.
func (w *writer) Write(p []byte) (int, error) {
	if w.buf.Len()+len(p) > maxMetadata {
		return 0, &FileError{"write", w.url, fmt.Errorf("%w: more than %d bytes of metadata", filer.ErrInvalid, maxMetadata)}
	}
	return w.buf.Write(p)
}

// ReadFrom implements io.ReaderFrom.
func (w *writer) ReadFrom(r io.Reader) (int64, error) {
	n, err := w.buf.ReadFrom(io.LimitReader(r, int64(maxMetadata-w.buf.Len())+1))
	if err == nil && w.buf.Len() > maxMetadata {
		_, err = w.Write(nil)
	}
	return n, err
}

// Close implements io.Closer. The file is durable when it returns nil. Closing
// again does nothing.
func (w *writer) Close() error {
	if w.closed {
		return nil
	}
	w.closed = true
	return w.io.WriteFile(w.url, w.buf.Bytes())
}
