//go:build duckdb

package duckdb

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// The tests with the build tag duckdb need node and DuckDB (`make duckdb`): they fail
// without. `make test` runs them where node is.

func open(t *testing.T) *DB {
	t.Helper()
	e, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	db, err := e.Open(context.WithoutCancel(t.Context())) // until Close
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// query fails the test unless the statement succeeds.
func (db *DB) query(t *testing.T, sql string, params ...any) []Row {
	t.Helper()
	result, err := db.Query(t.Context(), sql, params...)
	if err != nil {
		t.Fatal(err)
	}
	return result.Rows
}

// TestValues: values come out of SQL as they went in, whatever the time zone is.
func TestValues(t *testing.T) {
	t.Setenv("TZ", "Asia/Kolkata")
	db := open(t)
	at := time.Date(2001, 2, 3, 4, 5, 6, 789_012_000, time.UTC)
	for _, v := range []any{
		nil, true, false, "", "it's\n\"ü\"\u2028", int64(0), int64(math.MinInt64), int64(math.MaxInt64),
		1.0, -0.1, 1e300, math.Inf(1), math.Inf(-1), []byte{}, []byte("\x00\xff'\\x41"), at, time.UnixMicro(-1).UTC(),
	} {
		got := db.query(t, "select $1 as v, [$1] as l, {'s': $1} as s", v)
		if diff := cmp.Diff([]Row{{"v": v, "l": []any{v}, "s": Row{"s": v}}}, got); diff != "" {
			t.Errorf("%#v: %s", v, diff)
		}
	}
	got, err := Query(t.Context(), "select sum(9223372036854775807) + 0::hugeint as h, 1.50 as d, timestamptz '2001-02-03 04:05:00+00' as t, date '2001-02-03' as day")
	want := []Row{{"h": int64(math.MaxInt64), "d": Decimal("1.50"), "t": time.Date(2001, 2, 3, 4, 5, 0, 0, time.UTC), "day": "2001-02-03"}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

// TestSession: a session keeps what it made, and goes on after an error in SQL.
func TestSession(t *testing.T) {
	db := open(t)
	db.query(t, "create table squares as select range as n, range * range as square from range(100000)")
	var bad *SQLError
	if _, err := db.Query(t.Context(), "select bogus from squares"); !errors.As(err, &bad) || !strings.Contains(bad.Message, "bogus") {
		t.Errorf("got %v, want a SQLError about bogus", err)
	}
	if _, err := db.Query(t.Context(), ""); !errors.As(err, &bad) {
		t.Errorf("got %v, want a SQLError", err)
	}
	rows := db.query(t, "select square from squares order by n")
	if len(rows) != 100_000 {
		t.Fatalf("%d rows", len(rows))
	}
	for n, r := range rows {
		if r["square"] != int64(n*n) {
			t.Fatalf("row %d: %v", n, r)
		}
	}
	if rows := db.query(t, "from squares where false"); len(rows) != 0 {
		t.Error(rows)
	}
}

// TestEnd: a query ends with its context, and a database that was left is of no use.
func TestEnd(t *testing.T) {
	db := open(t)
	db.query(t, "select 1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := db.Query(ctx, "select count(*) from range(1000000000000) a where hash(a) = 1")
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) > 20*time.Second {
		t.Errorf("after %v: %v", time.Since(begin), err)
	}
	if _, err := db.Query(t.Context(), "select 1"); err == nil {
		t.Error("it goes on after its end")
	}
	closed := open(t)
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	if _, err := closed.Query(t.Context(), "select 1"); err == nil {
		t.Error("it goes on after Close")
	}
}

// TestBroken: what node says against a module that it cannot load is told.
func TestBroken(t *testing.T) {
	e, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	e.Dir = t.TempDir()
	db, err := e.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Query(t.Context(), "select 1"); err == nil || !strings.Contains(err.Error(), "Cannot find module") {
		t.Errorf("got %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// TestFetch: files of a filer become files that DuckDB reads.
func TestFetch(t *testing.T) {
	db := open(t)
	store := memfs.New().Client("test", nil)
	var urls []string
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), name)
		db.query(t, "copy (select "+Literal(name)+" as name, range as n from range(1000)) to "+Literal(file)+" (format parquet)")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		blob, err := store.Upload(t.Context(), "/buckets/bucket/x", data)
		if err != nil {
			t.Fatal(err)
		}
		f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{blob}}
		if err := store.Create(t.Context(), "/buckets/bucket/"+name+"/same.parquet", f); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "s3://bucket/"+name+"/same.parquet")
	}
	files, err := Fetch(t.Context(), store, t.TempDir(), urls)
	if err != nil {
		t.Fatal(err)
	}
	got := db.query(t, "select name, sum(n) as sum from "+ReadParquet(files)+" group by all order by all")
	want := []Row{{"name": "a", "sum": int64(499500)}, {"name": "b", "sum": int64(499500)}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"s3://bucket/none", "/buckets/bucket/a"} {
		if _, err := Fetch(t.Context(), store, t.TempDir(), []string{bad}); err == nil {
			t.Errorf("%s was fetched", bad)
		}
	}
}
