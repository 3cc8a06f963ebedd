package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/infra/duckdb"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
)

// topOrigins is how many airports are shown.
const topOrigins = 5

// byOrigin is what there is of one airport.
type byOrigin struct{ flights, delay int64 }

// queryTable asks the table for the flights by origin, and compares with what was
// published. DuckDB is asked where it is, else Spillway's own reader.
func (d *demo) queryTable(ctx context.Context) error {
	engine, err := duckdb.Find()
	var got map[string]byOrigin
	var missing *duckdb.MissingError
	switch {
	case errors.As(err, &missing):
		d.engine = "Spillway's own reader"
		d.step("query the table's files with Spillway's own reader of Parquet, as there is no independent engine here: %v", err)
		got, err = d.readTable(ctx)
	case err == nil:
		d.engine = "DuckDB " + strings.Split(engine.Version, "-")[0]
		d.step("query the table's files with %s, which shares no code with Spillway", d.engine)
		got, err = d.askDuckDB(ctx, engine)
	}
	if err != nil {
		return err
	}
	want, err := d.published()
	if err != nil {
		return err
	}
	for _, origin := range slices.SortedFunc(maps.Keys(got), func(a, b string) int { return cmp.Compare(got[b].flights, got[a].flights) })[:min(topOrigins, len(got))] {
		d.say("  %s  %6d flights, on average %5.1f min late", origin, got[origin].flights, float64(got[origin].delay)/float64(got[origin].flights))
	}
	d.say("%d airports, each with the flights and delays that were published: %v", len(got), maps.Equal(got, want))
	if !maps.Equal(got, want) {
		return fmt.Errorf("%s gets other numbers than were published: %v, not %v", d.engine, got, want)
	}
	return nil
}

// askDuckDB has DuckDB read copies of the files: to read them from S3 it would have to
// download an extension.
func (d *demo) askDuckDB(ctx context.Context, engine duckdb.Engine) (_ map[string]byOrigin, err error) {
	dir, err := os.MkdirTemp(d.env.Dir, "duckdb-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for DuckDB: %w", err)
	}
	files, err := duckdb.Fetch(ctx, d.env.Filer(), dir, d.table.urls())
	if err != nil {
		return nil, err
	}
	db, err := engine.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	sql := "SELECT decode(value)->>'$.origin' AS origin, count(*) AS flights, sum((decode(value)->>'$.delay')::BIGINT) AS delay FROM "
	d.say("%sspillway.%s GROUP BY origin", sql, topicName)
	result, err := db.Query(ctx, sql+duckdb.ReadParquet(files)+" GROUP BY origin")
	if err != nil {
		return nil, err
	}
	got := map[string]byOrigin{}
	for _, r := range result.Rows {
		origin, ok1 := r["origin"].(string)
		flights, ok2 := r["flights"].(int64)
		delay, ok3 := r["delay"].(int64)
		if !ok1 || !ok2 || !ok3 {
			return nil, fmt.Errorf("DuckDB gives %v", r)
		}
		got[origin] = byOrigin{flights, delay}
	}
	return got, nil
}

// readTable reads the files with the reader that reads compacted segments.
func (d *demo) readTable(ctx context.Context) (map[string]byOrigin, error) {
	got := map[string]byOrigin{}
	for _, url := range d.table.urls() {
		entry, err := d.env.Filer().Lookup(ctx, "/buckets/"+strings.TrimPrefix(url, "s3://"))
		if err != nil {
			return nil, err
		}
		r, err := parquet.Open(filer.NewReaderAt(ctx, d.env.Filer(), entry), entry.Size)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", url, err)
		}
		for row, err := range r.Rows(ctx, parquet.Filter{}) {
			if err == nil {
				err = count(got, row.Value, 1)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", url, err)
			}
		}
	}
	return got, nil
}

// published counts what was published and what is in the two files.
func (d *demo) published() (map[string]byOrigin, error) {
	want := map[string]byOrigin{}
	flights, err := rig.Flights()
	if err != nil {
		return nil, err
	}
	for _, f := range flights {
		if err := count(want, f.Value, laps+1); err != nil { // and once from the file
			return nil, err
		}
	}
	sample, err := rig.SampleBulk(1)
	if err != nil {
		return nil, err
	}
	return want, sample.Each(func(_ string, value []byte) error { return count(want, value, 1) })
}

// count adds a flight so many times.
func count(to map[string]byOrigin, value []byte, times int64) error {
	var f struct {
		Origin string `json:"origin"`
		Delay  int64  `json:"delay"`
	}
	if err := json.Unmarshal(value, &f); err != nil {
		return fmt.Errorf("no flight: %w", err)
	}
	was := to[f.Origin]
	to[f.Origin] = byOrigin{was.flights + times, was.delay + times*f.Delay}
	return nil
}
