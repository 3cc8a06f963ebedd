package rows

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"
	"unicode/utf8"
)

// A row of Avro or Parquet is an object with a member for each column, in the order of
// the schema, also for those that are null. A value looks the same whichever it comes
// from, and nothing of it is lost:
//
//   - whole numbers, signed or not, are literals with all of their digits;
//   - floats are the shortest number that reads back as the same; what is none is
//     "NaN", "Infinity" or "-Infinity";
//   - decimals are strings with as many decimals as their scale;
//   - strings and bytes are strings if they are UTF-8, else an object with the single
//     member base64, as in FORMAT, "Records as JSON": many writers do not say of text
//     that it is some;
//   - timestamps are RFC 3339 in UTC with 3, 6 or 9 decimals, by their unit, those of
//     96 bits with 9. Local ones, which name no zone, are taken for UTC;
//   - dates are "2001-09-09", times of a day "01:46:40.123", with decimals by their
//     unit. What lies outside of the years 1 to 9999, or of a day, stays the number
//     that it is, and of 96 bits its bytes;
//   - UUIDs have their usual form; spans of months, days and milliseconds are objects
//     with these three members;
//   - groups and records are objects, lists arrays, and maps objects in the order that
//     they are stored in, keys that are no strings as their JSON text;
//   - enumerations are their names, and unions the value alone.
//
// Of a row that is rejected, because it is too long or nested too deep, what is kept
// is the beginning of that text.

// maxDecimal bounds the bytes of a decimal's number, which is far beyond the 76
// digits that the largest decimals of today's engines have.
const maxDecimal = 256

// rowText is the JSON text of a row while it is built. A row that grows over max, or
// that fails for another reason, takes no more.
type rowText struct {
	b   []byte
	max int
	why string // why the row is rejected; empty: it is not
}

func (t *rowText) reset() {
	if cap(t.b) > 4*t.max && cap(t.b) > 1<<20 {
		t.b = nil
	}
	t.b, t.why = t.b[:0], ""
}

// row gives the text as row n.
func (t *rowText) row(n uint64) Row {
	if t.why != "" {
		return Row{N: n, Value: t.b[:min(len(t.b), KeptOfLong)], Rejected: t.why}
	}
	return Row{N: n, Value: t.b}
}

func (t *rowText) fail(format string, args ...any) {
	if t.why == "" {
		t.why = fmt.Sprintf(format, args...)
	}
}

// check is called after what cannot have been long.
func (t *rowText) check() {
	if len(t.b) > t.max {
		t.fail("the row is longer than %d bytes as JSON", t.max)
	}
}

func (t *rowText) raw(s string) {
	if t.why == "" {
		t.b = append(t.b, s...)
		t.check()
	}
}

// label writes what is before a member: its name, with a comma unless it is the first.
func (t *rowText) label(i int, label []byte) {
	if t.why != "" {
		return
	}
	if i > 0 {
		t.b = append(t.b, ',')
	}
	t.b = append(t.b, label...)
	t.check()
}

// memberLabel gives what label writes for a name.
func memberLabel(name string) []byte { return append(appendString(nil, []byte(name)), ':') }

// bytes writes text if it is UTF-8, else an object with the single member base64.
func (t *rowText) bytes(v []byte) {
	switch {
	case t.why != "":
		return
	case len(t.b)+len(v) > t.max || len(v) > 64<<10 && len(t.b)+escaped(v) > t.max:
		t.b = appendString(t.b, v[:min(len(v), KeptOfLong)])
		t.fail("the row is longer than %d bytes as JSON", t.max)
		return
	case utf8.Valid(v):
		t.b = appendString(t.b, v)
	default:
		t.b = base64.StdEncoding.AppendEncode(append(t.b, `{"base64":"`...), v)
		t.b = append(t.b, `"}`...)
	}
	t.check()
}

// escaped says how long v is as a JSON string, without its quotes.
func escaped(v []byte) int {
	n := len(v)
	for _, c := range v {
		switch {
		case c == '"' || c == '\\' || c == '\n' || c == '\r' || c == '\t':
			n++
		case c < ' ':
			n += 5
		}
	}
	return n
}

// key makes the value that was written from the byte start on a member's name: text
// stays, and of anything else the JSON becomes text.
func (t *rowText) key(start int) {
	if t.why != "" {
		return
	}
	if v := t.b[start:]; len(v) == 0 || v[0] != '"' {
		t.b = appendString(t.b[:start], []byte(string(v)))
	}
	t.raw(":")
}

func (t *rowText) boolean(v bool) {
	if v {
		t.raw("true")
	} else {
		t.raw("false")
	}
}

func (t *rowText) int(v int64) {
	if t.why == "" {
		t.b = strconv.AppendInt(t.b, v, 10)
		t.check()
	}
}

func (t *rowText) uint(v uint64) {
	if t.why == "" {
		t.b = strconv.AppendUint(t.b, v, 10)
		t.check()
	}
}

// float writes the shortest number that reads back as v. What JSON has no number for
// is a string.
func (t *rowText) float(v float64, bits int) {
	switch {
	case t.why != "":
		return
	case math.IsNaN(v):
		t.raw(`"NaN"`)
		return
	case math.IsInf(v, 0):
		t.raw(map[bool]string{true: `"Infinity"`, false: `"-Infinity"`}[v > 0])
		return
	}
	form := byte('f')
	if a := math.Abs(v); a != 0 && (a < 1e-6 || a >= 1e21) {
		form = 'e'
	}
	t.b = strconv.AppendFloat(t.b, v, form, -1, bits)
	t.check()
}

const (
	firstSecond = -62135596800 // of the year 1
	lastSecond  = 253402300799 // of the year 9999
)

// timestamp writes a time that was counted in units of 10^-digits seconds, in RFC
// 3339 with as many decimals. A time outside of the years 1 to 9999 has no such
// form: it stays the number that it was.
func (t *rowText) timestamp(count int64, digits int) {
	perSecond := pow10(digits)
	seconds, rest := floorDiv(count, perSecond)
	if seconds < firstSecond || seconds > lastSecond {
		t.int(count)
		return
	}
	t.instant(seconds, rest*pow10(9-digits), digits)
}

func (t *rowText) instant(seconds, nanos int64, digits int) {
	if t.why != "" {
		return
	}
	t.b = time.Unix(seconds, 0).UTC().AppendFormat(t.b, `"2006-01-02T15:04:05`)
	t.decimals(nanos, digits)
	t.b = append(t.b, 'Z', '"')
	t.check()
}

// date writes a day that was counted from 1970-01-01.
func (t *rowText) date(days int64) {
	if days < firstSecond/86400 || days > lastSecond/86400 {
		t.int(days)
		return
	}
	if t.why == "" {
		t.b = time.Unix(days*86400, 0).UTC().AppendFormat(t.b, `"2006-01-02"`)
		t.check()
	}
}

// timeOfDay writes a time since midnight in units of 10^-digits seconds. What is no
// time of a day stays the number that it was.
func (t *rowText) timeOfDay(count int64, digits int) {
	perSecond := pow10(digits)
	if count < 0 || count >= 86400*perSecond {
		t.int(count)
		return
	}
	if t.why == "" {
		t.b = time.Unix(count/perSecond, 0).UTC().AppendFormat(t.b, `"15:04:05`)
		t.decimals(count%perSecond*pow10(9-digits), digits)
		t.b = append(t.b, '"')
		t.check()
	}
}

// decimals writes the point and the first digits of the nanoseconds.
func (t *rowText) decimals(nanos int64, digits int) {
	t.b = append(t.b, '.')
	for i, unit := 0, int64(1e8); i < digits; i, unit = i+1, unit/10 {
		t.b = append(t.b, byte('0'+nanos/unit%10))
	}
}

// decimal writes unscaled × 10^-scale as a string with scale decimals.
func (t *rowText) decimal(unscaled int64, scale int) {
	var digits [24]byte
	t.decimalDigits(strconv.AppendInt(digits[:0], unscaled, 10), scale)
}

// decimalBytes is decimal for a number as big-endian two's complement.
func (t *rowText) decimalBytes(v []byte, scale int) {
	if len(v) > maxDecimal {
		t.fail("a decimal of %d bytes: at most %d are taken", len(v), maxDecimal)
		return
	}
	n := new(big.Int).SetBytes(v)
	if len(v) > 0 && v[0] >= 0x80 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(v))))
	}
	t.decimalDigits(n.Append(nil, 10), scale)
}

func (t *rowText) decimalDigits(digits []byte, scale int) {
	if t.why != "" {
		return
	}
	t.b = append(t.b, '"')
	if digits[0] == '-' {
		t.b, digits = append(t.b, '-'), digits[1:]
	}
	whole := len(digits) - scale
	if whole <= 0 {
		t.b = append(t.b, '0')
	} else {
		t.b = append(t.b, digits[:whole]...)
		digits = digits[whole:]
	}
	if scale > 0 {
		t.b = append(t.b, '.')
		for ; whole < 0; whole++ {
			t.b = append(t.b, '0')
		}
		t.b = append(t.b, digits...)
	}
	t.b = append(t.b, '"')
	t.check()
}

// uuid writes 16 bytes in their usual form.
func (t *rowText) uuid(v []byte) {
	if t.why != "" {
		return
	}
	t.b = append(t.b, '"')
	for i, part := range [][]byte{v[:4], v[4:6], v[6:8], v[8:10], v[10:]} {
		if i > 0 {
			t.b = append(t.b, '-')
		}
		t.b = hex.AppendEncode(t.b, part)
	}
	t.b = append(t.b, '"')
	t.check()
}

// duration writes a span of months, days and milliseconds, which have no common
// measure.
func (t *rowText) duration(months, days, millis uint32) {
	if t.why == "" {
		t.b = fmt.Appendf(t.b, `{"months":%d,"days":%d,"millis":%d}`, months, days, millis)
		t.check()
	}
}

func pow10(n int) int64 {
	p := int64(1)
	for range n {
		p *= 10
	}
	return p
}

// floorDiv is a/b rounded down, with a rest that is never negative.
func floorDiv(a, b int64) (quotient, rest int64) {
	quotient, rest = a/b, a%b
	if rest < 0 {
		quotient, rest = quotient-1, rest+b
	}
	return quotient, rest
}
