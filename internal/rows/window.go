package rows

import (
	"bytes"
	"io"
)

const firstWindow = 256 << 10

// window is the part of a stream in which the next row is looked for. It grows with
// what is asked for, up to twice that.
type window struct {
	in   *stream
	buf  []byte
	from int   // where the bytes begin that are not taken yet
	err  error // of the stream; the bytes before it are still there
	kept []byte
}

// bytes are what has been read and not been taken. They are valid until the next
// call of more.
func (w *window) bytes() []byte { return w.buf[w.from:] }

// take passes over n of the bytes.
func (w *window) take(n int) { w.from += n }

// ended tells that no more bytes will come, and none is lost.
func (w *window) ended() bool { return w.err == io.EOF } //nolint:errorlint // io.Reader gives it as it is

// more reads on. It is false if there is nothing more to come.
func (w *window) more() bool {
	if w.err != nil {
		return false
	}
	w.room()
	n := len(w.buf)
	for range 100 {
		m, err := w.in.Read(w.buf[n:cap(w.buf)])
		if w.buf, w.err = w.buf[:n+m], err; m > 0 || err != nil {
			return m > 0
		}
	}
	w.err = io.ErrNoProgress
	return false
}

// room makes room at the end for more bytes, an eighth of the whole at least.
func (w *window) room() {
	rest, most := w.buf[w.from:], cap(w.buf)
	switch {
	case most == 0:
		w.buf = make([]byte, 0, firstWindow)
	case len(rest) > most-most/8:
		w.buf = append(make([]byte, 0, 2*most), rest...)
	case len(rest) <= most/8 || most-len(w.buf) < most/8:
		w.buf = w.buf[:copy(w.buf[:len(rest)], rest)]
	default:
		return
	}
	w.from = 0
}

// start is called before all else: it passes over a byte order mark, and refuses
// text of another encoding that has one.
func (w *window) start() error {
	for len(w.bytes()) < 3 && w.more() {
	}
	switch b := w.bytes(); {
	case bytes.HasPrefix(b, []byte("\xEF\xBB\xBF")):
		w.take(3)
	case bytes.HasPrefix(b, []byte("\xFF\xFE")), bytes.HasPrefix(b, []byte("\xFE\xFF")):
		return &FileError{"the text is UTF-16, not UTF-8", 0, 0, nil}
	}
	return nil
}

// line is a line without its end, which is a line feed or a carriage return and a
// line feed.
type line struct {
	text  []byte // valid until the window is asked for more
	size  int64  // its bytes; more than text has if it is long
	long  bool   // longer than the limit; text is then what is kept of it
	blank bool   // nothing but spaces and tabs
}

// find gives the length of the line at the start of the bytes, without and with its
// end. More than limit: it has none within limit bytes. The end of the stream ends a
// line, an error of it does not.
func (w *window) find(limit int) (n, withEnd int, err error) {
	for seen := 0; ; {
		b := w.bytes()
		if i := bytes.IndexByte(b[seen:], '\n'); i >= 0 {
			n = seen + i
			return len(trimCR(b[:n])), n + 1, nil
		}
		if seen = len(b); seen > limit+1 { // a carriage return does not count
			return seen, seen, nil
		}
		if w.more() {
			continue
		}
		if !w.ended() || seen == 0 {
			return 0, 0, w.err
		}
		return len(trimCR(b)), seen, nil
	}
}

// line takes the next line.
func (w *window) line(limit int) (line, error) {
	n, withEnd, err := w.find(limit)
	if err != nil {
		return line{}, err
	}
	if n > limit {
		return w.longLine()
	}
	text := w.bytes()[:n]
	w.take(withEnd)
	return line{text: text, size: int64(n), blank: isBlank(text)}, nil
}

// longLine takes a line of any length, and keeps its first bytes.
func (w *window) longLine() (line, error) {
	l := line{long: true, blank: true}
	w.kept = w.kept[:0]
	last := byte(0)
	for ended := false; !ended; {
		part, _, found := bytes.Cut(w.bytes(), []byte{'\n'})
		l.size += int64(len(part))
		w.kept = append(w.kept, part[:min(len(part), KeptOfLong-len(w.kept))]...)
		l.blank = l.blank && isBlank(part)
		if len(part) > 0 {
			last = part[len(part)-1]
		}
		w.take(len(part))
		switch {
		case found:
			w.take(1)
			ended = true
		case w.more():
		case w.ended():
			ended = true
		default:
			return line{}, w.err
		}
	}
	if last == '\r' {
		l.size--
	}
	l.text = w.kept[:min(int64(len(w.kept)), l.size)]
	return l, nil
}

func trimCR(b []byte) []byte {
	if n := len(b); n > 0 && b[n-1] == '\r' {
		return b[:n-1]
	}
	return b
}

func isBlank(b []byte) bool {
	for _, c := range b {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
