package rows

import (
	"bytes"
	"fmt"
)

// csvField is where a field's text lies in its row, without quotes around it.
type csvField struct {
	from, to int
	doubled  bool // it has quotes in it, doubled
}

type scanState uint8

const (
	atField  scanState = iota // before the first byte of a field
	inText                    // in a field without quotes
	inQuotes                  // in a field with quotes
)

// csvScan finds the fields of one row of CSV, and with them the row's end.
type csvScan struct {
	comma  byte
	most   int        // fields beyond are counted, not kept
	fields []csvField // at most most
	count  int
	end    int    // of the row
	next   int    // where what follows begins
	bad    string // what is wrong with its quotes; then only this is set

	state scanState
	pos   int      // all before is looked at
	field csvField // the one at pos
}

func (s *csvScan) begin() {
	*s = csvScan{comma: s.comma, most: s.most, fields: s.fields[:0]}
}

// plain divides a row that has no quotes.
func (s *csvScan) plain(b []byte) {
	s.begin()
	for from := 0; ; {
		i := bytes.IndexByte(b[from:], s.comma)
		if i < 0 {
			s.add(csvField{from: from, to: len(b)})
			return
		}
		s.add(csvField{from: from, to: from + i})
		from += i + 1
	}
}

func (s *csvScan) add(f csvField) {
	if s.count++; len(s.fields) < s.most {
		s.fields = append(s.fields, f)
	}
}

// run goes on with a row whose first bytes are b, more than at the last call. It is
// true when all is known. With all nothing follows b that may belong to the row.
func (s *csvScan) run(b []byte, all bool) (done bool) {
	for s.pos < len(b) {
		switch s.state {
		case atField:
			s.field, s.state = csvField{from: s.pos}, inText
			if b[s.pos] == '"' {
				s.pos++
				s.field.from, s.state = s.pos, inQuotes
			}
		case inText:
			if s.text(b) {
				return true
			}
		case inQuotes:
			if wait, end := s.quoted(b, all); wait || end {
				return end
			}
		}
	}
	if !all {
		return false
	}
	return s.last(b)
}

// last ends the row with the end of all that there is.
func (s *csvScan) last(b []byte) bool {
	switch {
	case s.state == inQuotes:
		return s.fail("the quote at byte %d of the row is not closed", s.field.from-1)
	case len(b) == maxSpan:
		return s.fail("the row goes on for over %d bytes, with line ends in quotes", maxSpan)
	case s.state == atField:
		s.field = csvField{from: s.pos}
	}
	s.field.to = len(trimCR(b[s.field.from:])) + s.field.from
	s.add(s.field)
	s.end, s.next = s.field.to, len(b)
	return true
}

// text goes on in a field without quotes. It is true at the end of the row.
func (s *csvScan) text(b []byte) bool {
	for ; s.pos < len(b); s.pos++ {
		switch b[s.pos] {
		case s.comma:
			s.field.to = s.pos
			s.add(s.field)
			s.pos, s.state = s.pos+1, atField
			return false
		case '\n':
			return s.close(b)
		case '"':
			return s.fail("byte %d of the row is a quote in a field without quotes around it", s.pos)
		}
	}
	return false
}

// close ends field and row at the line feed at s.pos.
func (s *csvScan) close(b []byte) bool {
	s.field.to = s.field.from + len(trimCR(b[s.field.from:s.pos]))
	s.add(s.field)
	s.end, s.next = s.field.to, s.pos+1
	return true
}

// quoted goes on in a field with quotes. wait: more bytes are needed to know what a
// quote means. end: the row has ended.
func (s *csvScan) quoted(b []byte, all bool) (wait, end bool) {
	i := bytes.IndexByte(b[s.pos:], '"')
	if i < 0 {
		s.pos = len(b)
		return false, false
	}
	s.pos += i
	after := b[s.pos+1:]
	if !all && (len(after) == 0 || len(after) == 1 && after[0] == '\r') {
		return true, false
	}
	s.field.to = s.pos
	switch {
	case len(after) > 0 && after[0] == '"':
		s.pos, s.field.doubled = s.pos+2, true
	case len(after) > 0 && after[0] == s.comma:
		s.add(s.field)
		s.pos, s.state = s.pos+2, atField
	case len(after) == 0, len(after) == 1 && after[0] == '\r', after[0] == '\n', bytes.HasPrefix(after, []byte("\r\n")):
		return false, s.closed(after)
	default:
		return false, s.fail("byte %d of the row is a quote with neither a delimiter nor a line end after it, in the quotes that begin at byte %d", s.pos, s.field.from-1)
	}
	return false, false
}

// closed ends the row after the quote at s.pos.
func (s *csvScan) closed(after []byte) bool {
	s.add(s.field)
	s.end = s.pos + 1
	s.next = s.end + len(after)
	if i := bytes.IndexByte(after, '\n'); i >= 0 {
		s.next = s.end + i + 1
	} else if s.next == maxSpan {
		return s.fail("the row goes on for over %d bytes, with line ends in quotes", maxSpan)
	}
	return true
}

func (s *csvScan) fail(format string, a ...any) bool {
	s.begin()
	s.bad = fmt.Sprintf(format, a...)
	return true
}

// undouble appends a field with each pair of quotes made one.
func undouble(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '"')
		if i < 0 {
			return append(dst, text...)
		}
		dst, text = append(dst, text[:i+1]...), text[i+2:]
	}
}
