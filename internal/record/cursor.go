package record

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// cursor walks over Avro data. The first failure sticks: everything read after
// it is zero and the cursor stands at its end, so callers may check err late,
// but must check it before they believe anything.
type cursor struct {
	data  []byte
	pos   int
	field string // what is being read, for messages
	err   *FormatError
	names map[string]string // header names seen, so that they are allocated once; may be nil
	id    *ID               // the last one decoded: a batch's records share it
}

// maxNames bounds the cursor's memory of header names.
const maxNames = 256

func (c *cursor) fail(format string, a ...any) {
	if c.err == nil {
		c.err = &FormatError{c.field + ": " + fmt.Sprintf(format, a...), c.pos}
	}
	c.pos = len(c.data)
}

// long reads an Avro int or long.
func (c *cursor) long() int64 {
	if c.pos < len(c.data) && c.data[c.pos] < 0x80 {
		u := c.data[c.pos]
		c.pos++
		return int64(u>>1) ^ -int64(u&1)
	}
	return c.longer()
}

// longer is the rest of long, for numbers of several bytes. It takes the
// shortest form only.
func (c *cursor) longer() int64 {
	var u uint64
	for i := 0; ; i++ {
		if c.pos+i >= len(c.data) {
			c.fail("the data ends within a number")
			return 0
		}
		b := c.data[c.pos+i]
		if i == 9 && b > 1 {
			c.fail("a number is over 64 bits")
			return 0
		}
		u |= uint64(b&0x7f) << (7 * i)
		if b >= 0x80 {
			continue
		}
		if b == 0 {
			c.fail("a number is longer than it need be")
			return 0
		}
		c.pos += i + 1
		return int64(u>>1) ^ -int64(u&1)
	}
}

// count reads a long that must not be negative.
func (c *cursor) count() int64 {
	n := c.long()
	if n < 0 {
		c.fail("%d is negative", n)
		return 0
	}
	return n
}

// optional reads the index of a union of null and something else.
func (c *cursor) optional() bool {
	if c.pos < len(c.data) {
		switch c.data[c.pos] {
		case 0:
			c.pos++
			return false
		case 2:
			c.pos++
			return true
		}
	}
	if i := c.long(); c.err == nil {
		c.fail("the union has no branch %d", i)
	}
	return false
}

// bytes reads a byte string. The result aliases the data, and is not nil unless
// the cursor failed.
func (c *cursor) bytes() []byte {
	n := c.long()
	if uint64(n) > uint64(len(c.data)-c.pos) {
		if n < 0 {
			c.fail("the length %d is negative", n)
		} else {
			c.fail("the length %d runs past the end of the data", n)
		}
	}
	if c.err != nil {
		return nil
	}
	start := c.pos
	c.pos += int(n)
	return c.data[start:c.pos:c.pos]
}

// text reads a string of at most MaxText bytes of valid UTF-8.
func (c *cursor) text() []byte {
	b := c.bytes()
	if len(b) > MaxText {
		c.fail("it has %d bytes, at most %d are allowed", len(b), MaxText)
		return nil
	}
	if !utf8.Valid(b) {
		c.fail("it is not valid UTF-8")
		return nil
	}
	return b
}

// micros reads a time.
func (c *cursor) micros() int64 {
	t := c.long()
	if t < minMicros || t > maxMicros {
		c.fail("the time %d is not within the years 1 to 9999 in microseconds", t)
		return 0
	}
	return t
}

// sequence reads a sequence number.
func (c *cursor) sequence() uint64 { return uint64(c.count()) }

// row reads the number of a record in its message.
func (c *cursor) row() uint32 {
	n := c.count()
	if n > math.MaxInt32 {
		c.fail("%d is not a row number", n)
		return 0
	}
	return uint32(n)
}

// intern gives b as a string, the same one for the same header name.
func (c *cursor) intern(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if c.names != nil && len(c.names) < maxNames && len(s) <= 256 {
		c.names[s] = s
	}
	return s
}
