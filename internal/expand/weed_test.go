package expand_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// gateway is the stack's S3 gateway.
type gateway struct{ *object.Store }

func onGateway(t *testing.T) gateway {
	t.Helper()
	s3 := devtest.Weed(t).Info.S3
	store, err := object.Open(t.Context(), object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return gateway{store}
}

// put puts an object, of a name of its own if there is none, and gives a reference to
// it with its digest.
func (g gateway) put(t *testing.T, name object.Name, data []byte) record.Ref {
	t.Helper()
	if name.Key == "" {
		name = object.Name{Bucket: "spillway", Key: "expand/" + rand.Text()}
	}
	info, err := g.Put(t.Context(), name, bytes.NewReader(data), int64(len(data)), object.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	f := ref.From(name, info)
	f.SHA256 = digest(data)
	return f
}

func digest(data []byte) []byte {
	sum := sha256.Sum256(data)
	return sum[:]
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func parquet(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile("../rows/testdata/flights.parquet")
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRows: the rows of each kind of file, by their numbers, and the digest.
func TestRows(t *testing.T) {
	g := onGateway(t)
	for name, c := range map[string]struct {
		b    ref.Batch
		data []byte
		want []string
	}{
		"NDJSON": {ref.Batch{Format: "ndjson"}, []byte("{\"a\":1}\n\noops\n2"), []string{`0 {"a":1}`, "1 rejected oops", "2 2"}},
		"CSV": {ref.Batch{Format: "csv", Compression: "gzip", CSV: ref.CSV{Comma: ";", Names: []string{"x", "y"}, NoHeader: true}},
			packed(t, "1;2\n3\n4;5\n"), []string{`0 {"x":"1","y":"2"}`, "1 rejected 3", `2 {"x":"4","y":"5"}`}},
		"nothing": {ref.Batch{Format: "ndjson"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := g.put(t, object.Name{}, c.data)
			f.Records = new(int64(len(c.want)))
			r, err := expand.Open(t.Context(), g.Store, f, c.b)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for {
				row, err := r.Next()
				if err == io.EOF { //nolint:errorlint // the contract
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				line := fmt.Sprintf("%d %s", row.N, row.Value)
				if row.Rejected != "" {
					line = fmt.Sprintf("%d rejected %s", row.N, row.Value)
				}
				got = append(got, line)
			}
			if _, err := r.Next(); err != io.EOF { //nolint:errorlint // the contract
				t.Errorf("after the end: %v", err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestParquet: its bytes are not read in order, and have their digest all the same.
func TestParquet(t *testing.T) {
	g, data := onGateway(t), parquet(t)
	f, b := g.put(t, object.Name{}, data), ref.Batch{Format: "parquet"}
	var c expand.Count
	if err := c.Read(t.Context(), g.Store, f, b); err != nil || c.Rows < 1000 || c.Rejected > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	f.SHA256 = make([]byte, 32)
	var again expand.Count
	err := again.Read(t.Context(), g.Store, f, b)
	if !errors.Is(err, object.ErrChanged) || again.Rows != c.Rows {
		t.Errorf("of another digest: %+v, %v", again, err)
	}
	f.SHA256 = nil
	if err := new(expand.Count).Read(t.Context(), g.Store, f, b); err != nil {
		t.Errorf("of none: %v", err)
	}
}

// TestWrong: what an object, or its reference, can be instead; and that a file that is
// broken because it is another one is said to be another one.
func TestWrong(t *testing.T) {
	g := onGateway(t)
	text := strings.Repeat("{\"a\":1}\n", 1000)
	good, zipped, cut := g.put(t, object.Name{}, []byte(text)), g.put(t, object.Name{}, packed(t, text)), packed(t, text)
	broken := g.put(t, object.Name{}, cut[:len(cut)-9])
	ndjson, gz := ref.Batch{Format: "ndjson"}, ref.Batch{Format: "ndjson", Compression: "gzip"}
	mismatch := func(err error) bool { return errors.Is(err, object.ErrChanged) }
	file := func(err error) bool { _, ok := errors.AsType[*rows.FileError](err); return ok }
	for name, c := range map[string]struct {
		f      record.Ref
		b      ref.Batch
		change func(*record.Ref)
		is     func(error) bool
	}{
		"another size":   {good, ndjson, func(f *record.Ref) { f.Size++ }, mismatch},
		"another ETag":   {good, ndjson, func(f *record.Ref) { f.ETag, f.SHA256 = "e", nil }, mismatch},
		"another digest": {good, ndjson, func(f *record.Ref) { f.SHA256 = make([]byte, 32) }, mismatch},
		"too few":        {good, ndjson, func(f *record.Ref) { f.Records = new(int64(1001)) }, isA[*expand.CountError]},
		"too many":       {good, ndjson, func(f *record.Ref) { f.Records = new(int64(0)) }, isA[*expand.CountError]},
		"not there":      {good, ndjson, func(f *record.Ref) { f.URL += "x" }, func(err error) bool { return errors.Is(err, object.ErrNotFound) }},
		"no name":        {good, ndjson, func(f *record.Ref) { f.URL = "http://h/k" }, isA[*ref.ParseError]},
		"packed":         {zipped, ndjson, nil, file},
		"not packed":     {good, gz, nil, file},
		"another kind":   {good, ref.Batch{Format: "parquet"}, nil, file},
		"cut off":        {broken, gz, nil, file},
		"no format":      {good, ref.Batch{Format: "xml"}, nil, isA[*ref.BatchError]},
		"cut off, and another": {broken, gz, func(f *record.Ref) { f.SHA256 = zipped.SHA256 },
			func(err error) bool { return mismatch(err) && !file(err) }},
		"another kind, and another": {zipped, ndjson, func(f *record.Ref) { f.SHA256 = good.SHA256 },
			func(err error) bool { return mismatch(err) && !file(err) }},
	} {
		f := c.f
		if c.change != nil {
			c.change(&f)
		}
		if err := new(expand.Count).Read(t.Context(), g.Store, f, c.b); !c.is(err) || !expand.Definite(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestNotNow: what says nothing of the object.
func TestNotNow(t *testing.T) {
	g := onGateway(t)
	f, b := g.put(t, object.Name{}, []byte("{}\n")), ref.Batch{Format: "ndjson"}
	locked, err := object.Open(t.Context(), object.Config{Endpoint: devtest.Weed(t).Info.S3.URL, AccessKey: "a", SecretKey: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := new(expand.Count).Read(t.Context(), locked, f, b); !errors.Is(err, object.ErrForbidden) || expand.Definite(err) {
		t.Errorf("no rights: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := expand.Open(ctx, g.Store, g.put(t, object.Name{}, bytes.Repeat([]byte("{}\n"), 2<<20)), b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing is written
	cancel()
	if err := new(expand.Count).All(r); !errors.Is(err, context.Canceled) || expand.Definite(err) {
		t.Errorf("an ended context: %v", err)
	}
}

// TestOverwritten: rows of two objects never come as those of one.
func TestOverwritten(t *testing.T) {
	g, b := onGateway(t), ref.Batch{Format: "ndjson"}
	name := object.Name{Bucket: "spillway", Key: "expand/" + rand.Text()}
	f := g.put(t, name, bytes.Repeat([]byte("1\n"), 8<<20))
	f.SHA256 = nil
	r, err := expand.Open(t.Context(), g.Store, f, b)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // nothing is written
	g.put(t, name, bytes.Repeat([]byte("2\n"), 8<<20))
	n := 0
	for ; ; n++ {
		row, err := r.Next()
		if err == io.EOF { //nolint:errorlint // the contract
			break // the connection had it all
		}
		if err != nil {
			if ref.StateOf(err) != ref.Changed {
				t.Errorf("after %d rows: %v", n, err)
			}
			return
		}
		if string(row.Value) != "1" {
			t.Fatalf("row %d is of the other object", row.N)
		}
	}
	if n != 8<<20 {
		t.Errorf("only %d rows", n)
	}
}
