//go:build duckdb

package duckdb

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
)

// flightColumns are the columns of a flight, as DuckDB reads them from JSON.
const flightColumns = "columns = {date: 'VARCHAR', delay: 'BIGINT', distance: 'BIGINT', origin: 'VARCHAR', destination: 'VARCHAR'}"

// TestFlights: real flights go into a topic that is rolled and compacted twice, the
// second time with half of them, and DuckDB gets from the files that the table names
// what it gets from the original file.
func TestFlights(t *testing.T) {
	w := newWorld(t, "flights")
	flights, err := rig.Flights()
	if err != nil {
		t.Fatal(err)
	}
	original, err := rig.FlightsFile()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, half := range [][]int{{0, len(flights) / 2}, {len(flights) / 2, len(flights)}} {
		for n := half[0]; n < half[1]; n++ {
			f := flights[n]
			r := client.Record{Key: []byte(f.Key), Value: f.Value, Headers: []client.Header{{Name: "number", Value: strconv.AppendInt(nil, int64(n), 10)}}}
			if _, err := w.producer.Publish(t.Context(), w.topic.Name, r); err != nil {
				t.Fatal(err)
			}
		}
		w.flush(t)
		w.ingest(t)
		w.seal(t)
		files = w.compact(t)
	}
	if len(files) < 4 {
		t.Errorf("the table has %d files, of two segments that were compacted twice", len(files))
	}
	db := open(t)
	db.query(t, "create view topic as from "+ReadParquet(files))
	db.query(t, "create view original as from read_json("+Literal(original)+", format = 'newline_delimited', "+flightColumns+")")
	db.query(t, `create view flights as select unnest(from_json(decode(value), '{"date": "VARCHAR", "delay": "BIGINT", "distance": "BIGINT",
		"origin": "VARCHAR", "destination": "VARCHAR"}')) from topic`)
	for _, sql := range []string{
		"select count(*) as n, sum(delay) as delay, sum(distance) as distance, min(date) as first, max(date) as last from %",
		"select origin, count(*) as n, sum(delay) as delay, avg(distance) as distance from % group by origin order by all",
		"select destination, max(delay) as delay, count(distinct origin) as origins from % group by destination order by all",
		"select date[:10] as day, count(*) as n, count(*) filter (where delay > 60) as late from % group by all order by all",
		"select * from % order by all",
	} {
		want, got := db.query(t, in(sql, "original")), db.query(t, in(sql, "flights"))
		if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
			t.Errorf("%s: %d rows, in the original %d: %.2000s", sql, len(got), len(want), diff)
		}
	}
	w.sameFlights(t, db, flights)
}

// in names the table of a statement.
func in(sql, table string) string {
	for i := range sql {
		if sql[i] == '%' {
			return sql[:i] + table + sql[i+1:]
		}
	}
	return sql
}

// sameFlights: every byte is there, once, in the order in which the flights of a key were
// published, and offsets are dense.
func (w *world) sameFlights(t *testing.T, db *DB, flights []rig.Flight) {
	t.Helper()
	rows := db.query(t, `select decode(_headers[1].value)::bigint as number, _key, value, len(_headers) as headers from topic order by number`)
	if len(rows) != len(flights) {
		t.Fatalf("%d rows of %d", len(rows), len(flights))
	}
	for n, r := range rows {
		want := Row{"number": int64(n), "_key": []byte(flights[n].Key), "value": flights[n].Value, "headers": int64(1)}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Fatalf("flight %d: %s", n, diff)
		}
	}
	for what, sql := range map[string]string{
		"overtaken in its key": `select * from (select decode(_headers[1].value)::bigint as number,
			lag(number) over (partition by _key, _segment order by _offset) as before from topic) where before > number`,
		"a gap between offsets": `select _segment, count(*) as n, max(_offset) - min(_offset) + 1 as range from topic
			group by _segment having n <> range or count(distinct _offset) <> n`,
		"a row that is no record": `from topic where _row is not null or _error is not null or _rejected is not null or _ref is not null`,
		"of no time or source":    `from topic where _ts is null or _source is null or _source_seq < 1 or _producer is null or _producer_seq < 1`,
	} {
		if rows := db.query(t, sql); len(rows) > 0 {
			t.Errorf("%s: %d rows, such as %v", what, len(rows), rows[0])
		}
	}
}
