package rows_test

import (
	"bytes"
	stdcsv "encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/rows"
)

// What encoding/csv writes comes out as it was.
func TestCSVRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		columns := rapid.IntRange(1, 5).Draw(rt, "columns")
		text := rapid.OneOf(rapid.String(), rapid.StringMatching("[a\",;\\n\\t \\\\]{0,12}"))
		table := rapid.SliceOfN(rapid.SliceOfN(text, columns, columns), 0, 20).Draw(rt, "table")
		o := rows.Options{Format: rows.CSV, CSV: rows.CSVOptions{
			Comma: rapid.SampledFrom([]byte(",;\t|")).Draw(rt, "comma"), NoHeader: true}}
		for i := range columns {
			o.CSV.Names = append(o.CSV.Names, fmt.Sprintf("c%d", i))
		}
		file := bytes.NewBufferString("\uFEFF") // so that none in the first field is taken for it
		w := stdcsv.NewWriter(file)
		w.Comma = rune(o.CSV.Comma)
		for _, row := range table {
			if columns == 1 && row[0] == "" {
				row[0] = "x" // it would be a blank line
			}
			if err := w.Write(row); err != nil {
				rt.Fatal(err)
			}
		}
		if w.Flush(); w.Error() != nil {
			rt.Fatal(w.Error())
		}
		got, err := all(t, file.Bytes(), o)
		if err != nil || len(got) != len(table) {
			rt.Fatalf("%d rows of %d, %v", len(got), len(table), err)
		}
		for n, row := range got {
			compareRow(rt, row, o.CSV.Names, table[n])
		}
	})
}

func compareRow(t *rapid.T, row rows.Row, names, want []string) {
	t.Helper()
	var got map[string]string
	if err := json.Unmarshal(row.Value, &got); err != nil || row.Rejected != "" || len(got) != len(want) {
		t.Fatalf("row %d: %q %s: %v", row.N, row.Value, row.Rejected, err)
	}
	for i, name := range names {
		if got[name] != want[i] {
			t.Fatalf("row %d: %q, want %q", row.N, got[name], want[i])
		}
	}
}

// Of any text encoding/csv and we read the same, as far as it reads: it has no rows
// after a bad quote.
func TestCSVAgreesWithTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.StringMatching("[ab\",\\r\\n]{0,40}").Draw(rt, "text")
		got, err := all(t, []byte(in), rows.Options{Format: rows.CSV, CSV: rows.CSVOptions{Names: []string{"a", "b"}, NoHeader: true}})
		if err != nil {
			rt.Fatal(err)
		}
		r := stdcsv.NewReader(strings.NewReader(in))
		r.FieldsPerRecord = -1
		for n := 0; ; n++ {
			want, err := r.Read()
			if errors.Is(err, io.EOF) {
				if n != len(got) {
					rt.Fatalf("%d rows, want %d", len(got), n)
				}
				return
			}
			if n >= len(got) {
				rt.Fatalf("%d rows, and then %q, %v", n, want, err)
			}
			switch row := got[n]; {
			case err != nil:
				if row.Rejected == "" {
					rt.Fatalf("row %d: %s, want %v", n, row.Value, err)
				}
				return
			case len(want) != 2:
				if !strings.HasSuffix(row.Rejected, "there are 2 columns") {
					rt.Fatalf("row %d: %s %q, want %q", n, row.Value, row.Rejected, want)
				}
			default:
				// In quotes encoding/csv makes line feeds of all line ends.
				row.Value = bytes.ReplaceAll(row.Value, []byte(`\r\n`), []byte(`\n`))
				compareRow(rt, row, []string{"a", "b"}, want)
			}
		}
	})
}

// How the bytes come does not matter: here one by one, as gzip members of a byte.
func TestInSmallPieces(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.StringMatching("[1ab\",\\r\\n{}]{0,60}").Draw(rt, "text")
		o := rows.Options{Format: rapid.SampledFrom([]rows.Format{rows.NDJSON, rows.CSV}).Draw(rt, "format"), MaxRow: rapid.IntRange(1, 40).Draw(rt, "limit")}
		if o.Format == rows.CSV {
			o.CSV = rows.CSVOptions{Names: []string{"a", "b"}, NoHeader: true}
		}
		want, err := all(t, []byte(in), o)
		if err != nil {
			rt.Fatal(err)
		}
		if o.Compression = rows.Gzip; in == "" {
			return
		}
		got, err := all(t, gzipped(t, strings.Split(in, "")...), o)
		if err != nil || show(got) != show(want) {
			rt.Fatalf("%v, got\n%swant\n%s", err, show(got), show(want))
		}
	})
}

// Numbers depend on the text alone, and each row is there once: rejected or not,
// the rows are what the text is made of.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.SliceOf(rapid.SampledFrom([]string{"a", "b", `"`, `""`, ",", "\n", "\r\n", "é", "\xff", "\x00", "{}", "1"})).Draw(rt, "parts")
		text := strings.Join(in, "")
		lines := 0
		for l := range strings.SplitSeq(text, "\n") {
			if strings.Trim(l, " \t\r") != "" {
				lines++
			}
		}
		for _, limit := range []int{1, 10, 0} {
			got, err := all(t, []byte(text), rows.Options{Format: rows.NDJSON, MaxRow: limit})
			if err != nil || len(got) != lines {
				rt.Fatalf("%d rows of %d lines, %v", len(got), lines, err)
			}
			check(rt, got)
		}
		o := rows.Options{Format: rows.CSV, CSV: rows.CSVOptions{Names: []string{"a", "b"}, NoHeader: true}}
		want, err := all(t, []byte(text), o)
		if err != nil {
			rt.Fatal(err)
		}
		check(rt, want)
		o.MaxRow = rapid.IntRange(1, 40).Draw(rt, "limit")
		got, err := all(t, []byte(text), o)
		if err != nil || len(got) != len(want) {
			rt.Fatalf("limit %d: %d rows, %d without, %v", o.MaxRow, len(got), len(want), err)
		}
	})
}

// check looks at what holds for all rows.
func check(t interface{ Fatalf(string, ...any) }, list []rows.Row) {
	for i, r := range list {
		if r.N != uint64(i) {
			t.Fatalf("row %d has the number %d", i, r.N)
		}
		if r.Rejected == "" && (!json.Valid(r.Value) || !utf8.Valid(r.Value)) {
			t.Fatalf("row %d is not JSON: %q", i, r.Value)
		}
		if !utf8.ValidString(r.Rejected) || len(r.Rejected) > 1000 {
			t.Fatalf("row %d: reason %q", i, r.Rejected)
		}
	}
}
