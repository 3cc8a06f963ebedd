package rows

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// mostSeconds is more than there are from 1970 to the years 1 and 9999, and little
// enough to be multiplied.
const mostSeconds = 1 << 38

// unixTime reads a number of units since 1970. It is exact for what is written
// without an exponent; with one it is a float64's exactness. Parts of a nanosecond
// are dropped, towards 1970.
func unixTime(text string, unit time.Duration) (time.Time, bool) {
	if strings.ContainsAny(text, "eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.Abs(f)*unit.Seconds() > mostSeconds {
			return time.Time{}, false
		}
		whole, part := math.Modf(f)
		return sum(int64(whole), int64(part*float64(unit)), unit), true
	}
	digits, negative := strings.CutPrefix(text, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	if !isDigits(whole) || dotted && !isDigits(fraction) {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || float64(n)*unit.Seconds() > mostSeconds {
		return time.Time{}, false
	}
	var part int64
	for scale := int64(unit) / 10; scale > 0 && fraction != ""; scale /= 10 {
		part += int64(fraction[0]-'0') * scale
		fraction = fraction[1:]
	}
	if negative {
		n, part = -n, -part
	}
	return sum(n, part, unit), true
}

// sum is n units and some nanoseconds after 1970.
func sum(n, nanos int64, unit time.Duration) time.Time {
	perSecond := int64(time.Second / unit)
	return time.Unix(n/perSecond, n%perSecond*int64(unit)+nanos).UTC()
}

func isDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
