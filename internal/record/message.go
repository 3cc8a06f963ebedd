package record

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
	"unicode/utf8"
)

// Times are limited to the years 1 to 9999, which RFC 3339 and every table
// format can express.
const (
	minMicros = -62135596800000000
	maxMicros = 253402300799999999
)

// AppendMessage appends r as a message of a batch: its event time (floored to
// microseconds), key, headers, value and ref; nothing else of r goes with it.
// On an error, an *[InvalidError], dst is returned as it was.
func AppendMessage(dst []byte, r *Record) ([]byte, error) {
	b := dst
	if r.EventTime.IsZero() {
		b = append(b, 0)
	} else {
		t, err := microsOf("event time", r.EventTime)
		if err != nil {
			return dst, err
		}
		if t == minMicros {
			return dst, invalid("event time", "the first microsecond of year 1 stands for none")
		}
		b = binary.AppendVarint(append(b, 2), t)
	}
	b = appendOptional(b, r.Key)
	b, err := appendHeaders(b, r.Headers)
	if err != nil {
		return dst, err
	}
	b = appendOptional(b, r.Value)
	if r.Ref == nil {
		return append(b, 0), nil
	}
	if b, err = appendRef(append(b, 2), r.Ref); err != nil {
		return dst, err
	}
	return b, nil
}

func microsOf(field string, t time.Time) (int64, error) {
	if s := t.Unix(); s < minMicros/1_000_000 || s > maxMicros/1_000_000 {
		return 0, invalid(field, "the year %d is not within 1 to 9999", t.UTC().Year())
	}
	return t.UnixMicro(), nil
}

func appendOptional(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return appendBytes(append(dst, 2), b)
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func appendText(dst []byte, field, s string) ([]byte, error) {
	if len(s) > MaxText {
		return dst, invalid(field, "it has %d bytes, at most %d are allowed", len(s), MaxText)
	}
	if !utf8.ValidString(s) {
		return dst, invalid(field, "%q is not valid UTF-8", clip(s))
	}
	return append(binary.AppendVarint(dst, int64(len(s))), s...), nil
}

func appendHeaders(dst []byte, headers []Header) ([]byte, error) {
	if len(headers) == 0 {
		return append(dst, 0), nil
	}
	if len(headers) > MaxHeaders {
		return dst, invalid("headers", "there are %d, at most %d are allowed", len(headers), MaxHeaders)
	}
	dst = binary.AppendVarint(dst, int64(len(headers)))
	var err error
	for _, h := range headers {
		if dst, err = appendText(dst, "header name", h.Name); err != nil {
			return dst, err
		}
		dst = appendBytes(dst, h.Value)
	}
	return append(dst, 0), nil
}

func appendRef(dst []byte, f *Ref) ([]byte, error) {
	if f.Size < 0 {
		return dst, invalid("ref size", "%d is negative", f.Size)
	}
	if f.SHA256 != nil && len(f.SHA256) != 32 {
		return dst, invalid("ref sha256", "it has %d bytes, not 32", len(f.SHA256))
	}
	dst, err := appendText(dst, "ref url", f.URL)
	if err != nil {
		return dst, err
	}
	dst = binary.AppendVarint(dst, f.Size)
	for _, t := range [...]struct{ field, text string }{
		{"ref etag", f.ETag}, {"ref version", f.Version}, {"ref content type", f.ContentType},
	} {
		if dst, err = appendText(dst, t.field, t.text); err != nil {
			return dst, err
		}
	}
	dst = appendOptional(dst, f.SHA256)
	if f.Records == nil {
		return append(dst, 0), nil
	}
	if *f.Records < 0 {
		return dst, invalid("ref records", "%d is negative", *f.Records)
	}
	return binary.AppendVarint(append(dst, 2), *f.Records), nil
}

// message reads a message and returns its key and whether it has a reference.
// With r it also fills in what the message holds, aliasing the data; without, it
// only checks, so that both ways accept the same bytes.
func (c *cursor) message(r *Record) (key []byte, ref bool) {
	c.field = "event time"
	if c.optional() {
		t := c.micros()
		if t == minMicros {
			c.fail("the first microsecond of year 1 stands for none")
		}
		if r != nil {
			r.EventTime = time.UnixMicro(t).UTC()
		}
	}
	c.field = "key"
	if c.optional() {
		key = c.bytes()
	}
	c.field = "headers"
	c.headers(r)
	c.field = "value"
	var value []byte
	if c.optional() {
		value = c.bytes()
	}
	c.field = "ref"
	if ref = c.optional(); ref {
		c.ref(r)
	}
	if r != nil {
		r.Key, r.Value = key, value
	}
	return key, ref
}

// headers reads an array. Avro lets it come in blocks, and a block with a
// negative count tell its size, which must be true, for other readers skip by
// it.
func (c *cursor) headers(r *Record) {
	total := int64(0)
	for {
		n, end := c.long(), -1
		if n == 0 {
			return
		}
		if n < 0 && n != math.MinInt64 {
			n = -n
			size := c.count()
			if size > int64(len(c.data)-c.pos) {
				c.fail("a block of %d bytes runs past the end of the data", size)
				return
			}
			end = c.pos + int(size)
		}
		if n < 0 || n > MaxHeaders-total {
			c.fail("there are more than %d", MaxHeaders)
			return
		}
		total += n
		if r != nil {
			r.Headers = slices.Grow(r.Headers, int(n))
		}
		for range n {
			c.header(r)
		}
		if end >= 0 && c.pos != end {
			c.fail("a block tells a wrong size")
		}
		if c.err != nil {
			return
		}
		c.field = "headers"
	}
}

func (c *cursor) header(r *Record) {
	c.field = "header name"
	name := c.text()
	c.field = "header value"
	value := c.bytes()
	if r != nil && c.err == nil {
		r.Headers = append(r.Headers, Header{c.intern(name), value})
	}
}

func (c *cursor) ref(r *Record) {
	c.field = "ref url"
	url := c.text()
	c.field = "ref size"
	size := c.count()
	c.field = "ref etag"
	etag := c.text()
	c.field = "ref version"
	version := c.text()
	c.field = "ref content type"
	contentType := c.text()
	c.field = "ref sha256"
	var sum []byte
	if c.optional() {
		if sum = c.bytes(); len(sum) != 32 {
			c.fail("it has %d bytes, not 32", len(sum))
		}
	}
	c.field = "ref records"
	records, some := int64(0), c.optional()
	if some {
		records = c.count()
	}
	if r == nil || c.err != nil {
		return
	}
	r.Ref = &Ref{URL: string(url), Size: size, ETag: string(etag), Version: string(version),
		ContentType: string(contentType), SHA256: sum}
	if some {
		r.Ref.Records = &records
	}
}
