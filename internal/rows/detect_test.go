package rows_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/rows"
)

func TestDetect(t *testing.T) {
	line := "{\"a\":1}\n{\"a\":2}\n"
	long := `{"a":"` + strings.Repeat("x", 2*rows.HeadSize) + `"}`
	zip := "PK\x03\x04rest"
	type packing = rows.Compression
	for _, c := range []struct {
		name, head string
		format     rows.Format
		packing    packing
		fails      string
	}{
		{"a.ndjson", line, rows.NDJSON, rows.None, ""},
		{"b/A.JSONL", line, rows.NDJSON, rows.None, ""},
		{"a.json", line, rows.NDJSON, rows.None, ""},
		{"a.json", long[:rows.HeadSize], rows.NDJSON, rows.None, ""},
		{"a.json", `{"a":1}`, rows.NDJSON, rows.None, ""},
		{"a.csv", "a,b\n1,2\n", rows.CSV, rows.None, ""},
		{"a.tsv", "a\tb\n1\t2\n", rows.TSV, rows.None, ""},
		{"a.avro", "Obj\x01rest", rows.Avro, rows.None, ""},
		{"a.parquet", "PAR1rest", rows.Parquet, rows.None, ""},
		{"a.parquet", "PARErest", rows.Parquet, rows.None, ""},
		{"a.ndjson.gz", string(gzipped(t, line)), rows.NDJSON, rows.Gzip, ""},
		{"a.csv.zst", string(zstded(t, "a,b\n")), rows.CSV, rows.Zstd, ""},
		{"a.csv.zstd", "\x51\x2A\x4D\x18\x00\x00\x00\x00" + string(zstded(t, "a,b\n")), rows.CSV, rows.Zstd, ""},
		{"a.avro.gz", string(gzipped(t, "Obj\x01rest")), rows.Avro, rows.Gzip, ""},
		{"a.ndjson.gz", string(gzipped(t, line)[:11]), rows.NDJSON, rows.Gzip, ""}, // nothing to be seen of it
		{"a.csv", "", rows.CSV, rows.None, ""},
		{"a.csv.gz", "", rows.CSV, rows.Gzip, ""},
		// By the bytes alone.
		{"part-00000", line, rows.NDJSON, rows.None, ""},
		{"part-00000", long[:rows.HeadSize], rows.NDJSON, rows.None, ""},
		{"part-00000.gz", string(gzipped(t, line)), rows.NDJSON, rows.Gzip, ""},
		{"part-00000", "PAR1rest", rows.Parquet, rows.None, ""},
		{"part-00000", "Obj\x01rest", rows.Avro, rows.None, ""},
		// Contradictions, of which both sides are told.
		{"a.csv", "PAR1rest", "", "", "by its name it is CSV, by its first bytes Parquet"},
		{"a.parquet", line, "", "", "by its name it is Parquet, but it does not begin as such"},
		{"a.avro", "PAR1rest", "", "", "by its name it is Avro, by its first bytes Parquet"},
		{"a.ndjson", string(gzipped(t, line)), "", "", "by its name it is NDJSON, by its first bytes NDJSON packed as gzip"},
		{"a.ndjson.gz", line, "", "", "by its name it is NDJSON packed as gzip, by its first bytes NDJSON"},
		{"a.ndjson.gz", string(zstded(t, line)), "", "", "by its name it is NDJSON packed as gzip, by its first bytes NDJSON packed as zstd"},
		{"a.ndjson.gz", string(gzipped(t, string(gzipped(t, line)))), "", "", "by its name it is NDJSON, by its first bytes gzip"},
		{"a.csv.gz", string(gzipped(t, "Obj\x01rest")), "", "", "by its name it is CSV, by its first bytes Avro"},
		{"a.csv", line, "", "", "by its name it is CSV, by its first line NDJSON"},
		{"a.csv", zip, "", "", "by its name it is CSV, by its first bytes a ZIP archive"},
		{"a.ndjson", "\xff\xfe{\x00", "", "", "by its first bytes UTF-16 text"},
		{"a.ndjson", "a\x00\x00\x00", "", "", "but it is not text"},
		{"a.json", "[\n  {\"a\":1}\n]\n", "", "", "a JSON array"},
		{"a.json", "{\n  \"a\":1\n}\n", "", "", "one JSON document over several lines"},
		{"a.json.gz", string(gzipped(t, "[1]")), "", "", "a JSON array"},
		{"a.parquet.gz", string(gzipped(t, "PAR1rest")), "", "", "unpack it"},
		{"part", "a,b\n1,2\n", "", "", "neither its name nor its first bytes"},
		{"part", zip, "", "", "by its first bytes a ZIP archive"},
		{"part", "", "", "", "empty"},
		{"folder/", "", "", "", "folder"},
		{"folder.csv/", "a,b\n", "", "", "folder"},
	} {
		format, packing, err := rows.Detect(c.name, []byte(c.head))
		var typed *rows.FormatError
		switch {
		case c.fails == "" && (err != nil || format != c.format || packing != c.packing):
			t.Errorf("%s %.20q: %s %s, %v", c.name, c.head, format, packing, err)
		case c.fails != "" && (!errors.As(err, &typed) || !strings.Contains(err.Error(), c.fails)):
			t.Errorf("%s %.20q: %v, want %q", c.name, c.head, err, c.fails)
		}
	}
}

// TestCheck: what is known of a file otherwise than by its name.
func TestCheck(t *testing.T) {
	line := `{"a":1}` + "\n"
	for _, c := range []struct {
		name    string
		format  rows.Format
		packing rows.Compression
		head    string
		fails   string
	}{
		{"a.ndjson", rows.NDJSON, rows.None, line, ""},
		{"a.csv", rows.NDJSON, rows.None, line, ""},
		{"a.csv", rows.NDJSON, rows.None, "PAR1rest", "it should be NDJSON, by its first bytes Parquet"},
		{"a.ndjson", rows.NDJSON, rows.None, "PAR1rest", "by its name it is NDJSON, by its first bytes Parquet"},
		{"a", rows.CSV, rows.Gzip, string(gzipped(t, "a,b\n")), ""},
		{"a", rows.CSV, rows.Gzip, "a,b\n", "it should be CSV packed as gzip, by its first bytes"},
		{"a", rows.Avro, rows.None, line, "it should be Avro, but it does not begin as such"},
		{"a.json", rows.NDJSON, rows.None, "[1,\n2]", "a JSON array"},
		{"a", rows.NDJSON, rows.None, "[1,\n2]", ""},
		{"folder/", rows.CSV, rows.None, "", ""},
	} {
		err := rows.Check(c.name, c.format, c.packing, []byte(c.head))
		var typed *rows.FormatError
		if (err != nil) != (c.fails != "") || err != nil && (!errors.As(err, &typed) || !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s %.20q: %v, want %q", c.name, c.head, err, c.fails)
		}
	}
}
