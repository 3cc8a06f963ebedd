package record

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

// source reads Avro data from a stream. It tells a file that ends too soon (a
// FormatError) from a stream that failed (the stream's error, wrapped), even if
// that calls itself an unexpected EOF.
type source struct {
	r   *bufio.Reader
	pos int64
}

// end returns io.EOF if the stream is at its end, nil if there is more.
func (s *source) end() error {
	_, err := s.r.Peek(1)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fmt.Errorf("chunk file at byte %d: %w", s.pos, err)
}

func (s *source) failed(what string, err error) error {
	if err == io.EOF { //nolint:errorlint // that is the contract of io.Reader
		return &FormatError{what + ": the file ends within it", int(s.pos)}
	}
	return fmt.Errorf("chunk file at byte %d: %w", s.pos, err)
}

// full fills b.
func (s *source) full(b []byte, what string) error {
	for len(b) > 0 {
		n, err := s.r.Read(b)
		s.pos += int64(n)
		b = b[n:]
		if err != nil && len(b) > 0 {
			return s.failed(what, err)
		}
	}
	return nil
}

// take appends n bytes to dst. It grows with what comes, not with what is
// claimed.
func (s *source) take(dst []byte, n int, what string) ([]byte, error) {
	const step = 1 << 20
	for n > 0 {
		k, have := min(n, step), len(dst)
		if cap(dst)-have < k {
			dst = append(dst, make([]byte, k)...)
		}
		dst = dst[:have+k]
		if err := s.full(dst[have:], what); err != nil {
			return dst[:have], err
		}
		n -= k
	}
	return dst, nil
}

// long reads an Avro long.
func (s *source) long(what string) (int64, error) {
	var b [10]byte
	for n := range b {
		x, err := s.r.ReadByte()
		if err != nil {
			return 0, s.failed(what, err)
		}
		s.pos++
		b[n] = x
		if x < 0x80 {
			return s.parse(b[:n+1], what)
		}
	}
	return s.parse(b[:], what)
}

func (s *source) parse(b []byte, what string) (int64, error) {
	c := cursor{data: b, field: what}
	n := c.long()
	if c.err != nil {
		c.err.Offset += int(s.pos) - len(b)
		return 0, c.err
	}
	return n, nil
}

// text reads a string or bytes of the header, and takes its size from room.
func (s *source) text(room *int64) ([]byte, error) {
	n, err := s.long("header")
	if err != nil {
		return nil, err
	}
	*room -= 16 // for what it costs beside its bytes
	if n < 0 || n > *room {
		return nil, &FormatError{fmt.Sprintf("header: a length of %d bytes is negative or too large", n), int(s.pos)}
	}
	*room -= n
	return s.take([]byte{}, int(n), "header")
}
