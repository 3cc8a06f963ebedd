package rows

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds how far back a zstd frame may refer, and with it the memory that
// unpacking takes. zstd's own default limit is 128 MiB, of which only --ultra and
// --long make use.
const maxWindow = 64 << 20

// stream is a file from its start to its end, unpacked. What it reads must be
// checked by err: only that tells a bad file from one that could not be fetched.
type stream struct {
	src   *source
	in    io.Reader
	close func()
	pos   int64 // bytes given so far, unpacked
	what  string
}

// openStream gives the stream of a file. A file of no bytes is an empty one,
// however it should be packed.
func openStream(f File, c Compression) (*stream, error) {
	s := &stream{src: &source{f: f, size: f.Size()}, close: func() {}, what: "the file cannot be read on"}
	if s.in = s.src; s.src.size == 0 {
		return s, nil
	}
	switch c {
	case None:
	case Gzip:
		s.what = "the gzip file cannot be unpacked further"
		s.in = &lazyGzip{src: bufio.NewReaderSize(s.src, 64<<10)}
	case Zstd:
		s.what = "the zstd file cannot be unpacked further"
		z, err := zstd.NewReader(bufio.NewReaderSize(s.src, 64<<10), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		s.in, s.close = z, z.Close
	default:
		return nil, fmt.Errorf("compression %q is not known: there are gzip and zstd", c)
	}
	return s, nil
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.pos += int64(n)
	return n, err
}

// Close frees what unpacking holds.
func (s *stream) Close() error {
	s.close()
	return nil
}

// err makes of an error of Read, or one that it led to, what Reader.Next gives at
// row: io.EOF, the File's own error, or a *FileError.
func (s *stream) err(err error, row uint64) error {
	switch {
	case s.src.err != nil:
		return fmt.Errorf("reading at byte %d of %d: %w", s.src.pos, s.src.size, s.src.err)
	case errors.Is(err, io.EOF):
		return io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &FileError{s.what + ": it is cut off", row, s.pos, nil}
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &FileError{fmt.Sprintf("%s: its window is larger than %d bytes", s.what, maxWindow), row, s.pos, nil}
	}
	return &FileError{s.what, row, s.pos, err}
}

// source reads a File once. An error of it is kept: unpackers do not give it as it
// was.
type source struct {
	f         File
	pos, size int64
	err       error
}

func (s *source) Read(p []byte) (int, error) {
	switch {
	case s.err != nil:
		return 0, s.err
	case s.pos >= s.size:
		return 0, io.EOF
	}
	p = p[:min(int64(len(p)), s.size-s.pos)]
	n, err := s.f.ReadAt(p, s.pos)
	s.pos += int64(n)
	switch {
	case n == len(p): // ReadAt may tell of the end with the last bytes
		return n, nil
	case err == nil || errors.Is(err, io.EOF):
		err = fmt.Errorf("the file ended early: %w", io.ErrUnexpectedEOF)
	}
	s.err = err
	return n, s.err
}

// lazyGzip reads the first header with the first bytes, so that what is wrong with
// it is found where all else is.
type lazyGzip struct {
	src *bufio.Reader
	z   *gzip.Reader
}

func (l *lazyGzip) Read(p []byte) (int, error) {
	if l.z == nil {
		z, err := gzip.NewReader(l.src)
		if errors.Is(err, io.EOF) { // there were some bytes
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		l.z = z
	}
	return l.z.Read(p)
}
