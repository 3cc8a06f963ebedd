package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/infra/duckdb"
)

// tableQueries measures what DuckDB needs for a few queries on the data files, and beside
// that on the same rows as gzip NDJSON, all on the local disk. Where DuckDB is not
// installed it says so, and measures nothing.
func (b *bulk) tableQueries(ctx context.Context, files dataFiles) (_ []Row, err error) {
	engine, err := duckdb.Find()
	var missing *duckdb.MissingError
	if errors.As(err, &missing) {
		fmt.Fprintln(os.Stderr, "bench: queries of the table are NOT MEASURED:", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(b.env.Dir, "duckdb-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for DuckDB: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	table, err := b.fetched(ctx, dir+"/table", files.urls)
	if err != nil {
		return nil, err
	}
	var urls []string
	for _, n := range b.lines.Names {
		urls = append(urls, n.String())
	}
	lines, err := b.fetched(ctx, dir+"/lines", urls)
	if err != nil {
		return nil, err
	}
	db, err := engine.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return compareQueries(ctx, db, table, lines)
}

func (b *bulk) fetched(ctx context.Context, dir string, urls []string) ([]string, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a folder for DuckDB: %w", err)
	}
	return duckdb.Fetch(ctx, b.env.Filer(), dir, urls)
}

// tableQuery is a query of the same on both; on the lines there may be none.
type tableQuery struct{ name, table, lines string }

var tableQueries = []tableQuery{
	{"count", "select count(*) as n from topic", "select count(*) as n from lines"},
	{"by-origin", `select decode(value)->>'$.origin' as origin, count(*) as n, sum((decode(value)->>'$.delay')::bigint) as delay
		from topic group by origin order by origin`,
		"select origin, count(*) as n, sum(delay) as delay from lines group by origin order by origin"},
	{"one-key", "select count(*) as n, sum(octet_length(value)) > 0 as some from topic where _key = 'SFO'::blob",
		"select count(*) as n, count(*) > 0 as some from lines where origin = 'SFO'"},
	{"one-offset", "select count(*) as n, sum(octet_length(value)) as bytes from topic where _offset = 1000", ""},
}

// compareQueries gives the best of three times of each query, on both.
func compareQueries(ctx context.Context, db *duckdb.DB, table, lines []string) ([]Row, error) {
	quoted := make([]string, len(lines))
	for i, name := range lines {
		quoted[i] = duckdb.Literal(name)
	}
	for _, sql := range []string{
		"create view topic as from " + duckdb.ReadParquet(table),
		"create view lines as from read_json([" + strings.Join(quoted, ", ") + "], format = 'newline_delimited', " +
			"columns = {date: 'VARCHAR', delay: 'BIGINT', distance: 'BIGINT', origin: 'VARCHAR', destination: 'VARCHAR'})",
	} {
		if _, err := db.Query(ctx, sql); err != nil {
			return nil, err
		}
	}
	var rows []Row
	for _, q := range tableQueries {
		of, took, err := bestOf(ctx, db, q.table)
		if err != nil {
			return nil, err
		}
		rows = append(rows, Row{Name: "duckdb/" + q.name + "/table", Value: milliseconds(took), Unit: "ms"})
		if q.lines == "" {
			continue
		}
		same, slow, err := bestOf(ctx, db, q.lines)
		if err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(of, same) {
			return nil, fmt.Errorf("%s gives %v, and of the original %v", q.table, of, same)
		}
		rows = append(rows, Row{Name: "duckdb/" + q.name + "/ndjson.gz", Value: milliseconds(slow), Unit: "ms"})
	}
	return rows, nil
}

func bestOf(ctx context.Context, db *duckdb.DB, sql string) (rows []duckdb.Row, best time.Duration, err error) {
	for i := range 3 {
		result, err := db.Query(ctx, sql)
		if err != nil {
			return nil, 0, err
		}
		if rows = result.Rows; i == 0 || result.Took < best {
			best = result.Took
		}
	}
	return rows, best, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
