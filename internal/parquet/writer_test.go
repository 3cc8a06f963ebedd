package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
)

func TestRefused(t *testing.T) {
	good := func(offset uint64) Row {
		return Row{Offset: offset, Batch: NoBatch, Source: "lane", Record: record.Record{Time: t0, Value: []byte("v")}}
	}
	for name, c := range map[string]struct {
		edit func(*Row)
		want string
	}{
		"an offset again":         {func(r *Row) { r.Offset = 10 }, "of the same offset"},
		"an offset below":         {func(r *Row) { r.Offset = 9 }, "after offset 10"},
		"too large an offset":     {func(r *Row) { r.Offset = math.MaxInt64 + 1 }, "no file can"},
		"another segment":         {func(r *Row) { r.Segment = "other" }, "is of the segment"},
		"no row of a batch":       {func(r *Row) { r.Batch = -2 }, "no row of a batch"},
		"a time before all":       {func(r *Row) { r.Time = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }, "years 1 to 9999"},
		"an event after all":      {func(r *Row) { r.EventTime = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }, "years 1 to 9999"},
		"a source that is none":   {func(r *Row) { r.Source = "\xff" }, "source is not valid"},
		"a header that is none":   {func(r *Row) { r.Headers = []record.Header{{Name: "\xff"}} }, "header name is not valid"},
		"a producer that is none": {func(r *Row) { r.ID = &record.ID{Producer: "\xff"} }, "producer is not valid"},
		"a reason that is none":   {func(r *Row) { r.Rejected = "\xff" }, "rejected is not valid"},
		"an error that is none":   {func(r *Row) { r.Error = "\xff" }, "error is not valid"},
		"a URL that is none":      {func(r *Row) { r.Ref = &record.Ref{URL: "\xff"} }, "ref.url is not valid"},
		"a digest that is none":   {func(r *Row) { r.Ref = &record.Ref{SHA256: []byte{1}} }, "SHA-256 of 1 bytes"},
		"pending without a ref":   {func(r *Row) { r.Pending = true }, "pending without"},
		"too many headers":        {func(r *Row) { r.Headers = make([]record.Header, record.MaxHeaders+1) }, "headers"},
		"too large":               {func(r *Row) { r.Value = make([]byte, maxRow) }, "at most"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := NewWriter(&out, WriterOptions{Segment: testSegment})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Abort()
			first, bad, next := good(10), good(11), good(12)
			c.edit(&bad)
			if err := w.Write(&first); err != nil {
				t.Fatal(err)
			}
			err = w.Write(&bad)
			if refused := (*RowError)(nil); !errors.As(err, &refused) || !strings.Contains(refused.Reason, c.want) || refused.Offset != bad.Offset {
				t.Errorf("%v", err)
			}
			if err := w.Write(&next); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Close(); err != nil {
				t.Fatal(err)
			}
			first.Segment, next.Segment = testSegment, testSegment
			if d := diff([]Row{first, next}, rowsOf(t, open(t, out.Bytes()), Filter{})); d != "" {
				t.Error(d)
			}
		})
	}
	if _, err := NewWriter(io.Discard, WriterOptions{}); err == nil {
		t.Error("a file of no segment")
	}
}

// broken fails from a byte on.
type broken struct {
	left int
	err  error
}

func (b *broken) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, b.err
	}
	return len(p), nil
}

// TestWriteError: what the file's writer failed with comes as it was, once and for all.
func TestWriteError(t *testing.T) {
	full := errors.New("the disk is full")
	rows := bigRows(3000)
	data, _ := write(t, WriterOptions{GroupRows: 1000}, rows)
	for left := 0; left < len(data); left += len(data) / 40 {
		w, err := NewWriter(&broken{left, full}, WriterOptions{Segment: testSegment, GroupRows: 1000})
		if err != nil {
			if !errors.Is(err, full) {
				t.Fatalf("after %d bytes: %v", left, err)
			}
			continue
		}
		for i := range rows {
			if err = w.Write(&rows[i]); err != nil {
				break
			}
		}
		if _, closed := w.Close(); !errors.Is(closed, full) || err != nil && !errors.Is(err, full) {
			t.Errorf("after %d bytes: %v, and %v from Close", left, err, closed)
		}
		if err := w.Write(&rows[0]); !errors.Is(err, full) {
			t.Errorf("then: %v", err)
		}
		w.Abort()
	}
}

func TestAfterTheEnd(t *testing.T) {
	rows := bigRows(10)
	for name, end := range map[string]func(*Writer) error{
		"closed":  func(w *Writer) error { _, err := w.Close(); return err },
		"aborted": func(w *Writer) error { w.Abort(); w.Abort(); return nil },
	} {
		var out counter
		w, err := NewWriter(&out, WriterOptions{Segment: testSegment})
		if err == nil {
			err = errors.Join(w.Write(&rows[0]), end(w))
		}
		if err != nil {
			t.Fatal(err)
		}
		size, n := w.Size(), out
		if err := w.Write(&rows[1]); err == nil {
			t.Errorf("%s: a row was taken", name)
		}
		if _, err := w.Close(); err == nil {
			t.Errorf("%s: it can be closed", name)
		}
		w.Abort()
		if out != n || w.Size() != size || name == "closed" && int64(n) != size {
			t.Errorf("%s: %d bytes and then %d, size %d", name, n, out, w.Size())
		}
	}
}

// slow takes its time, now and then.
type slow struct {
	bytes.Buffer
	r *rand.Rand
}

func (s *slow) Write(p []byte) (int, error) {
	if s.r.IntN(8) == 0 {
		<-time.After(time.Duration(s.r.IntN(300)) * time.Microsecond)
	}
	return s.Buffer.Write(p)
}

// TestDeterministic: equal rows give equal bytes, and equal sizes on the way, however
// fast these go away.
func TestDeterministic(t *testing.T) {
	rows := bigRows(4000)
	var want []byte
	var wantSizes string
	for try := range 6 {
		out := &slow{r: rand.New(rand.NewPCG(uint64(try), 1))}
		w, err := NewWriter(out, WriterOptions{Segment: testSegment, GroupRows: 700})
		if err != nil {
			t.Fatal(err)
		}
		var sizes strings.Builder
		for i := range rows {
			if err := w.Write(&rows[i]); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				fmt.Fprintln(&sizes, w.Size())
			}
		}
		estimate := w.Size()
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if n := int64(out.Len()); estimate < n*3/4 || estimate > n*5/4 {
			t.Errorf("%d bytes became %d", estimate, n)
		}
		if try == 0 {
			want, wantSizes = out.Bytes(), sizes.String()
		}
		if !bytes.Equal(want, out.Bytes()) || wantSizes != sizes.String() {
			t.Errorf("the %dth time the file or its size on the way is another", try)
		}
	}
}

// TestManyWords has more texts in a column of few texts than its dictionary takes, in
// some row groups.
func TestManyWords(t *testing.T) {
	rows := bigRows(9000)
	for i := range rows {
		rows[i].Segment = testSegment
		rows[i].Headers = []record.Header{{Name: fmt.Sprintf("header-%d", i), Value: []byte("v")}, {Name: "same", Value: []byte{}}}
		if i%3 == 0 {
			rows[i].ID = &record.ID{Producer: fmt.Sprintf("producer %d", i%4000), Sequence: uint64(i)}
		}
		if i > 6000 {
			rows[i].Headers = rows[i].Headers[1:]
			rows[i].Source = strings.Repeat("long", 300)
		}
	}
	data, _ := write(t, WriterOptions{GroupRows: 3000}, rows)
	if d := diff(rows, rowsOf(t, open(t, data), Filter{})); d != "" {
		t.Error(d[:min(len(d), 2000)])
	}
}

// TestLargeRows has rows as large as they can be. Each is a page by itself, and a row
// group ends before it grows over its bounds.
func TestLargeRows(t *testing.T) {
	rows := bigRows(5)
	noise := make([]byte, record.MaxRecord-1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for i := range rows {
		rows[i].Segment, rows[i].Value = testSegment, noise[i:]
	}
	rows[3].Headers = []record.Header{{Name: "large", Value: noise[:10<<20]}}
	data, stats := write(t, WriterOptions{}, rows)
	if stats.Groups != 4 { // of the rows 0 and 1, and then of each
		t.Errorf("%d row groups", stats.Groups)
	}
	if got := rowsOf(t, open(t, data), Filter{}); diff(rows, got) != "" {
		t.Errorf("%d rows, and not the same", len(got))
	}
}
