//go:build duckdb

package duckdb

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/lane"
)

// oddRecords are records of all kinds.
func oddRecords() []client.Record {
	var all [256]byte
	for i := range all {
		all[i] = byte(i)
	}
	at := time.Date(1969, 7, 20, 20, 17, 40, 123_456_000, time.UTC)
	list := []client.Record{
		{}, {Key: []byte{}}, {Value: []byte{}}, {Key: []byte{}, Value: []byte{}, Headers: []client.Header{}},
		{Key: all[:], Value: all[:], Headers: []client.Header{{Name: "all", Value: all[:]}}},
		{Key: []byte("key"), Value: []byte("'; drop table topic; --\x00"), EventTime: at},
		{Key: []byte("ключ"), Value: []byte("\xff\xfe not UTF-8"), EventTime: time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)},
		{Headers: []client.Header{
			{Name: "again", Value: []byte("1")}, {Name: "other", Value: []byte{}}, {Name: "again", Value: []byte("2")}, {Name: "again", Value: []byte("1")},
			{Name: "имя", Value: []byte("\x00")}, {Name: "", Value: []byte("of no name")},
		}},
		{Key: bytes.Repeat([]byte("k"), 2000), Value: bytes.Repeat([]byte("0123456789abcdef"), 20_000)},
	}
	for i := range 256 {
		list = append(list, client.Record{Key: []byte{byte(i)}, Value: []byte{byte(i)}})
	}
	return list
}

// oddRow is a record as DuckDB is to see it.
func oddRow(r client.Record) Row {
	row := Row{"_key": nil, "value": nil, "_event_ts": nil, "_headers": nil, "_rejected": nil}
	if r.Key != nil {
		row["_key"] = r.Key
	}
	if r.Value != nil {
		row["value"] = r.Value
	}
	if !r.EventTime.IsZero() {
		row["_event_ts"] = r.EventTime
	}
	if len(r.Headers) > 0 {
		var list []any
		for _, h := range r.Headers {
			list = append(list, Row{"name": h.Name, "value": h.Value})
		}
		row["_headers"] = list
	}
	return row
}

// TestBytes: every byte of a value, a key and a header, repeated headers, what is null
// and what is empty are as they were published; so is a message that was rejected.
func TestBytes(t *testing.T) {
	w := newWorld(t, "bytes")
	begin := time.Now().Add(-time.Second)
	records := oddRecords()
	w.publish(t, records...)
	js, err := jetstream.New(w.deps.NATS)
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(lane.ID{Group: lane.Default}.Subject(w.topic.Name))
	m.Header.Set(lane.HeaderEventTime, "yesterday")
	m.Data = []byte("refused\x00")
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.ingest(t)
	w.seal(t)
	db := open(t)
	db.query(t, "create view topic as from "+ReadParquet(w.compact(t)))

	got := db.query(t, `select _key, value, _event_ts, _headers, _rejected from topic order by _source_seq, _source_row`)
	if len(got) != len(records)+1 {
		t.Fatalf("%d rows of %d", len(got), len(records)+1)
	}
	for i, r := range records {
		if diff := cmp.Diff(oddRow(r), got[i]); diff != "" {
			t.Errorf("record %d: %.1000s", i, diff)
		}
	}
	refused := got[len(records)]
	reason, _ := refused["_rejected"].(string)
	want := oddRow(client.Record{Value: m.Data, Headers: []client.Header{{Name: lane.HeaderEventTime, Value: []byte("yesterday")}}})
	want["_rejected"] = refused["_rejected"]
	if diff := cmp.Diff(want, refused); diff != "" || reason == "" {
		t.Errorf("rejected %q: %s", reason, diff)
	}
	for i := range 256 {
		rows := db.query(t, "select value from topic where _key = $1", []byte{byte(i)})
		if len(rows) != 1 || !bytes.Equal(rows[0]["value"].([]byte), []byte{byte(i)}) {
			t.Errorf("by key %#x: %v", i, rows)
		}
	}
	count := db.query(t, "select count(*) as n, count(*) filter (where _key is null) as without, count(*) filter (where _key = ''::blob) as empty, min(_ts) as first, max(_ts) as last from topic")[0]
	first, last := count["first"].(time.Time), count["last"].(time.Time)
	if s := fmt.Sprint(count["n"], count["without"], count["empty"]); s != fmt.Sprint(len(records)+1, 4, 2) || first.Before(begin) || last.Before(first) || last.After(time.Now().Add(time.Second)) {
		t.Errorf("%v", count)
	}
}
