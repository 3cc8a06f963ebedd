package record

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

func TestAppendJSON(t *testing.T) {
	records := int64(12)
	full := Record{
		Time: t0, Position: topic.Position{Sequence: 812, Row: 3}, ID: &ID{"p1", 7}, Rejected: "no <such> \"key\"",
		EventTime: time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), Key: []byte("k\n"),
		Headers: []Header{{"a", []byte("1")}, {"a", []byte{0xff}}, {"b", nil}}, Value: []byte(`{"x": [1, 2]}`),
		Ref: &Ref{URL: "s3://b/k", Size: 5, ETag: "e", ContentType: "text/csv", SHA256: bytes.Repeat([]byte{0xab}, 32), Records: &records},
	}
	const head = `{"offset":1,"ts":"2026-03-04T05:06:07.890123Z","sequence":2,"row":0`
	value := func(v string) Record {
		return Record{Time: t0, Position: topic.Position{Sequence: 2}, Value: []byte(v)}
	}
	for name, c := range map[string]struct {
		r     Record
		embed bool
		want  string
	}{
		"all members": {full, false, `{"offset":1,"ts":"2026-03-04T05:06:07.890123Z","sequence":812,"row":3,"id":{"producer":"p1","sequence":7},` +
			`"rejected":"no <such> \"key\"","event_ts":"2001-01-01T00:00:00.000000Z","key":"k\n",` +
			`"headers":[{"name":"a","value":"1"},{"name":"a","value":{"base64":"/w=="}},{"name":"b","value":""}],"value":"{\"x\": [1, 2]}",` +
			`"ref":{"url":"s3://b/k","size":5,"etag":"e","content_type":"text/csv","sha256":"` + strings.Repeat("ab", 32) + `","records":12}}`},
		"pending": {Record{Time: t0, Position: topic.Position{Sequence: 2}, Pending: true, Ref: &Ref{URL: "s3://b/k", ETag: "e"}}, false,
			head + `,"key":null,"value":null,"ref":{"url":"s3://b/k","size":0,"etag":"e","state":"pending"}}`},
		"no members":       {Record{Time: t0, Position: topic.Position{Sequence: 2}}, true, head + `,"key":null,"value":null}`},
		"empty":            {Record{Time: t0, Position: topic.Position{Sequence: 2}, Key: []byte{}, Value: []byte{}}, true, head + `,"key":"","value":""}`},
		"object":           {value(" {\"a\" :\n [1,\t{\"b\": \"c  d\"}] }\n"), true, head + `,"key":null,"value":{"a":[1,{"b":"c  d"}]}}`},
		"array":            {value(`[]`), true, head + `,"key":null,"value":[]}`},
		"large number":     {value(`[123456789012345678901234567890.10]`), true, head + `,"key":null,"value":[123456789012345678901234567890.10]}`},
		"scalar":           {value(`17`), true, head + `,"key":null,"value":"17"}`},
		"text":             {value(`"17"`), true, head + `,"key":null,"value":"\"17\""}`},
		"almost JSON":      {value(`{"a":1`), true, head + `,"key":null,"value":"{\"a\":1"}`},
		"two objects":      {value(`{} {}`), true, head + `,"key":null,"value":"{} {}"}`},
		"no object":        {value(`{}`), true, head + `,"key":null,"value":{}}`},
		"like bytes":       {value(`{"base64":"AA=="}`), true, head + `,"key":null,"value":"{\"base64\":\"AA==\"}"}`},
		"escaped bytes":    {value(`{"\u0062ase64":0}`), true, head + `,"key":null,"value":"{\"\\u0062ase64\":0}"}`},
		"escaped quote":    {value(`{"\"":0}`), true, head + `,"key":null,"value":{"\"":0}}`},
		"base64 later":     {value(`{"a":1,"base64":0}`), true, head + `,"key":null,"value":{"a":1,"base64":0}}`},
		"not UTF-8":        {value("\xff\x00"), true, head + `,"key":null,"value":{"base64":"/wA="}}`},
		"JSON, not UTF-8":  {value("[\"\xff\"]"), true, head + `,"key":null,"value":{"base64":"WyL/Il0="}}`},
		"control and wide": {value("\x00\x1f\x7f\u2028\t\r\\é"), false, head + `,"key":null,"value":"\u0000\u001f` + "\x7f\u2028" + `\t\r\\é"}`},
		"too deep":         {value(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)), true, head + `,"key":null,"value":"` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `"}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := string(c.r.AppendJSON([]byte("> "), 1, JSONOptions{Embed: c.embed}))
			if got != "> "+c.want {
				t.Errorf("got  %s\nwant > %s", got, c.want)
			}
		})
	}
}

// The lines hold all of a record: a reader that follows FORMAT gets it back. An
// embedded value comes back without white space.
func TestJSONIsLossless(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord().Draw(t, "record")
		r.Pending = r.Ref != nil && r.Rejected == "" && rapid.Bool().Draw(t, "pending")
		o := JSONOptions{Embed: rapid.Bool().Draw(t, "embed")}
		offset := rapid.Uint64().Draw(t, "offset")
		line := r.AppendJSON(nil, offset, o)
		if bytes.ContainsAny(line, "\n\r") || !json.Valid(line) {
			t.Fatalf("not one line of JSON: %s", line)
		}
		got, at := parseLine(t, line)
		if at != offset {
			t.Fatalf("offset %d of %d", at, offset)
		}
		if o.Embed && isContainer(r.Value) {
			r.Value, got.Value = compacted(t, r.Value), compacted(t, got.Value)
		}
		if d := diff([]Record{r}, []Record{got}); d != "" {
			t.Fatalf("%s\n(-want +got):\n%s", line, d)
		}
	})
}

func isContainer(value []byte) bool {
	var v any
	if json.Unmarshal(value, &v) != nil {
		return false
	}
	switch v.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

func compacted(t tb, value []byte) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

type jsonLine struct {
	Offset   uint64     `json:"offset"`
	TS       time.Time  `json:"ts"`
	Sequence uint64     `json:"sequence"`
	Row      uint32     `json:"row"`
	ID       *ID        `json:"id"`
	Rejected string     `json:"rejected"`
	EventTS  *time.Time `json:"event_ts"`
	Key      jsonBytes  `json:"key"`
	Headers  []struct {
		Name  string
		Value jsonBytes
	} `json:"headers"`
	Value jsonBytes `json:"value"`
	Ref   *struct {
		URL         string `json:"url"`
		Size        int64  `json:"size"`
		ETag        string `json:"etag"`
		Version     string `json:"version"`
		ContentType string `json:"content_type"`
		SHA256      string `json:"sha256"`
		Records     *int64 `json:"records"`
		State       string `json:"state"`
	} `json:"ref"`
}

// jsonBytes reads null, a string, an object with the single member base64, or
// other JSON as itself.
type jsonBytes struct{ b []byte }

func (v *jsonBytes) UnmarshalJSON(text []byte) error {
	var object map[string]json.RawMessage
	switch {
	case string(text) == "null":
		v.b = nil
	case text[0] == '"':
		var s string
		if err := json.Unmarshal(text, &s); err != nil {
			return err
		}
		v.b = []byte(s)
	case json.Unmarshal(text, &object) == nil && len(object) == 1 && object["base64"] != nil:
		var s string
		if err := json.Unmarshal(object["base64"], &s); err != nil {
			return err
		}
		b, err := base64.StdEncoding.DecodeString(s)
		v.b = b
		return err
	default:
		v.b = bytes.Clone(text)
	}
	return nil
}

func parseLine(t tb, line []byte) (Record, uint64) {
	var l jsonLine
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatal(err)
	}
	r := Record{
		Time: l.TS, Position: topic.Position{Sequence: l.Sequence, Row: l.Row}, ID: l.ID, Rejected: l.Rejected,
		Key: l.Key.b, Value: l.Value.b,
	}
	if l.EventTS != nil {
		r.EventTime = *l.EventTS
	}
	for _, h := range l.Headers {
		r.Headers = append(r.Headers, Header{h.Name, h.Value.b})
	}
	if f := l.Ref; f != nil {
		r.Pending = f.State == "pending"
		r.Ref = &Ref{URL: f.URL, Size: f.Size, ETag: f.ETag, Version: f.Version, ContentType: f.ContentType, Records: f.Records}
		if f.SHA256 != "" {
			sum, err := hex.DecodeString(f.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			r.Ref.SHA256 = sum
		}
	}
	return r, l.Offset
}
