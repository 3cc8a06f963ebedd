package rows

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// ndjson reads lines of JSON values. Any value is a row, and its bytes are kept as
// they are: numbers of any length, names that are there twice, escapes.
type ndjson struct {
	in      *stream
	w       window
	max     int
	n, from uint64
	started bool
	err     error
}

func openNDJSON(in *stream, o Options) Reader {
	return &ndjson{in: in, w: window{in: in}, max: o.MaxRow, from: o.From}
}

func (r *ndjson) Close() error { return r.in.Close() }

func (r *ndjson) Next() (Row, error) {
	if !r.started {
		r.started = true
		r.err = r.w.start()
	}
	for r.err == nil {
		l, err := r.w.line(r.max)
		switch {
		case err != nil:
			r.err = r.in.err(err, r.n)
		case l.blank:
		case r.n < r.from:
			r.n++
		default:
			r.n++
			return Row{r.n - 1, l.text, r.judge(l)}, nil
		}
	}
	return Row{}, r.err
}

func (r *ndjson) judge(l line) string {
	switch {
	case l.long:
		return tooLong(l.size, r.max)
	case !utf8.Valid(l.text):
		return notUTF8(l.text)
	case tooDeep(l.text):
		return "the line is not JSON, or is nested over 10000 deep"
	case !gjson.ValidBytes(l.text):
		return "the line is not a JSON value"
	}
	return ""
}

func tooLong(size int64, limit int) string {
	return fmt.Sprintf("the row has %d bytes, at most %d are allowed", size, limit)
}

// notUTF8 says where text is not UTF-8.
func notUTF8(text []byte) string {
	at := 0
	for at < len(text) {
		r, n := utf8.DecodeRune(text[at:])
		if r == utf8.RuneError && n == 1 {
			break
		}
		at += n
	}
	return fmt.Sprintf("byte %d of the row is not UTF-8", at)
}

// tooDeep tells of a value that it is not JSON, or nested so deep that looking into
// it would take a large stack. encoding/json, which bounds the depth, is asked only
// about values that could be so.
func tooDeep(value []byte) bool {
	const most = 10_000
	return len(value) > most && bytes.Count(value, []byte("["))+bytes.Count(value, []byte("{")) > most && !json.Valid(value)
}
