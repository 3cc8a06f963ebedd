package rows

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/spillway-mq/spillway/internal/record"
)

// Pick says what of a row becomes key, event time and headers of its record. A place
// in a row is a JSON pointer ("/a/b/0"), or the name of a column, which is a member
// of the row's object.
type Pick struct {
	Key  string // the place of the key; empty: rows have none
	Time string // the place of the event time; empty: rows have none
	// TimeLayout is how the event time is written: RFC3339, one of the Unix layouts,
	// or a layout of the package time. Empty: RFC3339.
	TimeLayout string
	Zone       *time.Location    // of times that do not say theirs; nil: UTC
	Headers    map[string]string // the place of each header's value, by the header's name
}

// Layouts of event times. Those of Unix times are numbers, or texts of numbers, since
// 1970; parts of a nanosecond are dropped.
const (
	RFC3339    = "rfc3339"
	UnixS      = "unix_s"
	UnixMillis = "unix_ms"
	UnixMicros = "unix_us"
	UnixNanos  = "unix_ns"
)

var unixUnits = map[string]time.Duration{
	UnixS: time.Second, UnixMillis: time.Millisecond, UnixMicros: time.Microsecond, UnixNanos: time.Nanosecond,
}

// Picker picks from rows what its Pick says. Concurrent use is fine.
type Picker struct {
	key, time []string
	headers   []pickedHeader
	layout    string
	unit      time.Duration // of Unix times; 0: the layout is one of the package time
	zone      *time.Location
}

type pickedHeader struct {
	name  string
	place []string
}

// Picked is what was picked of a row. It shares no memory with it.
type Picked struct {
	Key     []byte    // nil: none
	Time    time.Time // zero: none
	Headers []record.Header
}

// Picker checks p, and makes a picker of it.
func (p Pick) Picker() (*Picker, error) {
	k := &Picker{zone: p.Zone}
	if k.zone == nil {
		k.zone = time.UTC
	}
	var errs []error
	place := func(what, s string) []string {
		tokens, err := parsePlace(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("the place of the %s: %w", what, err))
		}
		return tokens
	}
	k.key, k.time = place("key", p.Key), place("event time", p.Time)
	for name, s := range p.Headers {
		if name == "" || len(name) > record.MaxText || !utf8.ValidString(name) {
			errs = append(errs, fmt.Errorf("%.60q cannot be a header's name", name))
		}
		if s == "" {
			errs = append(errs, fmt.Errorf("the header %.60q has no place", name))
		}
		k.headers = append(k.headers, pickedHeader{name, place("header "+name, s)})
	}
	slices.SortFunc(k.headers, func(a, b pickedHeader) int { return strings.Compare(a.name, b.name) })
	if len(p.Headers) > record.MaxHeaders {
		errs = append(errs, fmt.Errorf("%d headers, at most %d are allowed", len(p.Headers), record.MaxHeaders))
	}
	errs = append(errs, k.setLayout(p.TimeLayout))
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Picker) setLayout(layout string) error {
	if k.unit = unixUnits[layout]; k.unit != 0 {
		return nil
	}
	if layout == "" || layout == RFC3339 {
		k.layout = time.RFC3339Nano
		return nil
	}
	a := time.Date(2001, 10, 23, 14, 25, 46, 987654321, time.UTC).Format(layout)
	b := time.Date(2012, 11, 14, 3, 36, 57, 123456789, time.UTC).Format(layout)
	if _, err := time.Parse(layout, a); err != nil || a == b {
		return fmt.Errorf("%.60q is not a layout of times, such as %s, %s or %q", layout, RFC3339, UnixS, time.DateTime)
	}
	k.layout = layout
	return nil
}

// parsePlace gives the tokens of a JSON pointer, or of a column's name; none for
// nothing.
func parsePlace(s string) ([]string, error) {
	switch {
	case s == "":
		return nil, nil
	case !utf8.ValidString(s):
		return nil, fmt.Errorf("%.60q is not UTF-8", s)
	case s[0] != '/':
		return []string{s}, nil
	}
	tokens := strings.Split(s[1:], "/")
	for i, t := range tokens {
		if rest := strings.NewReplacer("~0", "", "~1", "").Replace(t); strings.Contains(rest, "~") {
			return nil, fmt.Errorf("%.60q is not a JSON pointer: a ~ is written ~0, and ~1 is a /", s)
		}
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return tokens, nil
}

// Pick picks from a row that is not rejected. An error says why the row has to be:
// something is not what it should be, or a record could not hold it all. What is
// absent or null is none. A string gives its text, a number or boolean its literal.
func (k *Picker) Pick(value []byte) (p Picked, err error) {
	if k.key == nil && k.time == nil && len(k.headers) == 0 {
		return Picked{}, nil
	}
	row := gjson.ParseBytes(value)
	size := len(value)
	if p.Key, err = textAt(row, "key", k.key); err != nil {
		return Picked{}, err
	}
	size += len(p.Key)
	if p.Time, err = k.timeOf(row); err != nil {
		return Picked{}, err
	}
	for _, h := range k.headers {
		v, err := textAt(row, "header "+h.name, h.place)
		if err != nil {
			return Picked{}, err
		}
		if size += len(h.name) + len(v); v != nil {
			p.Headers = append(p.Headers, record.Header{Name: h.name, Value: v})
		}
		if size > MostMaxRow {
			break
		}
	}
	if size > MostMaxRow {
		return Picked{}, fmt.Errorf("the row has over %d bytes together with its key and headers", MostMaxRow)
	}
	return p, nil
}

// textAt is what stands at a place, as text; nil for nothing.
func textAt(row gjson.Result, what string, place []string) ([]byte, error) {
	if place == nil {
		return nil, nil
	}
	switch v := at(row, place); v.Type {
	case gjson.Null:
		return nil, nil
	case gjson.String:
		return []byte(v.Str), nil
	case gjson.Number, gjson.True, gjson.False:
		return []byte(v.Raw), nil
	}
	return nil, fmt.Errorf("the %s at /%s is an object or array", what, strings.Join(place, "/"))
}

// at follows a place. Of repeated names the first counts.
func at(v gjson.Result, place []string) gjson.Result {
	for _, token := range place {
		v = child(v, token)
	}
	return v
}

func child(v gjson.Result, token string) (found gjson.Result) {
	i, wanted := 0, -1
	switch {
	case v.IsArray():
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 || strconv.Itoa(n) != token {
			return found
		}
		wanted = n
	case !v.IsObject():
		return found
	}
	v.ForEach(func(name, value gjson.Result) bool {
		if wanted < 0 && name.Str == token || wanted >= 0 && i == wanted {
			found = value
			return false
		}
		i++
		return true
	})
	return found
}

// timeOf is the row's event time. An empty text is none: so CSV writes null.
func (k *Picker) timeOf(row gjson.Result) (time.Time, error) {
	text, err := textAt(row, "event time", k.time)
	if err != nil || len(text) == 0 {
		return time.Time{}, err
	}
	t, ok := k.parse(string(text))
	if !ok {
		return time.Time{}, fmt.Errorf("the event time at /%s: %.60q is not as the layout says", strings.Join(k.time, "/"), text)
	}
	if y := t.UTC().Year(); y < 1 || y > 9999 {
		return time.Time{}, fmt.Errorf("the event time at /%s: %.60q is not within the years 1 to 9999", strings.Join(k.time, "/"), text)
	}
	return t.UTC(), nil
}

func (k *Picker) parse(text string) (time.Time, bool) {
	if k.unit != 0 {
		return unixTime(text, k.unit)
	}
	t, err := time.ParseInLocation(k.layout, text, k.zone)
	return t, err == nil
}
