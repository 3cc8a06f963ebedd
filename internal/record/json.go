package record

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"
)

// JSONOptions choose among the forms of [Record.AppendJSON].
type JSONOptions struct {
	// Embed shows a value that is a JSON object or array as such instead of as a
	// string. White space between its tokens is lost.
	Embed bool
}

// AppendJSON appends r as one JSON object in one line, without a line end, with
// its offset in the segment. Members have the names of the fields in chunk
// files. The form is lossless (but for Embed's white space) and unambiguous:
// FORMAT, "Records as JSON". Texts must be valid UTF-8, as decoded ones are.
func (r *Record) AppendJSON(dst []byte, offset uint64, o JSONOptions) []byte {
	dst = strconv.AppendUint(append(dst, `{"offset":`...), offset, 10)
	dst = appendJSONTime(append(dst, `,"ts":`...), r.Time.UnixMicro())
	dst = strconv.AppendUint(append(dst, `,"sequence":`...), r.Position.Sequence, 10)
	dst = strconv.AppendUint(append(dst, `,"row":`...), uint64(r.Position.Row), 10)
	if r.ID != nil {
		dst = appendJSONString(append(dst, `,"id":{"producer":`...), r.ID.Producer)
		dst = strconv.AppendUint(append(dst, `,"sequence":`...), r.ID.Sequence, 10)
		dst = append(dst, '}')
	}
	if r.Rejected != "" {
		dst = appendJSONString(append(dst, `,"rejected":`...), r.Rejected)
	}
	if !r.EventTime.IsZero() {
		dst = appendJSONTime(append(dst, `,"event_ts":`...), r.EventTime.UnixMicro())
	}
	dst = appendJSONBytes(append(dst, `,"key":`...), r.Key)
	if len(r.Headers) > 0 {
		dst = appendJSONHeaders(append(dst, `,"headers":`...), r.Headers)
	}
	dst = append(dst, `,"value":`...)
	dst = appendJSONValue(dst, r.Value, o)
	if r.Ref != nil {
		dst = appendJSONRef(append(dst, `,"ref":`...), r.Ref, r.Pending)
	}
	return append(dst, '}')
}

// appendJSONTime writes RFC 3339 with microseconds, always 27 bytes.
func appendJSONTime(dst []byte, micros int64) []byte {
	return time.UnixMicro(micros).UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000000Z"`)
}

func appendJSONHeaders(dst []byte, headers []Header) []byte {
	for i, h := range headers {
		sep := byte(',')
		if i == 0 {
			sep = '['
		}
		dst = appendJSONString(append(append(dst, sep), `{"name":`...), h.Name)
		value := h.Value
		if value == nil {
			value = []byte{} // headers have no null
		}
		dst = append(appendJSONBytes(append(dst, `,"value":`...), value), '}')
	}
	return append(dst, ']')
}

func appendJSONRef(dst []byte, f *Ref, pending bool) []byte {
	dst = appendJSONString(append(dst, `{"url":`...), f.URL)
	dst = strconv.AppendInt(append(dst, `,"size":`...), f.Size, 10)
	for _, m := range [...]struct{ name, text string }{
		{`,"etag":`, f.ETag}, {`,"version":`, f.Version}, {`,"content_type":`, f.ContentType},
	} {
		if m.text != "" {
			dst = appendJSONString(append(dst, m.name...), m.text)
		}
	}
	if f.SHA256 != nil {
		dst = hex.AppendEncode(append(dst, `,"sha256":"`...), f.SHA256)
		dst = append(dst, '"')
	}
	if f.Records != nil {
		dst = strconv.AppendInt(append(dst, `,"records":`...), *f.Records, 10)
	}
	if pending {
		dst = append(dst, `,"state":"pending"`...)
	}
	return append(dst, '}')
}

func appendJSONValue(dst, value []byte, o JSONOptions) []byte {
	if o.Embed {
		if embedded, ok := embed(dst, value); ok {
			return embedded
		}
	}
	return appendJSONBytes(dst, value)
}

// appendJSONBytes writes null, a string, or, where the bytes are not UTF-8, an
// object with the single member base64.
func appendJSONBytes(dst, b []byte) []byte {
	switch {
	case b == nil:
		return append(dst, "null"...)
	case utf8.Valid(b):
		return appendJSONString(dst, b)
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `{"base64":"`...), b)
	return append(dst, `"}`...)
}

// embed appends a value that is a JSON object or array. It declines an object
// whose first member is base64, which would be taken for bytes.
func embed(dst, value []byte) ([]byte, bool) {
	text := bytes.TrimLeft(value, " \t\r\n")
	if len(text) == 0 || text[0] != '{' && text[0] != '[' || !utf8.Valid(text) {
		return dst, false
	}
	b := bytes.NewBuffer(dst)
	if json.Compact(b, text) != nil || firstMember(b.Bytes()[len(dst):]) == "base64" {
		return dst, false
	}
	return b.Bytes(), true
}

// firstMember gives the name of the first member of a valid, compact object.
func firstMember(object []byte) (name string) {
	if object[0] != '{' || object[1] != '"' {
		return ""
	}
	end := 2
	for object[end] != '"' {
		if object[end] == '\\' {
			end++
		}
		end++
	}
	if json.Unmarshal(object[1:end+1], &name) != nil {
		return ""
	}
	return name
}

// appendJSONString writes valid UTF-8 as a JSON string, and escapes no more than
// JSON demands.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\t':
			dst = append(dst, `\t`...)
		case '\r':
			dst = append(dst, `\r`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}
