package object_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/klauspost/compress/gzip"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// counted is the stack's S3 gateway with a counter before it.
type counted struct {
	*object.Store
	requests, sent atomic.Int64
}

func countedWeed(t *testing.T) *counted {
	t.Helper()
	c := weedConfig(t)
	to, err := url.Parse(c.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	w := &counted{}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host // Host stays: it is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == http.MethodGet {
				w.requests.Add(1)
				w.sent.Add(r.ContentLength)
			}
			return nil
		},
	}
	srv := httptest.NewServer(proxy)
	t.Cleanup(srv.Close)
	c.Endpoint = srv.URL
	w.Store = open(t, c)
	return w
}

// manyColumns is a Parquet file of columns of 64-bit numbers that do not pack.
func manyColumns(t *testing.T, columns, groups, values int) []byte {
	t.Helper()
	var fields schema.FieldList
	for i := range columns {
		fields = append(fields, schema.NewInt64Node(fmt.Sprint("c", i), parquet.Repetitions.Required, -1))
	}
	root, err := schema.NewGroupNode("root", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	out := file.NewParquetWriter(&b, root, file.WithWriterProps(parquet.NewWriterProperties(
		parquet.WithDictionaryDefault(false), parquet.WithDataPageSize(64<<10))))
	list := make([]int64, values)
	for i := range list {
		list[i] = int64(uint64(i) * 0x9E3779B97F4A7C15)
	}
	for range groups {
		g, err := out.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for range columns {
			c, err := g.NextColumn()
			if err == nil {
				_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(list, nil, nil)
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func packedLines(t *testing.T, n int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	random := noise(100 * n / 4)
	for i := range n {
		if _, err := fmt.Fprintf(z, "{\"n\":%d,\"v\":\"%x\"}\n", i, random[25*i:25*i+25]); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestFileRequests reads files of rows from a real gateway: how they are read takes
// few requests, and hardly a byte twice.
func TestFileRequests(t *testing.T) {
	w := onWeed(t)
	for name, c := range map[string]struct {
		data     []byte
		o        rows.Options
		requests int64
		twice    int64 // bytes that may come twice
	}{
		"small NDJSON":               {[]byte("{}\n{}\n"), rows.Options{Format: rows.NDJSON}, 1, 0},
		"gzip NDJSON":                {packedLines(t, 50_000), rows.Options{Format: rows.NDJSON, Compression: rows.Gzip}, 2, 0},
		"Parquet, 20 wide columns":   {manyColumns(t, 20, 1, 100_000), rows.Options{Format: rows.Parquet}, 90, 0},
		"Parquet, 20 narrow columns": {manyColumns(t, 20, 8, 10_000), rows.Options{Format: rows.Parquet}, 40, 0},
		"Parquet, 200 columns":       {manyColumns(t, 200, 1, 10_000), rows.Options{Format: rows.Parquet}, 400, 16 << 20},
		"Parquet, one column":        {manyColumns(t, 1, 1, 1_000_000), rows.Options{Format: rows.Parquet}, 12, 0},
	} {
		t.Run(name, func(t *testing.T) {
			info, err := w.Put(t.Context(), w.name("f"), bytes.NewReader(c.data), int64(len(c.data)), object.PutOptions{})
			if err != nil {
				t.Fatal(err)
			}
			through := countedWeed(t)
			f := through.File(t.Context(), w.name("f"), info.Size, info.ETag)
			begin := time.Now()
			fromWeed := valuesOf(t, f, c.o)
			took := time.Since(begin)
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			if got, want := fromWeed, valuesOf(t, bytes.NewReader(c.data), c.o); got != want {
				t.Errorf("got %+v, not %+v", got, want)
			}
			t.Logf("%s, of which reading rows is %s", took, time.Since(begin)-took)
			n, sent := through.requests.Load(), through.sent.Load()
			t.Logf("%d bytes: %d requests for %d bytes", info.Size, n, sent)
			if n > c.requests || sent > info.Size+c.twice {
				t.Errorf("%d requests for %d bytes", n, sent)
			}
		})
	}
}

// TestFileOnWeed: an object that becomes another one, or goes, while it is read.
func TestFileOnWeed(t *testing.T) {
	w := onWeed(t)
	data := noise(3 << 20)
	put := func(data []byte) object.Info {
		info, err := w.Store.Put(t.Context(), w.name("f"), bytes.NewReader(data), int64(len(data)), object.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	info := put(data)
	open := func() *object.File {
		f := w.File(t.Context(), w.name("f"), info.Size, info.ETag)
		t.Cleanup(func() { _ = f.Close() })
		if _, err := f.ReadAt(make([]byte, 100), 0); err != nil {
			t.Fatal(err)
		}
		return f
	}
	f, again := open(), open()
	if got, err := whole(f); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	other := put(data[:2<<20])
	var changed *object.ChangedError
	got, err := whole(again)
	if !errors.As(err, &changed) || changed.Want != info.ETag || changed.Found != other.ETag || changed.Actual != other.Size {
		t.Errorf("another one: %d bytes, %v", len(got), err)
	}
	if err := again.Check(t.Context()); !errors.As(err, &changed) {
		t.Errorf("another one: %v", err)
	}
	if _, err := w.api.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &w.bucket, Key: aws.String("f")}); err != nil {
		t.Fatal(err)
	}
	if _, err := again.ReadAt(make([]byte, 100), 1<<20); !errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrNoBucket) {
		t.Errorf("gone: %v", err)
	}
	none := w.File(t.Context(), object.Name{Bucket: w.bucket + "-none", Key: "f"}, 10, "e")
	if _, err := none.ReadAt(make([]byte, 10), 0); !errors.Is(err, object.ErrNoBucket) {
		t.Errorf("no bucket: %v", err)
	}
}

// digest tells two ways of reading the same file apart.
type digest struct {
	rows, bytes int
	sum         uint64
}

func valuesOf(t *testing.T, f rows.File, o rows.Options) (d digest) {
	t.Helper()
	head := make([]byte, rows.HeadSize) // as whoever looks first at what it is
	if _, err := f.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	r, err := rows.Open(f, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil || row.Rejected != "" {
			t.Fatalf("row %d: %v, %s", d.rows, err, row.Rejected)
		}
		d.rows++
		d.bytes += len(row.Value)
		for _, b := range row.Value {
			d.sum = d.sum*31 + uint64(b)
		}
	}
}
