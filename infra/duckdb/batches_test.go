//go:build duckdb

package duckdb

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/object"
)

// put puts an object into the stack's bucket and gives its URL.
func (w *world) put(t *testing.T, key string, data []byte) string {
	t.Helper()
	n := object.Name{Bucket: w.info.Bucket, Key: w.topic.Name + "-objects/" + key}
	if _, err := w.objects.Put(t.Context(), n, bytes.NewReader(data), int64(len(data)), object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	return n.String()
}

func (w *world) submit(t *testing.T, ref client.Reference, r client.Record) {
	t.Helper()
	if _, err := w.producer.Submit(t.Context(), w.topic.Name, ref, r, client.Unchecked()); err != nil {
		t.Fatal(err)
	}
	w.flush(t)
}

// TestBatches: a reference is one row that says what it refers to; a batch reference is a
// row for each row of its object, and if that cannot be read one that says why.
func TestBatches(t *testing.T) {
	w := newWorld(t, "batches")
	payload := []byte("a payload")
	sum := sha256.Sum256(payload)
	plain := w.put(t, "plain", payload)
	w.submit(t, client.Reference{URL: plain, Size: int64(len(payload)), SHA256: sum[:]}, client.Record{Key: []byte("plain")})

	sample, err := rig.SampleBulk(1)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sample.Path)
	if err != nil {
		t.Fatal(err)
	}
	flights := w.put(t, "flights.parquet", data)
	named := []client.Header{{Name: "from", Value: []byte("test")}}
	w.submit(t, client.Reference{URL: flights, Batch: &client.Batch{}}, client.Record{Key: []byte("flights"), Headers: named})
	lines := w.put(t, "lines.ndjson", []byte("{\"n\":0}\nno JSON\n{\"n\":2}\n"))
	w.submit(t, client.Reference{URL: lines, Batch: &client.Batch{}}, client.Record{Key: []byte("lines")})
	w.submit(t, client.Reference{URL: w.put(t, "empty.ndjson", []byte("\n")), Batch: &client.Batch{}}, client.Record{Key: []byte("empty")})
	gone := w.put(t, "gone.ndjson", []byte("{\"n\":0}\n"))
	w.submit(t, client.Reference{URL: gone, Batch: &client.Batch{}}, client.Record{Key: []byte("gone")})
	w.ingest(t)
	if err := w.deps.Store.Filer.Delete(t.Context(), "/buckets/"+strings.TrimPrefix(gone, "s3://"), ""); err != nil {
		t.Fatal(err)
	}
	w.seal(t)
	db := open(t)
	files := w.compact(t)
	db.query(t, "create view topic as from "+ReadParquet(files))
	db.query(t, "create view original as from "+ReadParquet([]string{sample.Path}))

	got := db.query(t, `select decode(_key) as key, count(*) as n, count(_row) as numbered, count(distinct _offset) as offsets, count(_error) as errors,
		count(value) as "values" from topic group by all order by all`)
	want := []Row{
		{"key": "empty", "n": int64(1), "numbered": int64(0), "offsets": int64(1), "errors": int64(1), "values": int64(0)},
		{"key": "flights", "n": int64(6000), "numbered": int64(6000), "offsets": int64(1), "errors": int64(0), "values": int64(6000)},
		{"key": "gone", "n": int64(1), "numbered": int64(0), "offsets": int64(1), "errors": int64(1), "values": int64(0)},
		{"key": "lines", "n": int64(3), "numbered": int64(3), "offsets": int64(1), "errors": int64(1), "values": int64(3)},
		{"key": "plain", "n": int64(1), "numbered": int64(0), "offsets": int64(1), "errors": int64(0), "values": int64(0)},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	row := db.query(t, "select _ref.url as url, _ref.size as size, _ref.sha256 as sha256, _ref.pending as pending from topic where _key = 'plain'::blob")
	if diff := cmp.Diff([]Row{{"url": plain, "size": int64(len(payload)), "sha256": sum[:], "pending": false}}, row); diff != "" {
		t.Error(diff)
	}
	sums := "select count(*) as n, sum(%s) as delay, sum(%s) as distance, count(distinct %s) as origins from "
	of := func(from string, column func(string) string) []Row {
		return db.query(t, fmt.Sprintf(sums, column("delay"), column("distance"), column("origin"))+from)
	}
	before := of("original", func(c string) string { return c })
	after := of("topic where _key = 'flights'::blob and _headers[1].value = 'test'::blob and _ref.url = "+Literal(flights),
		func(c string) string {
			if c == "origin" {
				return "decode(value)->>'$.origin'"
			}
			return "(decode(value)->>'$." + c + "')::bigint"
		})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	bad := db.query(t, "select _row, value, _error from topic where _key = 'lines'::blob and _error is not null")
	if len(bad) != 1 || bad[0]["_row"] != int64(1) || string(bad[0]["value"].([]byte)) != "no JSON" {
		t.Errorf("%v", bad)
	}
	disorder := db.query(t, `select * from (select _row, lag(_row) over (partition by filename order by file_row_number) as before
		from `+strings.Replace(ReadParquet(files), ")", ", filename = true, file_row_number = true)", 1)+" where _key = 'flights'::blob) where before >= _row")
	if len(disorder) > 0 {
		t.Errorf("rows of a batch are not in their order: %v", disorder[0])
	}
}
