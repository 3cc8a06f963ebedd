package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
)

// TestBatchOptions: what a call, a list and a name say of how an object is read, and
// which of them wins.
func TestBatchOptions(t *testing.T) {
	semi := client.CSVOptions{Comma: ";"}
	for name, c := range map[string]struct {
		o    batchOptions
		l    listed
		name string
		want *client.Batch
	}{
		"a payload":            {batchOptions{}, listed{}, "a.csv", nil},
		"the name":             {batchOptions{batch: true, delimiter: ";"}, listed{}, "d/a.csv.gz", &client.Batch{Format: "csv", Compression: "gzip", CSV: semi}},
		"the call":             {batchOptions{batch: true, format: "tsv+zstd", expand: true}, listed{}, "a.csv.gz", &client.Batch{Format: "tsv", Compression: "zstd", Expand: true}},
		"the list":             {batchOptions{batch: true, format: "tsv+zstd"}, listed{rows: "avro"}, "a.csv.gz", &client.Batch{Format: "avro"}},
		"the list alone":       {batchOptions{}, listed{rows: "parquet"}, "a.csv.gz", &client.Batch{Format: "parquet"}},
		"the list, with names": {batchOptions{batch: true, columns: []string{"a"}}, listed{rows: "csv"}, "a", &client.Batch{Format: "csv", CSV: client.CSVOptions{Names: []string{"a"}}}},
	} {
		if err := c.o.check(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := c.o.of(c.l, c.name)
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, %s", name, err, diff)
		}
	}
	for name, c := range map[string]struct {
		o          batchOptions
		l          listed
		name, says string
	}{
		"the name":   {batchOptions{batch: true}, listed{}, "a.txt", "give a format"},
		"the list":   {batchOptions{}, listed{rows: "xml"}, "a.csv", "not known"},
		"delimiters": {batchOptions{batch: true, delimiter: ";"}, listed{}, "a.ndjson", "not for ndjson"},
	} {
		if err := c.o.check(); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, err := c.o.of(c.l, c.name)
		if err == nil || functions.ExitCode(err) != functions.ExitUsage || !strings.Contains(err.Error(), c.says) || stateOf(err) != "rejected" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, o := range map[string]batchOptions{
		"format alone": {format: "csv"}, "count alone": {count: true}, "expand alone": {expand: true}, "columns alone": {columns: []string{"a"}},
		"no format": {batch: true, format: "xml"}, "two": {batch: true, format: "csv", delimiter: ";;"}, "no names": {batch: true, format: "csv", noHeader: true},
	} {
		if o.check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
