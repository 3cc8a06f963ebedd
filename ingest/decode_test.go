package ingest

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

var decodeTime = time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)

type header = map[string][]string

// decode runs one message through the decoder.
func decode(t *testing.T, key topic.Key, h header, data []byte) (records []record.Record, rejected int) {
	t.Helper()
	set := &record.Set{}
	m := Message{Topic: "t", Header: h, Data: data, Sequence: 7, Time: decodeTime}
	d := decoder{source: "lane.default.0.x"}
	id, bad := batchID(h)
	var err error
	if bad != nil {
		rejected, err = 1, d.reject(set, m, nil, bad.Error())
	} else {
		_, rejected, err = d.into(set, m, id, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if records, err = set.Records(); err != nil {
		t.Fatal(err)
	}
	again := &record.Set{}
	if _, _, err := d.into(again, m, id, key); bad == nil && (err != nil || !bytes.Equal(again.Data, set.Data)) {
		t.Errorf("a second worker decodes it differently: %v", err)
	}
	return records, rejected
}

func TestPlainMessages(t *testing.T) {
	for name, c := range map[string]struct {
		header   header
		data     []byte
		rejected string // part of the reason; empty: accepted
		key      []byte
	}{
		"no key, no value":   {header{}, nil, "", nil},
		"empty key":          {header{lane.HeaderKey: {""}}, []byte("v"), "", []byte{}},
		"invalid UTF-8":      {header{lane.HeaderKey: {"\xff\xfe"}}, []byte("\xff\x00"), "", []byte("\xff\xfe")},
		"repeated header":    {header{"A": {"1", "2"}}, []byte("v"), "", nil},
		"huge header":        {header{"A": {strings.Repeat("x", 900<<10)}}, []byte("v"), "", nil},
		"many headers":       {header{"A": make([]string, 2000)}, []byte("v"), "header", nil},
		"two keys":           {header{lane.HeaderKey: {"a", "b"}}, []byte("v"), "given 2 times", nil},
		"bad event time":     {header{lane.HeaderEventTime: {"yesterday"}}, []byte("v"), "not a time", nil},
		"bad header name":    {header{"\xff": {"x"}}, []byte("v"), "UTF-8", nil},
		"event time is kept": {header{lane.HeaderEventTime: {"2020-01-01T00:00:00Z"}}, []byte("v"), "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			records, rejected := decode(t, topic.KeyHeader, c.header, c.data)
			if len(records) != 1 || (rejected == 1) != (c.rejected != "") {
				t.Fatalf("%d records, %d rejected", len(records), rejected)
			}
			r := records[0]
			if !strings.Contains(r.Rejected, c.rejected) || (r.Rejected == "") != (c.rejected == "") {
				t.Errorf("rejected because %q, want %q", r.Rejected, c.rejected)
			}
			if r.Value == nil || !bytes.Equal(r.Value, c.data) {
				t.Errorf("value %q, want the original bytes %q", r.Value, c.data)
			}
			if c.rejected == "" && (!bytes.Equal(r.Key, c.key) || (r.Key == nil) != (c.key == nil)) {
				t.Errorf("key %q, want %q", r.Key, c.key)
			}
			if !r.Time.Equal(decodeTime) || r.Position != (topic.Position{Sequence: 7}) {
				t.Errorf("time %s, position %s", r.Time, r.Position)
			}
		})
	}
}

// batch is a good batch of two records, and its headers.
func batch(t *testing.T, codec string) (header, []byte) {
	t.Helper()
	var data []byte
	for _, v := range []string{"one", "two"} {
		var err error
		if data, err = record.AppendMessage(data, &record.Record{Key: []byte(v), Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	payload, err := record.EncodeBatch(nil, codec, 2, data)
	if err != nil {
		t.Fatal(err)
	}
	return header{lane.HeaderBatch: {"1"}, lane.HeaderCodec: {codec}, lane.HeaderProducer: {"p"}, lane.HeaderSequence: {"1"}}, payload
}

// TestHostileBatches: whatever is wrong with a batch, it becomes one rejected
// record with the original bytes.
func TestHostileBatches(t *testing.T) {
	bomb := func() []byte {
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := enc.EncodeAll(make([]byte, 64<<20), nil)
		return append([]byte{4, byte(len(packed)*2&0x7f | 0x80), byte(len(packed) * 2 >> 7)}, packed...)
	}
	set := func(name, value string) func(header, []byte) []byte {
		return func(h header, b []byte) []byte { h[name] = []string{value}; return b }
	}
	for name, damage := range map[string]func(header, []byte) []byte{
		"version":           set(lane.HeaderBatch, "2"),
		"codec":             set(lane.HeaderCodec, "lzma"),
		"no producer":       set(lane.HeaderProducer, ""),
		"long producer":     set(lane.HeaderProducer, strings.Repeat("p", 65)),
		"sequence is text":  set(lane.HeaderSequence, "one"),
		"sequence zero":     set(lane.HeaderSequence, "0"),
		"sequence negative": set(lane.HeaderSequence, "-1"),
		"sequence huge":     set(lane.HeaderSequence, "99999999999999999999"),
		"repeated sequence": func(h header, b []byte) []byte { h[lane.HeaderSequence] = []string{"1", "2"}; return b },
		"repeated version":  func(h header, b []byte) []byte { h[lane.HeaderBatch] = []string{"1", "1"}; return b },
		"empty":             func(header, []byte) []byte { return nil },
		"truncated":         func(_ header, b []byte) []byte { return b[:len(b)-3] },
		"trailing":          func(_ header, b []byte) []byte { return append(b, 0) },
		"bit flip":          func(_ header, b []byte) []byte { b[1] ^= 0x10; return b },
		"2^60 records": func(_ header, b []byte) []byte {
			return append([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20}, b[1:]...)
		},
		"unpacks to 64 MiB":   func(h header, _ []byte) []byte { h[lane.HeaderCodec] = []string{record.CodecZstd}; return bomb() },
		"not what codec says": set(lane.HeaderCodec, record.CodecZstd),
	} {
		for _, key := range []topic.Key{topic.KeyHeader, "json:/id"} {
			t.Run(name+"/"+string(key[:4]), func(t *testing.T) {
				h, payload := batch(t, record.CodecNull)
				payload = damage(h, payload)
				records, rejected := decode(t, key, h, payload)
				if len(records) != 1 || rejected != 1 || records[0].Rejected == "" {
					t.Fatalf("%d records, %d rejected: %+v", len(records), rejected, records)
				}
				if !bytes.Equal(records[0].Value, payload) {
					t.Error("the original bytes are not kept")
				}
				if len(records[0].Headers) == 0 {
					t.Error("the headers are not kept")
				}
			})
		}
	}
}

func TestGoodBatch(t *testing.T) {
	for _, codec := range []string{record.CodecNull, record.CodecZstd} {
		h, payload := batch(t, codec)
		records, rejected := decode(t, topic.KeyHeader, h, payload)
		if len(records) != 2 || rejected != 0 || string(records[1].Key) != "two" || records[1].Position.Row != 1 || records[1].ID.Sequence != 1 {
			t.Errorf("%s: %+v, %d rejected", codec, records, rejected)
		}
	}
}

func TestJSONKeys(t *testing.T) {
	for _, c := range []struct{ pointer, value, key, bad string }{
		{"/id", `{"id": "a"}`, "a", ""},
		{"/id", `{"id": 1.0}`, "1.0", ""},
		{"/id", `{"id": true}`, "true", ""},
		{"/id", `{"id": null}`, "-", ""},
		{"/id", `{}`, "-", ""},
		{"/id", `[1]`, "-", ""},
		{"/id", `{"id": ""}`, "", ""},
		{"/id", `{"id": 1, "id": 2}`, "1", ""},
		{"/a/1", `{"a": [5, 6]}`, "6", ""},
		{"/a/01", `{"a": [5, 6]}`, "-", ""},
		{"/a~1b/m~0n", `{"a/b": {"m~n": "x"}}`, "x", ""},
		{"/a.b", `{"a.b": "x"}`, "x", ""},
		{"/é", `{"\u00e9": "x"}`, "x", ""},
		{"/id", `{"id": {}}`, "", "object or array"},
		{"/id", `{"id": []}`, "", "object or array"},
		{"/id", `{oops`, "", "not JSON"},
		{"/id", ``, "", "not JSON"},
		{"/id", `{"id": ` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + `}`, "", "not JSON"},
		{"/id", `{"id": "flat", "list": [` + strings.Repeat("{},", 20_000) + `{}]}`, "flat", ""},
	} {
		records, rejected := decode(t, topic.Key("json:"+c.pointer), header{}, []byte(c.value))
		r := records[0]
		switch {
		case c.bad != "":
			if rejected != 1 || !strings.Contains(r.Rejected, c.bad) {
				t.Errorf("%s of %s: rejected %q, want %q", c.pointer, c.value, r.Rejected, c.bad)
			}
		case rejected != 0:
			t.Errorf("%s of %s: rejected %q", c.pointer, c.value, r.Rejected)
		case c.key == "-" && r.Key != nil, c.key != "-" && (r.Key == nil || string(r.Key) != c.key):
			t.Errorf("%s of %s: key %q, want %q", c.pointer, c.value, r.Key, c.key)
		}
	}
}

// TestReferencesKeepTheirKey: a topic keyed by a pointer into the value has no value
// to look into where the payload is elsewhere.
func TestReferencesKeepTheirKey(t *testing.T) {
	var data []byte
	for _, r := range []record.Record{
		{Key: []byte("k"), Ref: &record.Ref{URL: "s3://b/1"}},
		{Key: []byte("ignored"), Value: []byte(`{"id":"v"}`)},
		{Ref: &record.Ref{URL: "s3://b/2"}},
	} {
		var err error
		if data, err = record.AppendMessage(data, &r); err != nil {
			t.Fatal(err)
		}
	}
	payload, err := record.EncodeBatch(nil, record.CodecNull, 3, data)
	if err != nil {
		t.Fatal(err)
	}
	h, _ := batch(t, record.CodecNull)
	records, rejected := decode(t, "json:/id", h, payload)
	if len(records) != 3 || rejected != 0 {
		t.Fatalf("%d records, %d rejected: %+v", len(records), rejected, records)
	}
	if string(records[0].Key) != "k" || string(records[1].Key) != "v" || records[2].Key != nil {
		t.Errorf("keys %q, %q, %q", records[0].Key, records[1].Key, records[2].Key)
	}
}

// TestSlots: keys go where their hash says; records without one are spread, the
// same way every time.
func TestSlots(t *testing.T) {
	d := decoder{source: "s"}
	p := topic.Position{Sequence: 3, Row: 1}
	if got := d.slotOf(topic.KeyHeader)(p, []byte("k")); got != topic.SlotOf([]byte("k")) {
		t.Errorf("keyed record in slot %d", got)
	}
	for _, key := range []topic.Key{topic.KeyHeader, topic.KeyNone} {
		if got := d.slotOf(key)(p, nil); got != topic.SpreadSlot("s", p) {
			t.Errorf("%s: keyless record in slot %d", key, got)
		}
	}
	if got := d.slotOf(topic.KeyNone)(p, []byte("k")); got != topic.SpreadSlot("s", p) {
		t.Errorf("key none: record in slot %d", got)
	}
}
