package client

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/ref"
)

// TestSubmitBatch: how an object's records are read goes with the reference, as headers
// behind the record's own.
func TestSubmitBatch(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	own := make([]Header, 1, 8)
	own[0] = Header{Name: "h", Value: []byte("v")}
	for _, c := range []struct {
		url   string
		batch *Batch
		want  Batch
	}{
		{"s3://bucket/a.ndjson.gz", &Batch{}, Batch{Format: NDJSON, Compression: Gzip}},
		{"s3://bucket/a.csv.zst", &Batch{Compression: Zstd, Expand: true, CSV: CSVOptions{Comma: ";"}},
			Batch{Format: CSV, Compression: Zstd, Expand: true, CSV: CSVOptions{Comma: ";"}}},
		{"s3://bucket/a.ndjson.gz", &Batch{Format: Parquet}, Batch{Format: Parquet}},
	} {
		pending, err := p.Submit(t.Context(), "t", Reference{URL: c.url, Batch: c.batch, Records: 7}, Record{Headers: own}, Unchecked())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pending.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := w.read(defaultLane)
		got := all[len(all)-1].Record
		b, is, err := ref.BatchOf(&got)
		if diff := cmp.Diff(c.want, b); !is || err != nil || diff != "" {
			t.Errorf("%s: %q, %v, %s", c.url, got.Headers, err, diff)
		}
		if got.Headers[0].Name != "h" || got.Ref.Records == nil || *got.Ref.Records != 7 {
			t.Errorf("%s: %+v, %+v", c.url, got.Headers, got.Ref)
		}
	}
	if own[:2][1].Name != "" {
		t.Errorf("the caller's headers were written to: %q", own[:2])
	}
}

// TestSubmitBatchRefuses: what nobody could read is not published.
func TestSubmitBatchRefuses(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	for name, c := range map[string]struct {
		url     string
		batch   *Batch
		headers []Header
		says    string
	}{
		"format":        {"s3://bucket/a.csv", &Batch{Format: "xml"}, nil, `"xml" is not known`},
		"name":          {"s3://bucket/a.txt", &Batch{}, nil, `"a.txt" does not say`},
		"compression":   {"s3://bucket/a.csv", &Batch{Compression: Gzip}, nil, "packed as gzip"},
		"parquet":       {"s3://bucket/a.parquet.gz", &Batch{}, nil, "as a whole"},
		"options":       {"s3://bucket/a.csv", &Batch{CSV: CSVOptions{NoHeader: true}}, nil, "needs names"},
		"both":          {"s3://bucket/a.csv", &Batch{}, []Header{{Name: ref.HeaderExpand}}, "by the reference's Batch"},
		"wrong headers": {"s3://bucket/a.csv", nil, []Header{{Name: ref.HeaderRows, Value: []byte("xml")}}, `"xml" is not known`},
	} {
		_, err := p.Submit(t.Context(), "t", Reference{URL: c.url, Batch: c.batch}, Record{Headers: c.headers}, Unchecked())
		if !isType[*BatchError](err) || !NotStored(err) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.Submit(t.Context(), "t", Reference{URL: "http://h", Batch: &Batch{}}, Record{}, Unchecked()); !isType[*ReferenceError](err) {
		t.Errorf("no URL: %v", err)
	}
	if n := len(w.read(defaultLane)); n > 0 {
		t.Errorf("%d records were published", n)
	}
}

// TestUpload: a payload is put where large values are, once, and what comes back is a
// reference to it as it is.
func TestUpload(t *testing.T) {
	g := newGateway(t)
	o := g.objects(nil)
	data := bytes.Repeat([]byte("payload "), 1000)
	sum := sha256.Sum256(data)
	first, err := o.Upload(t.Context(), "films", bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first.URL, "s3://spillway/spillway/films/") || first.Size != int64(len(data)) || first.ETag == "" || !bytes.Equal(first.SHA256, sum[:]) {
		t.Errorf("%+v", first)
	}
	again, err := o.Upload(t.Context(), "films", bytes.NewReader(data), int64(len(data)))
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("again: %v, %s", err, diff)
	}
	if _, err := o.Check(t.Context(), first); err != nil {
		t.Error(err)
	}
	nowhere := g.objects(func(c *ObjectsConfig) { c.Bucket = "" })
	if _, err := nowhere.Upload(t.Context(), "films", bytes.NewReader(nil), 0); !passing(false)(err) {
		t.Errorf("no bucket: %v", err)
	}
	failed := errors.New("the disk is broken")
	if _, err := o.Upload(t.Context(), "films", brokenDisk{failed}, 10); !errors.Is(err, failed) {
		t.Errorf("no file: %v", err)
	}
}

type brokenDisk struct{ err error }

func (d brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, d.err }
