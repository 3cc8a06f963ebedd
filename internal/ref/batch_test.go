package ref

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/record"
)

func headersOf(pairs ...string) (list []record.Header) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, record.Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return list
}

// TestBatchOf: what makes a batch reference of a record.
func TestBatchOf(t *testing.T) {
	for name, c := range map[string]struct {
		headers []record.Header
		want    Batch
	}{
		"format":      {headersOf("h", "v", HeaderRows, "ndjson"), Batch{Format: "ndjson"}},
		"compression": {headersOf(HeaderRows, "tsv+zstd"), Batch{Format: "tsv", Compression: "zstd"}},
		"parquet":     {headersOf(HeaderRows, "parquet", HeaderExpand, "true"), Batch{Format: "parquet", Expand: true}},
		"not to be":   {headersOf(HeaderRows, "avro+gzip", HeaderExpand, "false"), Batch{Format: "avro", Compression: "gzip"}},
		"csv": {headersOf(HeaderCSV, ` {"comma":";","names":["a","ä"],"no_header":true} `, HeaderRows, "csv"),
			Batch{Format: "csv", CSV: CSV{Comma: ";", Names: []string{"a", "ä"}, NoHeader: true}}},
		"csv as usual": {headersOf(HeaderRows, "csv", HeaderCSV, "{}"), Batch{Format: "csv"}},
	} {
		r := &record.Record{Ref: &record.Ref{}, Headers: c.headers}
		got, is, err := BatchOf(r)
		if diff := cmp.Diff(c.want, got); !is || err != nil || diff != "" {
			t.Errorf("%s: %t, %v, %s", name, is, err, diff)
		}
	}
	rows := headersOf(HeaderRows, "ndjson")
	for name, r := range map[string]record.Record{
		"no header":       {Ref: &record.Ref{}, Headers: headersOf(HeaderExpand, "true", "spillway-rows", "ndjson")},
		"no reference":    {Headers: rows},
		"refused":         {Ref: &record.Ref{}, Headers: rows, Rejected: "no"},
		"refused, unread": {Rejected: "no", Headers: headersOf(HeaderRows, "x")},
	} {
		if b, is, err := BatchOf(&r); is || err != nil {
			t.Errorf("%s: %+v, %t, %v", name, b, is, err)
		}
	}
}

// TestBatchRefused: what says that it is a batch, and cannot be read as one.
func TestBatchRefused(t *testing.T) {
	for _, c := range []struct {
		headers []record.Header
		header  string
		says    string
	}{
		{headersOf(HeaderRows, ""), HeaderRows, "not known"},
		{headersOf(HeaderRows, "xml"), HeaderRows, `format "xml" is not known: there are ndjson, csv, tsv, avro and parquet`},
		{headersOf(HeaderRows, "CSV"), HeaderRows, "not known"},
		{headersOf(HeaderRows, "csv+"), HeaderRows, "no compression after"},
		{headersOf(HeaderRows, "csv+bzip2"), HeaderRows, "there are gzip and zstd"},
		{headersOf(HeaderRows, "csv+gzip+zstd"), HeaderRows, "not known"},
		{headersOf(HeaderRows, "parquet+gzip"), HeaderRows, "as a whole"},
		{headersOf(HeaderRows, strings.Repeat("\xff", 1<<20)), HeaderRows, "not known"},
		{headersOf(HeaderRows, "csv", "h", "", HeaderRows, "csv"), HeaderRows, "more than once"},
		{headersOf(HeaderRows, "csv", HeaderCSV, "{}", HeaderCSV, "{}"), HeaderCSV, "more than once"},
		{headersOf(HeaderRows, "ndjson", HeaderCSV, `{"comma":";"}`), HeaderCSV, "not for ndjson"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"comma":";;"}`), HeaderCSV, "divided"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"comma":"\n"}`), HeaderCSV, "divided"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"comma":"ä"}`), HeaderCSV, "divided"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"no_header":true}`), HeaderCSV, "needs names"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"names":[]}`), HeaderCSV, "0 names"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"names":["a","a"]}`), HeaderCSV, "twice"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{"quote":"'"}`), HeaderCSV, "quote"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `{}{}`), HeaderCSV, "after it"},
		{headersOf(HeaderRows, "csv", HeaderCSV, `["a"]`), HeaderCSV, "JSON object"},
		{headersOf(HeaderRows, "csv", HeaderCSV, "{\"comma\":\"\xff\"}"), HeaderCSV, "JSON object"},
		{headersOf(HeaderRows, "csv", HeaderExpand, "yes"), HeaderExpand, "true or false"},
		{headersOf(HeaderRows, "csv", HeaderExpand, "true", HeaderExpand, "true"), HeaderExpand, "more than once"},
	} {
		b, is, err := BatchOf(&record.Record{Ref: &record.Ref{}, Headers: c.headers})
		var wrong *BatchError
		if !is || !errors.As(err, &wrong) || wrong.Header != c.header || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 500 {
			t.Errorf("%.80q: %+v, %t, %v", c.headers, b, is, err)
		}
	}
}

// TestBatchNamed: what names say.
func TestBatchNamed(t *testing.T) {
	for key, want := range map[string]string{
		"2026/a.ndjson": "ndjson", "A.JSONL.GZ": "ndjson+gzip", "x.y.csv.zst": "csv+zstd", "a/b.tsv": "tsv", "a.avro": "avro", "a.parquet": "parquet",
	} {
		if b, err := BatchNamed(key); err != nil || b.Rows() != want {
			t.Errorf("%s: %q, %v", key, b.Rows(), err)
		}
	}
	for _, key := range []string{"", "a", "a.txt", "a.gz", "csv", "a.csv/", "a.csv/b", "a.csv.bz2", "a.parquet.gz", "\xff.cs\xff"} {
		b, err := BatchNamed(key)
		if _, ok := errors.AsType[*BatchError](err); !ok {
			t.Errorf("%q: %+v, %v", key, b, err)
		}
	}
}

// TestBatchHeaders: what is written is read back.
func TestBatchHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Batch{
			Format:      rapid.SampledFrom(formats).Draw(t, "format"),
			Compression: rapid.SampledFrom(compressions).Draw(t, "compression"),
			CSV: CSV{
				Comma:    rapid.SampledFrom([]string{"", ";", "\t", "<", "|", "\x00"}).Draw(t, "comma"),
				NoHeader: rapid.Bool().Draw(t, "no header"),
				Names:    rapid.SampledFrom([][]string{nil, {""}, {"a", "b<&>"}, {"\x00", "\u2028", "é"}}).Draw(t, "names"),
			},
			Expand: rapid.Bool().Draw(t, "expand"),
		}
		if b.Check() != nil {
			return // there are no such files
		}
		headers := append(headersOf("h", "v"), b.Headers()...)
		got, is, err := BatchOf(&record.Record{Ref: &record.Ref{}, Headers: headers})
		if diff := cmp.Diff(b, got); !is || err != nil || diff != "" {
			t.Errorf("%q: %v, %s", headers, err, diff)
		}
		if n := slices.IndexFunc(headers, func(h record.Header) bool { return !IsBatchHeader(h.Name) }); n != 0 || !slices.ContainsFunc(headers, func(h record.Header) bool { return h.Name == HeaderRows }) {
			t.Errorf("%q", headers)
		}
	})
}

// FuzzBatchOf: whatever is in the headers, it is a batch that there is, or a
// *BatchError.
func FuzzBatchOf(f *testing.F) {
	f.Add("csv+gzip", `{"comma":";","names":["a"],"no_header":true}`, "true")
	f.Add("parquet", "{}", "")
	f.Fuzz(func(t *testing.T, rows, csv, expand string) {
		h := headersOf(HeaderRows, rows, HeaderCSV, csv, HeaderExpand, expand)
		b, is, err := BatchOf(&record.Record{Ref: &record.Ref{}, Headers: h})
		if _, typed := errors.AsType[*BatchError](err); !is || err != nil && !typed {
			t.Fatalf("%t, %v", is, err)
		}
		if err == nil && b.Check() != nil {
			t.Errorf("%+v: %v", b, b.Check())
		}
	})
}
