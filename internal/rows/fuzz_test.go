package rows_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillway-mq/spillway/internal/rows"
)

// texts are the formats and packings that FuzzText goes through.
var texts = []rows.Options{
	{Format: rows.NDJSON, MaxRow: 1 << 10},
	{Format: rows.CSV, MaxRow: 1 << 10},
	{Format: rows.CSV, MaxRow: 1 << 10, CSV: rows.CSVOptions{Comma: ';', Names: []string{"a", "b"}, NoHeader: true}},
	{Format: rows.NDJSON, Compression: rows.Gzip},
	{Format: rows.CSV, Compression: rows.Zstd},
}

// FuzzText: whatever a file has in it, reading ends, rows are numbered and JSON or
// rejected, errors have their type, and reading on from the middle gives the same.
func FuzzText(f *testing.F) {
	files, err := filepath.Glob("testdata/text/*.in")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for i, o := range texts {
			switch o.Compression {
			case rows.Gzip:
				f.Add(uint8(i), gzipped(f, string(data)))
			case rows.Zstd:
				f.Add(uint8(i), zstded(f, string(data)))
			default:
				f.Add(uint8(i), data)
			}
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		o := texts[int(which)%len(texts)]
		got, err := all(t, data, o)
		var typed *rows.FileError
		if err != nil && (!errors.As(err, &typed) || typed.Row != uint64(len(got))) {
			t.Fatalf("%d rows, %v", len(got), err)
		}
		check(t, got)
		o.From = uint64(len(got)) / 2
		again, errAgain := all(t, data, o)
		if show(again) != show(got[o.From:]) || (err == nil) != (errAgain == nil) {
			t.Fatalf("from row %d: %v, and %v before", o.From, errAgain, err)
		}
	})
}

// FuzzDetect: whatever a file begins with, the answer is one that Open knows, or has
// its type.
func FuzzDetect(f *testing.F) {
	f.Add("a.json.gz", gzipped(f, "[1]"))
	f.Add("a.csv.zst", zstded(f, "a,b"))
	f.Add("a", []byte("PAR1"))
	f.Fuzz(func(t *testing.T, name string, head []byte) {
		format, packing, err := rows.Detect(name, head)
		var typed *rows.FormatError
		if err != nil {
			if !errors.As(err, &typed) || format != "" {
				t.Fatalf("%q, %v", format, err)
			}
			return
		}
		r, err := rows.Open(bytes.NewReader(head), rows.Options{Format: format, Compression: packing})
		var broken *rows.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Fatalf("%q, %q: %v", format, packing, err)
		}
		if err == nil && r.Close() != nil {
			t.Fatal("it cannot be closed")
		}
	})
}
