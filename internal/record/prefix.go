package record

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/topic"
)

// A record in a chunk is a prefix, which tells where it comes from, followed by
// the bytes of its message.

// appendSource appends the prefix's ts and sequence; the row comes next.
func appendSource(dst []byte, micros int64, seq uint64) ([]byte, error) {
	if seq > math.MaxInt64 {
		return dst, invalid("sequence", "%d is too large", seq)
	}
	return binary.AppendVarint(binary.AppendVarint(dst, micros), int64(seq)), nil
}

// appendVerdict appends what follows the row: id and rejected.
func appendVerdict(dst []byte, id *ID, rejected string) ([]byte, error) {
	if id == nil {
		dst = append(dst, 0)
	} else {
		if id.Sequence > math.MaxInt64 {
			return dst, invalid("id sequence", "%d is too large", id.Sequence)
		}
		var err error
		if dst, err = appendText(append(dst, 2), "id producer", id.Producer); err != nil {
			return dst, err
		}
		dst = binary.AppendVarint(dst, int64(id.Sequence))
	}
	return appendReason(dst, rejected)
}

func appendReason(dst []byte, rejected string) ([]byte, error) {
	if rejected == "" {
		return append(dst, 0), nil
	}
	return appendText(append(dst, 2), "rejected", cleanText(rejected))
}

// cleanText makes a text encodable.
func cleanText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= MaxText {
		return s
	}
	end := MaxText
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// mended gives r with headers that can be encoded: names made valid UTF-8 and cut
// to MaxText, and no more than MaxHeaders.
func mended(r *Record) *Record {
	bad := func(h Header) bool { return len(h.Name) > MaxText || !utf8.ValidString(h.Name) }
	if len(r.Headers) <= MaxHeaders && !slices.ContainsFunc(r.Headers, bad) {
		return r
	}
	c := *r
	c.Headers = slices.Clone(r.Headers[:min(len(r.Headers), MaxHeaders)])
	for i := range c.Headers {
		c.Headers[i].Name = cleanText(c.Headers[i].Name)
	}
	return &c
}

// appendRecord appends r as a record of a chunk.
func appendRecord(dst []byte, r *Record) ([]byte, error) {
	if r.Rejected != "" {
		r = mended(r)
	}
	t, err := microsOf("time", r.Time)
	if err != nil {
		return dst, err
	}
	if r.Position.Row > math.MaxInt32 {
		return dst, invalid("row", "%d is too large", r.Position.Row)
	}
	if n := len(r.Key) + len(r.Value); n > MaxRecord {
		return dst, invalid("record", "it has over %d bytes, at most %d are allowed", n, MaxRecord)
	}
	b, err := appendSource(dst, t, r.Position.Sequence)
	if err != nil {
		return dst, err
	}
	b = binary.AppendVarint(b, int64(r.Position.Row))
	if b, err = appendVerdict(b, r.ID, r.Rejected); err != nil {
		return dst, err
	}
	if b, err = AppendMessage(b, r); err != nil {
		return dst, err
	}
	if n := len(b) - len(dst); n > MaxRecord {
		return dst, invalid("record", "it has %d bytes, at most %d are allowed", n, MaxRecord)
	}
	return b, nil
}

// record reads a record of a chunk. With r it fills it in, aliasing the data (of
// what r held before only the room for headers is used again); without, it only
// checks.
func (c *cursor) record(r *Record) {
	c.origin(r)
	reason := c.reason()
	if r != nil {
		r.Rejected = string(reason)
	}
	c.message(r)
}

// origin reads what comes before the reason: ts, sequence, row and id. It begins
// r anew.
func (c *cursor) origin(r *Record) {
	c.field = "ts"
	t := c.micros()
	c.field = "sequence"
	seq := c.sequence()
	c.field = "row"
	row := c.row()
	c.field = "id"
	var id *ID
	if c.optional() {
		id = c.producer()
	}
	if r != nil {
		*r = Record{
			Time: time.UnixMicro(t).UTC(), Position: topic.Position{Sequence: seq, Row: row},
			ID: id, Headers: r.Headers[:0],
		}
	}
}

// reason reads why a record was refused, nil if it was not.
func (c *cursor) reason() (reason []byte) {
	c.field = "rejected"
	if c.optional() {
		if reason = c.text(); len(reason) == 0 {
			c.fail("the reason is empty")
		}
	}
	return reason
}

// producer reads an ID, and gives the last one again if it is the same.
func (c *cursor) producer() *ID {
	name := c.text()
	seq := c.sequence()
	if c.id == nil || c.id.Sequence != seq || c.id.Producer != string(name) {
		c.id = &ID{string(name), seq}
	}
	return c.id
}

// fill sets what a batch's records have in common, and the row.
func (m Meta) fill(r *Record, row uint32) {
	r.Time = time.UnixMicro(m.Time.UnixMicro()).UTC()
	r.Position = topic.Position{Sequence: m.Sequence, Row: row}
	r.ID = m.ID
}
