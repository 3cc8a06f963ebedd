package rows_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/rows"
)

// all reads a file to its end, and copies what it gives.
func all(t testing.TB, data []byte, o rows.Options) ([]rows.Row, error) {
	t.Helper()
	return drain(t, bytes.NewReader(data), o)
}

func drain(t testing.TB, f rows.File, o rows.Options) ([]rows.Row, error) {
	t.Helper()
	r, err := rows.Open(f, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	var list []rows.Row
	for {
		row, err := r.Next()
		if err != nil {
			if _, again := r.Next(); again == nil || again.Error() != err.Error() {
				t.Errorf("after %v Next gives %v", err, again)
			}
			if errors.Is(err, io.EOF) {
				return list, nil
			}
			return list, err
		}
		row.Value = bytes.Clone(row.Value)
		list = append(list, row)
	}
}

// show is rows as text, one a line.
func show(list []rows.Row) string {
	var b strings.Builder
	for _, r := range list {
		if r.Rejected == "" {
			fmt.Fprintf(&b, "%d %s\n", r.N, r.Value)
			continue
		}
		fmt.Fprintf(&b, "%d rejected: %s: %q\n", r.N, r.Rejected, r.Value)
	}
	return b.String()
}

func gzipped(t testing.TB, parts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, p); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func zstded(t testing.TB, parts ...string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for _, p := range parts {
		out = w.EncodeAll([]byte(p), out)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestNDJSON(t *testing.T) {
	deep := strings.Repeat("[", 10_002) + strings.Repeat("]", 10_002)
	for name, c := range map[string]struct{ in, want string }{
		"empty":              {"", ""},
		"one":                {`{"a":1}` + "\n", "0 {\"a\":1}\n"},
		"no last newline":    {"{}\n[1]", "0 {}\n1 [1]\n"},
		"CRLF":               {"{}\r\n1\r\n", "0 {}\n1 1\n"},
		"CR at the very end": {"{}\r", "0 {}\n"},
		"byte order mark":    {"\xEF\xBB\xBF{}\n", "0 {}\n"},
		"only the mark":      {"\xEF\xBB\xBF", ""},
		"blank lines have no number": {
			"\n\r\n{}\n \t \n2\n   \r\n", "0 {}\n1 2\n",
		},
		"bytes are kept": {
			` { "n" : 12345678901234567890123.50, "n":2, "s":"\u00e4\ud800" } ` + "\n",
			`0  { "n" : 12345678901234567890123.50, "n":2, "s":"\u00e4\ud800" } ` + "\n",
		},
		"any value": {"null\ntrue\n\"x\"\n-1e9\n", "0 null\n1 true\n2 \"x\"\n3 -1e9\n"},
		"rejected ones have a number": {
			"{}\nx\n{}{}\n{\"a\":\"\xff\"}\n{\"a\":1,}\n{}\n",
			"0 {}\n" +
				"1 rejected: the line is not a JSON value: \"x\"\n" +
				"2 rejected: the line is not a JSON value: \"{}{}\"\n" +
				"3 rejected: byte 6 of the row is not UTF-8: \"{\\\"a\\\":\\\"\\xff\\\"}\"\n" +
				"4 rejected: the line is not a JSON value: \"{\\\"a\\\":1,}\"\n" +
				"5 {}\n",
		},
		"a mark within":      {"{}\n\xEF\xBB\xBF{}\n", "0 {}\n1 rejected: the line is not a JSON value: \"\\ufeff{}\"\n"},
		"zero bytes":         {"\x00\x00\n{}\n", "0 rejected: the line is not a JSON value: \"\\x00\\x00\"\n1 {}\n"},
		"raw line in string": {"{\"a\":\"x\ty\"}\n", "0 rejected: the line is not a JSON value: \"{\\\"a\\\":\\\"x\\ty\\\"}\"\n"},
		"nested too deep":    {deep + "\n{}", "0 rejected: the line is not JSON, or is nested over 10000 deep: \"" + deep + "\"\n1 {}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for packing, data := range map[rows.Compression][]byte{rows.None: []byte(c.in), rows.Gzip: gzipped(t, c.in), rows.Zstd: zstded(t, c.in)} {
				got, err := all(t, data, rows.Options{Format: rows.NDJSON, Compression: packing})
				if err != nil || show(got) != c.want {
					t.Errorf("%s: %v, got\n%swant\n%s", packing, err, show(got), c.want)
				}
			}
		})
	}
}

// A long line is one rejected row, or a blank one, and its number is the same
// whatever the limit.
func TestLongLines(t *testing.T) {
	x := func(n int) string { return `"` + strings.Repeat("x", n-2) + `"` }
	blank := strings.Repeat(" ", 300)
	for name, c := range map[string]struct {
		in   string
		want []int // bytes of values; below 0: rejected
	}{
		"as long as can be":    {x(100) + "\n" + x(100) + "\r\n" + x(100), []int{100, 100, 100}},
		"too long by one":      {x(101) + "\n" + x(101) + "\r\n" + x(101), []int{-101, -101, -101}},
		"far too long":         {x(200_000) + "\n1\n" + x(600_000) + "\r\n2\n" + x(1_000_000), []int{-rows.KeptOfLong, 1, -rows.KeptOfLong, 1, -rows.KeptOfLong}},
		"long and blank":       {"1\n" + blank + "\n2\n" + blank, []int{1, 1}},
		"long, blank but last": {blank + "2\n3", []int{-301, 1}},
	} {
		got, err := all(t, []byte(c.in), rows.Options{Format: rows.NDJSON, MaxRow: 100})
		if err != nil || len(got) != len(c.want) {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
			continue
		}
		for i, r := range got {
			n := len(r.Value)
			if r.Rejected != "" {
				n = -n
			}
			if n != c.want[i] || r.N != uint64(i) {
				t.Errorf("%s: row %d (number %d) has %d bytes, want %d: %s", name, i, r.N, n, c.want[i], r.Rejected)
			}
		}
	}
	got, _ := all(t, []byte(x(200_000)+"\r\n"), rows.Options{Format: rows.NDJSON, MaxRow: 100})
	if want := "the row has 200000 bytes, at most 100 are allowed"; len(got) != 1 || got[0].Rejected != want {
		t.Errorf("got %s, want %q", show(got), want)
	}
}

func TestCSV(t *testing.T) {
	semicolons := rows.CSVOptions{Comma: ';'}
	for name, c := range map[string]struct {
		o        rows.CSVOptions
		in, want string
	}{
		"empty":            {in: "", want: ""},
		"only a header":    {in: "a,b", want: ""},
		"plain":            {in: "a,b\n1,x\n2,\n", want: `0 {"a":"1","b":"x"}` + "\n" + `1 {"a":"2","b":""}` + "\n"},
		"no last newline":  {in: "a,b\n1,x", want: `0 {"a":"1","b":"x"}` + "\n"},
		"CRLF, mark":       {in: "\xEF\xBB\xBFa,b\r\n1,x\r\n\"2\",\"y\"\r\n", want: `0 {"a":"1","b":"x"}` + "\n" + `1 {"a":"2","b":"y"}` + "\n"},
		"mark and quote":   {in: "\xEF\xBB\xBF\"a\"\n1\n", want: `0 {"a":"1"}` + "\n"},
		"blank lines":      {in: "\n\na\n\n1\n\r\n2\n\n", want: `0 {"a":"1"}` + "\n" + `1 {"a":"2"}` + "\n"},
		"not blank":        {in: "a\n \n\"\"\n", want: `0 {"a":" "}` + "\n" + `1 {"a":""}` + "\n"},
		"semicolons":       {semicolons, "a;b\n1,5;\"x;y\"\n", `0 {"a":"1,5","b":"x;y"}` + "\n"},
		"tabs":             {rows.CSVOptions{Comma: '\t'}, "a\tb\n1\t\n", `0 {"a":"1","b":""}` + "\n"},
		"quotes":           {in: "a,b\n\"x\"\"y\"\"\",\"\"\"\"\n", want: `0 {"a":"x\"y\"","b":"\""}` + "\n"},
		"lines in quotes":  {in: "a,b\n\"x\ny\r\n\",1\n2,3\n", want: `0 {"a":"x\ny\r\n","b":"1"}` + "\n" + `1 {"a":"2","b":"3"}` + "\n"},
		"blank in quotes":  {in: "a\n\"\n\n\"\n", want: `0 {"a":"\n\n"}` + "\n"},
		"quote at the end": {in: "a,b\n1,\"x\"", want: `0 {"a":"1","b":"x"}` + "\n"},
		"and a CR":         {in: "a,b\n1,\"x\"\r", want: `0 {"a":"1","b":"x"}` + "\n"},
		"quoted names":     {in: "\"a\"\"\nb\",\"\"\n1,2\n", want: `0 {"a\"\nb":"1","":"2"}` + "\n"},
		"escapes":          {in: "a\n\"\\\t\x01é\u2028\"\n", want: `0 {"a":"\\\t\u0001é` + "\u2028" + `"}` + "\n"},
		"given names":      {rows.CSVOptions{Names: []string{"x", "y"}}, "a,a\n1,2\n", `0 {"x":"1","y":"2"}` + "\n"},
		"no header":        {rows.CSVOptions{Names: []string{"x", "y"}, NoHeader: true}, "1,2\n", `0 {"x":"1","y":"2"}` + "\n"},
		"ragged rows": {in: "a,b\n1\n1,2\n1,2,3\n\"1\",2,3\n", want: "0 rejected: the row has 1 fields, and there are 2 columns: \"1\"\n" +
			`1 {"a":"1","b":"2"}` + "\n2 rejected: the row has 3 fields, and there are 2 columns: \"1,2,3\"\n" +
			"3 rejected: the row has 3 fields, and there are 2 columns: \"\\\"1\\\",2,3\"\n"},
		"not UTF-8": {in: "a\n\xe4\nb\n", want: "0 rejected: byte 0 of the row is not UTF-8: \"\\xe4\"\n" + `1 {"a":"b"}` + "\n"},
		"a quote within": {in: "a,b\n5\",x\n1,2\n", want: "0 rejected: byte 1 of the row is a quote in a field without quotes around it: \"5\\\",x\"\n" +
			`1 {"a":"1","b":"2"}` + "\n"},
		"a quote that is not closed costs one line": {
			in: "a,b\n1,\"x\n2,y\n3,z\n", want: "0 rejected: the quote at byte 2 of the row is not closed: \"1,\\\"x\"\n" +
				`1 {"a":"2","b":"y"}` + "\n" + `2 {"a":"3","b":"z"}` + "\n",
		},
		"also if another quote follows": {
			in: "a,b\n1,\"x\r\n2,\"y\"\n3,z\n", want: "0 rejected: byte 8 of the row is a quote with neither a delimiter nor a line end after it, in the quotes that begin at byte 2: \"1,\\\"x\"\n" +
				`1 {"a":"2","b":"y"}` + "\n" + `2 {"a":"3","b":"z"}` + "\n",
		},
		"text after a quote": {in: "a,b\n\"x\"y,1\n", want: "0 rejected: byte 2 of the row is a quote with neither a delimiter nor a line end after it, in the quotes that begin at byte 0: \"\\\"x\\\"y,1\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			for packing, data := range map[rows.Compression][]byte{rows.None: []byte(c.in), rows.Gzip: gzipped(t, c.in)} {
				got, err := all(t, data, rows.Options{Format: rows.CSV, Compression: packing, CSV: c.o})
				if err != nil || show(got) != c.want {
					t.Errorf("%v, got\n%swant\n%s", err, show(got), c.want)
				}
			}
		})
	}
}

func TestCSVFilesThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		o        rows.CSVOptions
		in, want string
	}{
		"two columns of a name": {in: "a,b,a\n", want: `two columns have the name "a"`},
		"not UTF-8":             {in: "a,\xff\n", want: "byte 2 of the row is not UTF-8"},
		"UTF-16":                {in: "\xff\xfea\x00", want: "UTF-16"},
		"a quote in the header": {in: "a\"b\n", want: "byte 1 of the row is a quote"},
		"other names":           {rows.CSVOptions{Names: []string{"a"}}, "a,b\n", "the header has 2 columns, and there are names for 1"},
		"too many columns":      {in: strings.Repeat(",", 1<<20), want: "1048577 columns"},
		"names too long":        {in: strings.Repeat("a", 2<<20), want: "1048576 bytes"},
		"header too long":       {in: strings.Repeat("a", 20<<20), want: "20971520 bytes"},
	} {
		got, err := all(t, []byte(c.in), rows.Options{Format: rows.CSV, CSV: c.o})
		var typed *rows.FileError
		if !errors.As(err, &typed) || !strings.Contains(err.Error(), c.want) || len(got) != 0 {
			t.Errorf("%s: %d rows, %v", name, len(got), err)
		}
	}
}

func TestOptionsThatAreRefused(t *testing.T) {
	for want, o := range map[string]rows.Options{
		"rows of -1 bytes":                        {Format: rows.NDJSON, MaxRow: -1},
		"rows of 11534337 bytes":                  {Format: rows.NDJSON, MaxRow: rows.MostMaxRow + 1},
		`format "xml" is not known`:               {Format: "xml"},
		`compression "lz4" is not known`:          {Format: rows.NDJSON, Compression: "lz4"},
		"a CSV file without a header needs names": {Format: rows.CSV, CSV: rows.CSVOptions{NoHeader: true}},
		`fields cannot be divided by '"'`:         {Format: rows.CSV, CSV: rows.CSVOptions{Comma: '"'}},
		`two columns have the name "x"`:           {Format: rows.TSV, CSV: rows.CSVOptions{Names: []string{"x", "x"}}},
		"0 names of columns":                      {Format: rows.CSV, CSV: rows.CSVOptions{Names: []string{}}},
		"packed as a whole":                       {Format: rows.Parquet, Compression: rows.Gzip},
	} {
		if _, err := rows.Open(strings.NewReader("x"), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// From gives the same rows as reading all of them.
func TestFrom(t *testing.T) {
	in := "a,b\n1,2\nx\n\n\"3\n\",4\n5,\"6\n7,8\n"
	for format, max := range map[rows.Format]int{rows.NDJSON: 0, rows.CSV: 0} {
		want, err := all(t, []byte(in), rows.Options{Format: format, MaxRow: max})
		if err != nil || len(want) < 5 {
			t.Fatalf("%d rows, %v", len(want), err)
		}
		for from := range uint64(len(want)) + 2 {
			got, err := all(t, []byte(in), rows.Options{Format: format, MaxRow: max, From: from})
			if err != nil || show(got) != show(want[min(from, uint64(len(want))):]) {
				t.Errorf("%s from %d: %v, got\n%s", format, from, err, show(got))
			}
		}
	}
}

// A row of CSV with lines in it ends within 12 MiB or is its first line, to the byte,
// however the bytes come.
func TestCSVSpan(t *testing.T) {
	const span = 12 << 20
	for _, end := range []string{",2\n", "\n", "\r\n", ""} {
		for _, more := range []int{-2, -1, 0, 1, 2} {
			body := strings.Repeat(strings.Repeat("x", 8191)+"\n", span/8192-1)
			row := `"` + body + strings.Repeat("z", span+more-len(body)-2-len(end)) + `"` + end
			want := int64(1)
			if more > 0 || more == 0 && end == "" { // without its line end it might go on
				want = span / 8192
			}
			o := rows.Options{Format: rows.CSV, CSV: rows.CSVOptions{Names: []string{"a"}, NoHeader: true}}
			if n, _ := count(t, strings.NewReader(row), o); n != want {
				t.Errorf("%q, %d bytes more than 12 MiB: %d rows, want %d", end, more, n, want)
			}
			o.Compression = rows.Gzip
			parts := gzipped(t, row[:1_000_003], row[1_000_003:len(row)-1], row[len(row)-1:])
			if n, _ := count(t, bytes.NewReader(parts), o); n != want {
				t.Errorf("%q, %d bytes more than 12 MiB, in parts: %d rows, want %d", end, more, n, want)
			}
		}
	}
}
