package expand

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
)

// text is a file in memory.
type text struct{ *bytes.Reader }

func (t text) Size() int64 { return t.Reader.Size() }

func textOf(s string) text { return text{bytes.NewReader([]byte(s))} }

// TestSameWords: package ref has words of its own for what package rows reads. They
// are the same, and so are the rules for them.
func TestSameWords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := ref.Batch{
			Format:      rapid.SampledFrom([]string{"ndjson", "csv", "tsv", "avro", "parquet", "", "json", "CSV"}).Draw(t, "format"),
			Compression: rapid.SampledFrom([]string{"", "gzip", "zstd", "bzip2"}).Draw(t, "compression"),
			CSV: ref.CSV{
				Comma:    rapid.SampledFrom([]string{"", ",", ";", "\t", "\"", "\n", "\r", "\x00", "\x7f"}).Draw(t, "comma"),
				NoHeader: rapid.Bool().Draw(t, "no header"),
				Names:    rapid.SampledFrom([][]string{nil, {}, {""}, {"a", "b"}, {"a", "a"}, {"\xff"}, make([]string, 1<<14+1)}).Draw(t, "names"),
			},
		}
		if b.Format != "csv" && b.Format != "tsv" {
			b.CSV = ref.CSV{} // which package rows then overlooks
		}
		o := rows.Options{
			Format: rows.Format(b.Format), Compression: rows.Compression(b.Compression),
			CSV: rows.CSVOptions{Names: b.CSV.Names, NoHeader: b.CSV.NoHeader},
		}
		if b.CSV.Comma != "" {
			o.CSV.Comma = b.CSV.Comma[0]
		}
		r, err := rows.Open(textOf("x"), o)
		var broken *rows.FileError
		if fits := err == nil || errors.As(err, &broken); fits != (b.Check() == nil) {
			t.Errorf("%+v: %v; %v", b, b.Check(), err)
		}
		if err == nil {
			_ = r.Close()
		}
	})
}

// TestSameNames: names tell both packages the same.
func TestSameNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ext := rapid.SampledFrom([]string{"", ".ndjson", ".jsonl", ".jsonlines", ".json", ".csv", ".tsv", ".avro", ".parquet", ".txt", ".gz", ".GZIP", ".zst", ".zstd", ".bz2", "/"})
		name := "x" + ext.Draw(t, "first") + ext.Draw(t, "second")
		format, packing, err := rows.Detect(name, nil)
		if format == rows.Parquet && packing != rows.None {
			return // told by the first bytes there
		}
		b, err2 := ref.BatchNamed(name)
		if (err == nil) != (err2 == nil) || err == nil && (b.Format != string(format) || b.Compression != string(packing)) {
			t.Errorf("%s: %+v, %v; %s, %s, %v", name, b, err2, format, packing, err)
		}
	})
}

// TestLocal: a file of this machine is read as the object that it is to become.
func TestLocal(t *testing.T) {
	var c Count
	r, err := Local(textOf("{}\noops\n\n3\n"), ref.Batch{Format: "ndjson"})
	if err == nil {
		err = errors.Join(c.All(r), r.Close())
	}
	if err != nil || c != (Count{Rows: 3, Rejected: 1, First: 1, Reason: c.Reason}) || c.Reason == "" {
		t.Errorf("%+v, %v", c, err)
	}
	for name, f := range map[string]struct {
		b    ref.Batch
		data string
		says string
	}{
		"packed":     {ref.Batch{Format: "csv"}, "\x1f\x8b\x08", "by its reference it is CSV, by its first bytes "},
		"not packed": {ref.Batch{Format: "csv", Compression: "gzip"}, "a,b\n", "CSV packed as gzip"},
		"another":    {ref.Batch{Format: "avro"}, "PAR1", "Parquet"},
		"no format":  {ref.Batch{Format: "xml"}, "", "not known"},
	} {
		_, err := Local(textOf(f.data), f.b)
		if err == nil || !Definite(err) || !strings.Contains(err.Error(), f.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	empty := Count{}
	if r, err = Local(textOf(""), ref.Batch{Format: "ndjson", Compression: "zstd"}); err == nil {
		err = empty.All(r)
	}
	if err != nil || empty.Rows != 0 {
		t.Errorf("an empty file: %+v, %v", empty, err)
	}
	if Definite(nil) || Definite(io.ErrUnexpectedEOF) {
		t.Error("these are definite")
	}
}
