package parquet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// taken tells what a filter is about, without any of its means.
func taken(f Filter, rows []Row) (out []Row) {
	for _, r := range rows {
		switch {
		case r.Offset < f.From, f.To > 0 && r.Offset >= f.To, !f.Since.IsZero() && r.Time.Before(f.Since),
			f.HasKey && ((r.Key == nil) != (f.Key == nil) || !bytes.Equal(r.Key, f.Key)):
			continue
		}
		if f.NoValues {
			r.Value = nil
		}
		out = append(out, r)
	}
	return out
}

// TestFilter draws filters of all kinds, on files of many row groups with rows whose
// times go up and down and whose keys come again.
func TestFilter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows := genRows(60).Draw(rt, "rows")
		keys := [][]byte{nil, {}, []byte("a"), []byte("b"), bytes.Repeat([]byte("long"), 40)}
		at := t0
		for i := range rows {
			if i > 0 && rows[i].Offset == rows[i-1].Offset {
				rows[i].Time, rows[i].Key = rows[i-1].Time, rows[i-1].Key
				continue
			}
			at = at.Add(time.Duration(rapid.IntRange(-2, 10).Draw(rt, "step")) * time.Second)
			rows[i].Time, rows[i].Key = at, rapid.SampledFrom(keys).Draw(rt, "key")
		}
		data, _ := write(rt, WriterOptions{GroupRows: rapid.IntRange(3, 80).Draw(rt, "rows of a group")}, rows)
		r := open(rt, data)
		edge := func(label string) uint64 {
			if len(rows) == 0 {
				return 0
			}
			return rows[rapid.IntRange(0, len(rows)-1).Draw(rt, label)].Offset + rapid.Uint64Range(0, 1).Draw(rt, label+" beyond")
		}
		for range 4 {
			f := Filter{NoValues: rapid.Bool().Draw(rt, "no values")}
			if rapid.Bool().Draw(rt, "from?") {
				f.From = edge("from")
			}
			if rapid.Bool().Draw(rt, "to?") {
				f.To = edge("to")
			}
			if rapid.Bool().Draw(rt, "since?") {
				f.Since = t0.Add(time.Duration(rapid.IntRange(-10, 250).Draw(rt, "since")) * time.Second)
			}
			if rapid.Bool().Draw(rt, "key?") {
				f.HasKey, f.Key = true, rapid.SampledFrom(append(keys, []byte("none"))).Draw(rt, "wanted key")
			}
			if d := diff(taken(f, rows), rowsOf(t, r, f)); d != "" {
				rt.Fatalf("%+v: %s", f, d)
			}
			if d := diff(taken(f, folded(rows)), recordsOf(t, r, f)); d != "" {
				rt.Fatalf("records, %+v: %s", f, d)
			}
		}
	})
}

// measured counts what is read of a file.
type measured struct {
	r *bytes.Reader
	n int64
}

func (m *measured) ReadAt(p []byte, off int64) (int, error) {
	m.n += int64(len(p))
	return m.r.ReadAt(p, off)
}

// bigRows makes rows with values that do not pack, one every millisecond, and 1,000 keys
// of which each comes again after 1,000 rows.
func bigRows(n int) []Row {
	rows := make([]Row, n)
	value := make([]byte, 200)
	seed := uint32(1)
	for i := range rows {
		for k := range value {
			seed = seed*1664525 + 1013904223
			value[k] = byte(seed >> 24)
		}
		rows[i] = Row{Offset: uint64(1000 + i), Source: "lane.x", Batch: NoBatch, Record: record.Record{
			Time: t0.Add(time.Duration(i) * time.Millisecond), Position: topic.Position{Sequence: uint64(i)},
			Key: fmt.Appendf(nil, "key-%04d", i%1000), Value: slices.Clone(value),
		}}
	}
	return rows
}

// TestPruning shows that little is read where little is wanted.
func TestPruning(t *testing.T) {
	rows := bigRows(60_000)
	data, stats := write(t, WriterOptions{GroupRows: 20_000}, rows)
	if stats.Groups != 3 {
		t.Fatalf("%d row groups", stats.Groups)
	}
	for _, c := range []struct {
		name   string
		filter Filter
		rows   int
		most   int64 // bytes read
	}{
		{"one offset", Filter{From: 31_234, To: 31_235}, 1, 1 << 20},
		{"a span of offsets at the end", Filter{From: 60_000}, 1000, 1_500_000},
		{"nothing below", Filter{To: 1000}, 0, 1 << 19},
		{"nothing above", Filter{From: 61_000}, 0, 1 << 19},
		{"the last second", Filter{Since: t0.Add(59 * time.Second)}, 1000, 1_500_000},
		{"nothing since", Filter{Since: t0.Add(time.Hour)}, 0, 1 << 19},
		{"no such key", Filter{HasKey: true, Key: []byte("key-0123x")}, 0, 1 << 19},
		{"one key in all row groups", Filter{HasKey: true, Key: []byte("key-0123"), NoValues: true}, 60, 4 << 20},
		{"no row without a key", Filter{HasKey: true}, 0, 1 << 20},
		{"no values", Filter{NoValues: true}, 60_000, 3 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := &measured{r: bytes.NewReader(data)}
			r, err := Open(in, int64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			if got := rowsOf(t, r, c.filter); len(got) != c.rows {
				t.Errorf("%d rows, not %d", len(got), c.rows)
			}
			if in.n > c.most {
				t.Errorf("%d bytes of %d were read: at most %d are needed", in.n, len(data), c.most)
			}
			t.Logf("%d bytes of %d", in.n, len(data))
		})
	}
}

// TestStop ends iterations in their middle, by the consumer and by the context.
func TestStop(t *testing.T) {
	data, _ := write(t, WriterOptions{GroupRows: 1000}, bigRows(5000))
	r := open(t, data)
	n := 0
	for _, err := range r.Rows(t.Context(), Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1500 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	n = 0
	for _, err := range r.Rows(ctx, Filter{}) {
		if n++; n == 1500 {
			cancel()
		}
		last = err
	}
	if !errors.Is(last, context.Canceled) || errors.Is(last, ErrFormat) || n > 1501 {
		t.Errorf("%v after %d rows", last, n)
	}
	if got := len(rowsOf(t, r, Filter{})); got != 5000 {
		t.Errorf("then %d rows", got)
	}
}
