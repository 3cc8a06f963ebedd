package functions

import (
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/rows"
)

// hostileCases are all of them. The documents have the same list for people.
func hostileCases() []hostileCase {
	return append(append(hostileText(), hostileLarge()...), hostileBinary()...)
}

// text makes a file of a text.
func text(s string) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		if _, err := io.WriteString(w, s); err != nil {
			t.Fatal(err)
		}
	}
}

// of makes a file of a file that is made while it is read.
func of(f objectFile) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		if _, err := io.Copy(w, io.NewSectionReader(f, 0, f.Size())); err != nil {
			t.Fatal(err)
		}
	}
}

func packed(c rows.Compression, inside func(*testing.T, io.Writer)) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		var z io.WriteCloser
		var err error
		if c == rows.Zstd {
			z, err = zstd.NewWriter(w, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
		} else {
			z, err = gzip.NewWriterLevel(w, gzip.BestSpeed)
		}
		if err != nil {
			t.Fatal(err)
		}
		inside(t, z)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// cut leaves out the last bytes of a file.
func cut(last int, whole func(*testing.T, io.Writer)) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		var b strings.Builder
		whole(t, &b)
		text(b.String()[:b.Len()-last])(t, w)
	}
}

func hostileText() []hostileCase {
	semicolons := backfill.Read{Format: rows.CSV, CSV: backfill.CSV{Comma: ";"}}
	fields := []string{`0 {"a":"1","b":"2"}`, `1 {"a":"3","b":"4"}`}
	lines := []string{`0 {"a":1}`, `1 {"a":2}`}
	return []hostileCase{
		{name: "quotes-and-newlines.csv", read: csvFile, make: text("a,b\n\"x, \"\"y\"\"\",\"1\n2\r\n3\"\nz,\"\"\n"),
			lines: []string{`0 {"a":"x, \"y\"","b":"1\n2\r\n3"}`, `1 {"a":"z","b":""}`}},
		{name: "quotes-astray.csv", read: csvFile, make: text("a,b\n1,\"2\n3,4\n5,6\"7\n8,\"9\"x\n"), lines: []string{
			`0 1,"2 rejected: byte 12 of the row is a quote with neither a delimiter nor a line end after it, in the quotes that begin at byte 2`,
			fields[1], `2 5,6"7 rejected: byte 3 of the row is a quote in a field without quotes around it`,
			`3 8,"9"x rejected: byte 4 of the row is a quote with neither a delimiter nor a line end after it, in the quotes that begin at byte 2`,
		}},
		{name: "ragged.csv", read: csvFile, make: text("a,b\n1,2\n3\n4,5,6\n"), lines: []string{
			fields[0], "1 3 rejected: the row has 1 fields, and there are 2 columns", "2 4,5,6 rejected: the row has 3 fields, and there are 2 columns",
		}},
		{name: "semicolons.csv", read: semicolons, make: text("a;b\n1;2\n3;4\n"), lines: fields},
		{name: "tabs.tsv", read: backfill.Read{Format: rows.TSV}, make: text("a\tb\n1\t2\n3\t4\n"), lines: fields},
		{name: "bom.csv", read: csvFile, make: text("\xEF\xBB\xBFa,b\n1,2\n3,4\n"), lines: fields},
		{name: "bom.ndjson", read: ndjsonFile, make: text("\xEF\xBB\xBF{\"a\":1}\n{\"a\":2}\n"), lines: lines},
		{name: "crlf.csv", read: csvFile, make: text("a,b\r\n1,2\r\n3,4\r\n"), lines: fields},
		{name: "crlf.ndjson", read: ndjsonFile, make: text("{\"a\":1}\r\n{\"a\":2}\r\n"), lines: lines},
		{name: "blank-lines.csv", read: csvFile, make: text("\n\na,b\n\n1,2\n\r\n\n3,4\n\n"), lines: fields},
		{name: "blank-lines.ndjson", read: ndjsonFile, make: text("\n{\"a\":1}\n \t\n\r\n{\"a\":2}\n\n"), lines: lines},
		{name: "no-last-newline.csv", read: csvFile, make: text("a,b\n1,2\n3,4"), lines: fields},
		{name: "no-last-newline.ndjson", read: ndjsonFile, make: text("{\"a\":1}\n{\"a\":2}"), lines: lines},
		{name: "invalid-utf8.csv", read: csvFile, make: text("a,b\n1,2\n\xff,4\n"), lines: []string{
			fields[0], "1 \xff,4 rejected: byte 0 of the row is not UTF-8",
		}},
		{name: "invalid-utf8.ndjson", read: ndjsonFile, make: text("{\"a\":\"\xc3\"}\n{\"a\":2}"), lines: []string{
			"0 {\"a\":\"\xc3\"} rejected: byte 6 of the row is not UTF-8", lines[1],
		}},
		{name: "names-twice.ndjson", read: ndjsonFile, make: text(`{"a":1,"a":2}`), lines: []string{`0 {"a":1,"a":2}`}},
		{name: "names-twice.csv", read: csvFile, make: text("a,a\n1,2\n"), fails: `two columns have the name "a": give names`},
		{name: "large-numbers.ndjson", read: ndjsonFile, make: text(`{"a":9007199254740993,"b":1e400,"c":-0.10000000000000000000001}`),
			lines: []string{`0 {"a":9007199254740993,"b":1e400,"c":-0.10000000000000000000001}`}},
		{name: "large-numbers.csv", read: csvFile, make: text("a,b\n9007199254740993,1e400\n"), lines: []string{`0 {"a":"9007199254740993","b":"1e400"}`}},
		{name: "no-json.ndjson", read: ndjsonFile, make: text("{\"a\":1}\n{a:2}\n[1]\nnull\n"), lines: []string{
			lines[0], "1 {a:2} rejected: the line is not a JSON value", "2 [1]", "3 null",
		}},
		{name: "empty.ndjson", read: ndjsonFile},
		{name: "empty.csv", read: csvFile},
		{name: "empty.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip)},
		{name: "empty-inside.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip), make: packed(rows.Gzip, text(""))},
		{name: "empty.avro", read: avroFile, fails: "does not begin as an Avro object container file"},
		{name: "empty.parquet", read: parquetFile, fails: "a file of 0 bytes is no Parquet file"},
		{name: "parquet.csv", read: csvFile, make: text("PAR1\x15\x04\x15\x00PAR1"), fails: "by its name it is CSV, by its first bytes Parquet"},
		{name: "gzip.ndjson", read: ndjsonFile, make: packed(rows.Gzip, text("{}")), fails: "by its name it is NDJSON, by its first bytes NDJSON packed as gzip"},
		{name: "ndjson.parquet", read: parquetFile, make: text("{}\n{}\n"), fails: "by its name it is Parquet, but it does not begin as such"},
		{name: "utf16.csv", read: csvFile, make: text("\xff\xfea\x00,\x00"), fails: "UTF-16 text"},
		{name: "array.json", read: ndjsonFile, make: text("[\n{\"a\":1},\n{\"a\":2}\n]\n"), fails: "a JSON array"},
	}
}

func hostileLarge() []hostileCase {
	line := `{"id":123456,"text":"` + strings.Repeat("some text ", 9) + "\"}\n"
	xs, ys := strings.Repeat("x", 1<<20), strings.Repeat("y", 1e5)
	return []hostileCase{
		{name: "bomb.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip), make: packed(rows.Gzip, of(repeating{"", xs, 400, "\n{}\n"})),
			rows: 2, good: 1, rejected: "the row has 419430400 bytes, at most 8388608 are allowed"},
		{name: "bomb-of-brackets.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip), make: func(t *testing.T, w io.Writer) {
			packed(rows.Gzip, of(repeating{"", strings.Repeat("[", 8<<20-1) + "\n", 8, "{}\n"}))(t, w)
		},
			rows: 9, good: 1, rejected: "over 10000 deep"},
		{name: "bomb.ndjson.zst", read: packedAs(ndjsonFile, rows.Zstd), make: packed(rows.Zstd, of(repeating{"", xs, 400, "\n{}\n"})),
			rows: 2, good: 1, rejected: "the row has 419430400 bytes, at most 8388608 are allowed"},
		{name: "truncated.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip), make: cut(9, packed(rows.Gzip, of(repeating{"", line, 10_000, ""}))),
			rows: 10_000, good: 10_000, fails: "the gzip file cannot be unpacked further: it is cut off (at row 10000"},
		{name: "damaged.ndjson.gz", read: packedAs(ndjsonFile, rows.Gzip), make: func(t *testing.T, w io.Writer) {
			cut(8, packed(rows.Gzip, of(repeating{"", line, 10_000, ""})))(t, w)
			text("checksum")(t, w)
		}, rows: 10_000, good: 10_000, fails: "the gzip file cannot be unpacked further"},
		{name: "line-of-200-MB.ndjson", read: ndjsonFile, made: repeating{"{\"a\":1}\n{\"a\":\"", ys, 2000, "\"}\n{\"a\":2}\n"},
			rows: 3, good: 2, rejected: "the row has 200000008 bytes, at most 8388608 are allowed"},
		{name: "field-of-100-MB.csv", read: csvFile, made: repeating{"a,b\n1,2\n3,", ys, 1000, "\n5,6\n"},
			rows: 3, good: 2, rejected: "the row has 100000002 bytes, at most 8388608 are allowed"},
		{name: "quoted-field-of-100-MB.csv", read: csvFile, made: repeating{"a,b\n1,2\n3,\"", ys, 1000, "\"\n5,6\n"},
			rows: 3, good: 2, rejected: "the row has 100000004 bytes, at most 8388608 are allowed"},
		// The quote is not closed within 12 MiB: each line is a row.
		{name: "field-of-100-MB-in-lines.csv", read: csvFile, made: repeating{"a,b\n1,2\n3,\"\n", strings.Repeat("y", 999) + "\n", 100_000, "\"\n5,6\n"},
			rows: 100_004, good: 2, rejected: "is not closed"},
		{name: "zeros.ndjson", read: ndjsonFile, made: repeating{"{}\n", strings.Repeat("\x00", 1024), 512 * 1024, ""}, fails: "it is not text"},
		{name: "wide.csv", read: csvFile, made: repeating{"a", ",a", 1 << 20, "\n"}, fails: "columns, at most 16384 are allowed"},
	}
}
