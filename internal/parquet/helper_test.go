package parquet

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

const testSegment = topic.SegmentID("k3j9x2abq7wz4m5n")

var t0 = time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC)

type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// write makes a file of rows.
func write(t tb, o WriterOptions, rows []Row) ([]byte, Stats) {
	t.Helper()
	if o.Segment == "" {
		o.Segment = testSegment
	}
	var out bytes.Buffer
	w, err := NewWriter(&out, o)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	for i := range rows {
		if err := w.Write(&rows[i]); err != nil {
			t.Fatal(err)
		}
	}
	stats, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), stats
}

func open(t tb, data []byte) *Reader {
	t.Helper()
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// cloneRow is a row that stays.
func cloneRow(r *Row) Row {
	c := *r
	c.Record = r.Clone()
	return c
}

// rowsOf reads what a filter takes.
func rowsOf(t testing.TB, r *Reader, f Filter) []Row {
	t.Helper()
	rows, err := tryRows(t, r, f)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func tryRows(t testing.TB, r *Reader, f Filter) (rows []Row, err error) {
	for row, err := range r.Rows(t.Context(), f) {
		if err != nil {
			return rows, err
		}
		rows = append(rows, cloneRow(row))
	}
	return rows, nil
}

func recordsOf(t testing.TB, r *Reader, f Filter) (rows []Row) {
	t.Helper()
	for row, err := range r.Records(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, cloneRow(row))
	}
	return rows
}

// diff compares rows: nil and empty differ for keys and values, not for lists of
// headers.
func diff(want, got []Row) string {
	if len(want) == 0 && len(got) == 0 {
		return ""
	}
	same := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	return cmp.Diff(want, got, cmp.Comparer(same), cmp.Comparer(func(a, b []record.Header) bool {
		return slices.EqualFunc(a, b, func(a, b record.Header) bool { return a.Name == b.Name && same(a.Value, b.Value) })
	}))
}

func genBytes(most int) *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 0, most),
		rapid.SampledFrom([][]byte{[]byte(`{"a":1}`), []byte("\xff\xfe"), bytes.Repeat([]byte("0123456789abcdef"), 200)}),
	)
}

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"content-type", "trace", "é", "\x00"}))
}

func genTime() *rapid.Generator[time.Time] {
	low, high := time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	return rapid.OneOf(rapid.SampledFrom([]time.Time{low, high, t0, time.UnixMicro(-1).UTC(), time.UnixMicro(0).UTC()}),
		rapid.Map(rapid.Int64Range(low.UnixMicro(), high.UnixMicro()), func(n int64) time.Time { return time.UnixMicro(n).UTC() }))
}

func genRef() *rapid.Generator[*record.Ref] {
	return rapid.Custom(func(t *rapid.T) *record.Ref {
		f := &record.Ref{
			URL: genText().Draw(t, "url"), Size: rapid.Int64().Draw(t, "size"),
			ETag: genText().Draw(t, "etag"), Version: genText().Draw(t, "version"), ContentType: genText().Draw(t, "type"),
		}
		if rapid.Bool().Draw(t, "digest") {
			f.SHA256 = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sha256")
		}
		if rapid.Bool().Draw(t, "counted") {
			n := rapid.Int64().Draw(t, "records")
			f.Records = &n
		}
		return f
	})
}

func genRecord() *rapid.Generator[record.Record] {
	return rapid.Custom(func(t *rapid.T) record.Record {
		r := record.Record{
			Time: genTime().Draw(t, "time"), Key: genBytes(20).Draw(t, "key"), Value: genBytes(300).Draw(t, "value"),
			Position: topic.Position{Sequence: rapid.Uint64().Draw(t, "sequence"), Row: rapid.Uint32().Draw(t, "row")},
			Headers: rapid.SliceOfN(rapid.Custom(func(t *rapid.T) record.Header {
				return record.Header{Name: genText().Draw(t, "name"), Value: append([]byte{}, genBytes(20).Draw(t, "value")...)}
			}), 0, 5).Draw(t, "headers"),
		}
		if rapid.Bool().Draw(t, "event") {
			r.EventTime = genTime().Draw(t, "event time")
		}
		if rapid.IntRange(0, 3).Draw(t, "ref?") == 0 {
			r.Ref = genRef().Draw(t, "ref")
			r.Pending = rapid.Bool().Draw(t, "pending")
		}
		if rapid.Bool().Draw(t, "id") {
			r.ID = &record.ID{Producer: genText().Draw(t, "producer"), Sequence: rapid.Uint64().Draw(t, "number")}
		}
		if rapid.IntRange(0, 3).Draw(t, "rejected?") == 0 {
			r.Rejected = "refused: " + genText().Draw(t, "reason")
		}
		return r
	})
}

// genRows draws the rows of a file: records and batches.
func genRows(most int) *rapid.Generator[[]Row] {
	return rapid.Custom(func(t *rapid.T) []Row {
		var rows []Row
		offset := rapid.OneOf(rapid.Uint64Range(0, 10), rapid.Uint64Range(math.MaxInt64-1e6, math.MaxInt64-1e5)).Draw(t, "first offset")
		for range rapid.IntRange(0, most).Draw(t, "records") {
			row := Row{Segment: testSegment, Offset: offset, Source: genText().Draw(t, "source"), Batch: NoBatch, Record: genRecord().Draw(t, "record")}
			offset += rapid.Uint64Range(1, 3).Draw(t, "step")
			if rapid.IntRange(0, 4).Draw(t, "error?") == 0 {
				row.Error = genText().Draw(t, "error")
			}
			if rapid.IntRange(0, 4).Draw(t, "batch?") > 0 {
				rows = append(rows, row)
				continue
			}
			for i := range rapid.Int32Range(1, 6).Draw(t, "rows") {
				row.Batch, row.Value = i, genBytes(50).Draw(t, "value of a row")
				rows = append(rows, row)
			}
		}
		return rows
	})
}
