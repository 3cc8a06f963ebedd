package rows_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/rows"
)

func picker(t rapid.TB, p rows.Pick) *rows.Picker {
	t.Helper()
	k, err := p.Picker()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestPickKey(t *testing.T) {
	for _, c := range []struct{ place, value, want string }{
		{"/a", `{"a":"x\n\u00e4"}`, "x\nä"},
		{"a", `{"a":"x"}`, "x"},
		{"/a/b/1", `{"a":{"b":[1,2.50,3]}}`, "2.50"},
		{"a b/c", `{"a b/c":true}`, "true"},
		{"/a~1b~0c", `{"a/b~c":12345678901234567890}`, "12345678901234567890"},
		{"~", `{"~":false}`, "false"},
		{"/", `{"":"empty name"}`, "empty name"},
		{"/a", `{"a":""}`, ""},
		{"/a", `{"a":1,"a":2}`, "1"},
		{`/a"b`, `{"a\"b":1}`, "1"},
		{"/a.b", `{"a":{"b":2},"a.b":1}`, "1"},
		{"/*", `{"a":2,"*":1}`, "1"},
		{"/0", `{"0":1}`, "1"},
		{"/0", `["x"]`, "x"},
		// None.
		{"", `{"":"x"}`, "none"},
		{"/a", `{"a":null}`, "none"},
		{"/a", `{"b":1}`, "none"},
		{"/a/b", `{"a":"text"}`, "none"},
		{"/01", `["x","y"]`, "none"},
		{"/-1", `["x","y"]`, "none"},
		{"/2", `["x","y"]`, "none"},
		{"/a", `"text"`, "none"},
		{"/0", `1`, "none"},
		// Refused.
		{"/a", `{"a":{"b":1}}`, "error: the key at /a is an object or array"},
		{"/a/b", `{"a":{"b":[]}}`, "error: the key at /a/b is an object or array"},
	} {
		p, err := picker(t, rows.Pick{Key: c.place}).Pick([]byte(c.value))
		got := string(p.Key)
		if p.Key == nil {
			got = "none"
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.place, c.value, got, c.want)
		}
	}
}

func TestPickTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		layout string
		zone   *time.Location
		value  string
		want   string
	}{
		{"", nil, `"2001-02-03T04:05:06.123456789+02:00"`, "2001-02-03T02:05:06.123456789Z"},
		{rows.RFC3339, berlin, `"2001-02-03T04:05:06Z"`, "2001-02-03T04:05:06Z"},
		{rows.UnixS, nil, `1700000000`, "2023-11-14T22:13:20Z"},
		{rows.UnixS, nil, `"1700000000.25"`, "2023-11-14T22:13:20.25Z"},
		{rows.UnixS, nil, `1700000000.1234567899`, "2023-11-14T22:13:20.123456789Z"},
		{rows.UnixS, nil, `1.7e9`, "2023-11-14T22:13:20Z"},
		{rows.UnixS, nil, `-0.5`, "1969-12-31T23:59:59.5Z"},
		{rows.UnixS, nil, `-1`, "1969-12-31T23:59:59Z"},
		{rows.UnixMillis, nil, `1700000000123`, "2023-11-14T22:13:20.123Z"},
		{rows.UnixMillis, nil, `"-1.5"`, "1969-12-31T23:59:59.9985Z"},
		{rows.UnixMicros, nil, `1700000000123456`, "2023-11-14T22:13:20.123456Z"},
		{rows.UnixNanos, nil, `1700000000123456789`, "2023-11-14T22:13:20.123456789Z"},
		{rows.UnixNanos, nil, `1700000000123456789.9`, "2023-11-14T22:13:20.123456789Z"},
		{rows.UnixNanos, nil, `1.7e18`, "2023-11-14T22:13:20Z"},
		{"2006-01-02 15:04:05", nil, `"2001-02-03 04:05:06.5"`, "2001-02-03T04:05:06.5Z"},
		{"2006-01-02 15:04:05", berlin, `"2001-07-03 04:05:06"`, "2001-07-03T02:05:06Z"},
		{"02.01.2006", berlin, `"03.02.2001"`, "2001-02-02T23:00:00Z"},
		{"20060102", nil, `20010203`, "2001-02-03T00:00:00Z"},
		{"", nil, `null`, "none"},
		{"", nil, `""`, "none"},
		{rows.UnixS, nil, `""`, "none"},
		{"", nil, `"yesterday"`, `error: the event time at /t: "yesterday" is not as the layout says`},
		{"", nil, `{}`, "error: the event time at /t is an object or array"},
		{rows.UnixS, nil, `"2001"`, "1970-01-01T00:33:21Z"},
		{rows.UnixS, nil, `1e999999999`, "is not as the layout says"},
		{rows.UnixS, nil, `99999999999999999999`, "is not as the layout says"},
		{rows.UnixS, nil, `300000000000`, "is not as the layout says"},
		{rows.UnixS, nil, `270000000000`, "is not within the years 1 to 9999"},
		{rows.UnixS, nil, `-63000000000`, "is not within the years 1 to 9999"},
		{rows.UnixS, nil, `"0x10"`, "is not as the layout says"},
		{rows.UnixS, nil, `"1."`, "is not as the layout says"},
		{rows.UnixS, nil, `"NaN"`, "is not as the layout says"},
		{rows.UnixS, nil, `"NaNe"`, "is not as the layout says"},
		{rows.UnixS, nil, `"0x1p-2e"`, "is not as the layout says"},
		{rows.UnixS, nil, `true`, "is not as the layout says"},
	} {
		k := picker(t, rows.Pick{Time: "/t", TimeLayout: c.layout, Zone: c.zone})
		p, err := k.Pick([]byte(`{"t":` + c.value + `}`))
		got := p.Time.Format(time.RFC3339Nano)
		if p.Time.IsZero() {
			got = "none"
		}
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want && (err == nil || !strings.HasSuffix(got, c.want)) {
			t.Errorf("%q of %s: %s, want %s", c.layout, c.value, got, c.want)
		}
	}
}

// Times of whole units come back, and a fraction is what it is in decimal.
func TestUnixTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := time.Unix(rapid.Int64Range(-62e9, 253e9).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
		micros := want.Truncate(time.Microsecond)
		millis := want.Truncate(time.Millisecond)
		for layout, c := range map[string]struct {
			text string
			want time.Time
		}{
			rows.UnixMillis: {fmt.Sprint(millis.UnixMilli()), millis},
			rows.UnixMicros: {fmt.Sprint(micros.UnixMicro()), micros},
			rows.UnixS:      {fmt.Sprint(want.Unix()), want.Truncate(time.Second)},
		} {
			p, err := picker(t, rows.Pick{Time: "t", TimeLayout: layout}).Pick([]byte(`{"t":` + c.text + `}`))
			if err != nil || !p.Time.Equal(c.want) {
				t.Fatalf("%s %s: %v, %v", layout, c.text, p.Time, err)
			}
		}
		if want.Unix() < 0 {
			return
		}
		text := fmt.Sprintf(`{"t":"%d.%09d"}`, want.Unix(), want.Nanosecond())
		if p, err := picker(t, rows.Pick{Time: "t", TimeLayout: rows.UnixS}).Pick([]byte(text)); err != nil || !p.Time.Equal(want) {
			t.Fatalf("%s: %v, %v", text, p.Time, err)
		}
	})
}

func TestPickHeaders(t *testing.T) {
	k := picker(t, rows.Pick{Headers: map[string]string{"b": "/x", "a": "/y", "c": "/none", "d": "/null"}})
	p, err := k.Pick([]byte(`{"x":"","y":7,"null":null}`))
	if err != nil || len(p.Headers) != 2 || p.Headers[0].Name != "a" || string(p.Headers[0].Value) != "7" ||
		p.Headers[1].Name != "b" || p.Headers[1].Value == nil || len(p.Headers[1].Value) != 0 {
		t.Errorf("%+v, %v", p.Headers, err)
	}
	if _, err = k.Pick([]byte(`{"x":[]}`)); err == nil || err.Error() != "the header b at /x is an object or array" {
		t.Error(err)
	}
}

// What is picked fits into a record, or the row is refused; it shares no memory
// with the row.
func TestPickedFits(t *testing.T) {
	large := []byte(`{"a":"` + strings.Repeat("x", 6<<20) + `"}`)
	for name, p := range map[string]rows.Pick{
		"key": {Key: "a"}, "header": {Headers: map[string]string{"h": "a"}}, "many": {Headers: many(record.MaxHeaders)},
	} {
		if _, err := picker(t, p).Pick(large); err == nil || !strings.Contains(err.Error(), "together with its key and headers") {
			t.Errorf("%s: %v", name, err)
		}
	}
	value := []byte(`{"a":"` + strings.Repeat("x", rows.MostMaxRow/2-50) + `"}`)
	p, err := picker(t, rows.Pick{Key: "a"}).Pick(value)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(record.Set).Append(&record.Record{Time: time.Unix(0, 0), Key: p.Key, Value: value}, 0); err != nil {
		t.Error(err)
	}
	clear(value)
	if bytes.IndexByte(p.Key, 0) >= 0 {
		t.Error("the key is a part of the row")
	}
}

func many(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprintf("h%d", i)] = "a"
	}
	return m
}

func TestPicksThatAreRefused(t *testing.T) {
	for want, p := range map[string]rows.Pick{
		"is not a JSON pointer":        {Key: "/a~2"},
		"the place of the event time":  {Time: "/~"},
		"is not UTF-8":                 {Key: "\xff"},
		"is not a layout of times":     {TimeLayout: "today"},
		"cannot be a header's name":    {Headers: map[string]string{"": "/a"}},
		"has no place":                 {Headers: map[string]string{"h": ""}},
		"1025 headers":                 {Headers: many(1025)},
		"the place of the header name": {Headers: map[string]string{"name": "/~x"}},
	} {
		if _, err := p.Picker(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Nothing in a row leads to a panic.
func TestPickOfAnything(t *testing.T) {
	k := picker(t, rows.Pick{Key: "/a/0", Time: "/a/1", TimeLayout: rows.UnixS, Headers: map[string]string{"h": "/a"}})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[\[\]{}:,"a01e.\\u-]{0,30}`).Draw(t, "value")
		if p, err := k.Pick([]byte(text)); err != nil && (p.Key != nil || p.Headers != nil) {
			t.Fatal(errors.New("both a result and an error"))
		}
	})
}
