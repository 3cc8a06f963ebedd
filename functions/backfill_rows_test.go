package functions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// inMemory is an object whose reading may fail.
type inMemory struct {
	*bytes.Reader
	err    error // of Check, and of reading from failAt on
	failAt int64
	closed *int
}

func (m inMemory) Check(context.Context) error { return m.err }
func (m inMemory) Close() error                { *m.closed++; return nil }

func (m inMemory) ReadAt(p []byte, off int64) (int, error) {
	if m.err != nil && off+int64(len(p)) > m.failAt {
		return 0, m.err
	}
	return m.Reader.ReadAt(p, off)
}

// rowsOf reads an object from a row on: each row in a line, and the error last.
func rowsOf(t *testing.T, s *sourceObjects, from uint32) (lines []string, err error) {
	t.Helper()
	r, err := s.Open(t.Context(), 1, from)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	for {
		row, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		line := fmt.Sprintf("%d %s", row.N, row.Value)
		for _, h := range row.Headers {
			line += fmt.Sprintf(" %s:%s", h.Name, h.Value)
		}
		if row.Key != nil {
			line += " key=" + string(row.Key)
		}
		if !row.Time.IsZero() {
			line += " " + row.Time.Format(time.RFC3339)
		}
		if row.Skip {
			line += " skipped"
		}
		if row.Rejected != "" {
			line += " rejected: " + row.Rejected
		}
		lines = append(lines, line)
	}
}

func oneObject(t *testing.T, read backfill.Read, name string, f inMemory) *sourceObjects {
	t.Helper()
	s, err := newSourceObjects(read, []backfill.Object{{Bucket: "bucket", Key: name, ETag: "the-etag", Size: f.Size()}},
		func(context.Context, backfill.Object) (objectFile, error) { return f, nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestBackfillRows: what becomes of each kind of row.
func TestBackfillRows(t *testing.T) {
	day := func(d int) time.Time { return time.Date(2025, 1, d, 0, 0, 0, 0, time.UTC) }
	data := `{"id":1,"at":"2025-01-01T12:00:00Z","v":"a"}
not JSON
{"id":{},"at":"2025-01-01T12:00:00Z"}
{"id":2,"at":"yesterday"}

{"id":3}
{"id":4,"at":"2025-01-02T12:00:00Z"}
`
	all := []string{
		`0 {"id":1,"at":"2025-01-01T12:00:00Z","v":"a"} V:a key=1 2025-01-01T12:00:00Z`,
		"1 not JSON rejected: the line is not a JSON value",
		`2 {"id":{},"at":"2025-01-01T12:00:00Z"} rejected: the key at /id is an object or array`,
		`3 {"id":2,"at":"yesterday"} rejected: the event time at /at: "yesterday" is not as the layout says`,
		`4 {"id":3} key=3`,
		`5 {"id":4,"at":"2025-01-02T12:00:00Z"} key=4 2025-01-02T12:00:00Z`,
	}
	read := backfill.Read{Format: rows.NDJSON, Key: "id", Time: "/at", Headers: map[string]string{"V": "v"}}
	closed := 0
	f := func() inMemory { return inMemory{Reader: bytes.NewReader([]byte(data)), closed: &closed} }
	s := oneObject(t, read, "a.ndjson", f())
	if s.Len() != 1 || s.Name(1) != "s3://bucket/a.ndjson" {
		t.Errorf("%d, %s", s.Len(), s.Name(1))
	}
	for from := range uint32(7) {
		got, err := rowsOf(t, s, from)
		if d := cmp.Diff(all[min(from, 6):], append([]string{}, got...)); d != "" || err != nil {
			t.Errorf("from %d: %v %s", from, err, d)
		}
	}
	if closed != 7 {
		t.Errorf("closed %d times", closed)
	}
	read.From, read.Until = day(2), day(3)
	got, err := rowsOf(t, oneObject(t, read, "a.ndjson", f()), 0)
	want := []string{all[0] + " skipped", all[1], all[2], all[3], all[4] + " skipped", all[5]}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("within a day: %v %s", err, d)
	}
	// Without a key's place the topic takes keys from values, if at all.
	got, err = rowsOf(t, oneObject(t, backfill.Read{Format: rows.NDJSON}, "a.ndjson", f()), 5)
	if d := cmp.Diff([]string{`5 {"id":4,"at":"2025-01-02T12:00:00Z"}`}, got); d != "" || err != nil {
		t.Errorf("nothing picked: %v %s", err, d)
	}
}

// TestBackfillMarker: what stands for a folder, where a list names it, has no rows.
func TestBackfillMarker(t *testing.T) {
	closed := 0
	for _, format := range []rows.Format{rows.NDJSON, rows.CSV} {
		s := oneObject(t, backfill.Read{Format: format}, "folder/", inMemory{Reader: bytes.NewReader(nil), closed: &closed})
		if got, err := rowsOf(t, s, 0); err != nil || len(got) > 0 {
			t.Errorf("%s: %q, %v", format, got, err)
		}
	}
}

// TestBackfillFaults: which faults end an object, and which pass.
func TestBackfillFaults(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, strings.Repeat("{}\n", 100_000)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	changed := &object.ChangedError{Want: "the-etag", Found: "another"}
	deep := fmt.Errorf("deep down: %w", changed)
	lines := strings.Repeat("{}\n", 1_000_000)
	for name, c := range map[string]struct {
		key    string
		read   backfill.Read
		data   string
		err    error
		failAt int64
		rows   int    // before it
		says   string // definite; empty: it passes
	}{
		"of another kind":        {"a.csv", backfill.Read{Format: rows.CSV}, "PAR1....", nil, 0, 0, "by its name it is CSV, by its first bytes Parquet"},
		"not as it was said":     {"a", backfill.Read{Format: rows.CSV, Compression: rows.Gzip}, "a,b\n1,2\n", nil, 0, 0, "it should be CSV packed as gzip"},
		"cut off":                {"a.ndjson.gz", backfill.Read{Format: rows.NDJSON, Compression: rows.Gzip}, packed.String()[:packed.Len()-9], nil, 0, 100_000, "it is cut off"},
		"empty Parquet":          {"a.parquet", backfill.Read{Format: rows.Parquet}, "", nil, 0, 0, "is no Parquet file"},
		"changed at the start":   {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, deep, 0, 0, `its ETag was "the-etag", and is "another"`},
		"changed on the way":     {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, deep, 2 << 20, 1, `its ETag was "the-etag", and is "another"`},
		"changed, and was empty": {"a.ndjson", backfill.Read{Format: rows.NDJSON}, "", deep, 0, 0, `its ETag was "the-etag", and is "another"`},
		"changed, who knows how": {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, object.ErrChanged, 0, 0, "has changed since the job was made"},
		"gone":                   {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, object.ErrDeleted, 2 << 20, 1, `it is gone, whose ETag was "the-etag"`},
		"a file that is gone":    {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, os.ErrNotExist, 0, 0, "it is gone"},
		"no bucket":              {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, object.ErrNoBucket, 0, 0, ""},
		"forbidden":              {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, object.ErrForbidden, 2 << 20, 1, ""},
		"down":                   {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, &object.UnavailableError{Err: io.ErrUnexpectedEOF}, 2 << 20, 1, ""},
		"the end of the work":    {"a.ndjson", backfill.Read{Format: rows.NDJSON}, lines, context.Canceled, 2 << 20, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			closed := 0
			f := inMemory{Reader: bytes.NewReader([]byte(c.data)), err: c.err, failAt: c.failAt, closed: &closed}
			got, err := rowsOf(t, oneObject(t, c.read, c.key, f), 0)
			var bad *ingest.ObjectError
			switch definite := errors.As(err, &bad); {
			case err == nil || definite != (c.says != ""):
				t.Errorf("%d rows, %v", len(got), err)
			case !strings.Contains(err.Error(), c.says) || !definite && !errors.Is(err, c.err):
				t.Errorf("%v", err)
			}
			if len(got) < c.rows || c.rows == 0 && len(got) > 0 {
				t.Errorf("%d rows", len(got))
			}
			if closed != 1 {
				t.Errorf("closed %d times", closed)
			}
		})
	}
}

// TestBackfillNumbers: rows beyond the last number that there is.
func TestBackfillNumbers(t *testing.T) {
	for n, want := range map[uint64]bool{1<<31 - 1: true, 1 << 31: false} {
		r := &objectRows{sourceObjects: oneObject(t, backfill.Read{Format: rows.NDJSON}, "a", inMemory{Reader: bytes.NewReader(nil)}), in: lastRow{n}}
		row, err := r.Next(t.Context())
		var bad *ingest.ObjectError
		if want != (err == nil && uint64(row.N) == n) || !want && !errors.As(err, &bad) {
			t.Errorf("row %d: %+v, %v", n, row, err)
		}
	}
}

// lastRow gives a row of a number.
type lastRow struct{ n uint64 }

func (r lastRow) Next() (rows.Row, error) { return rows.Row{N: r.n, Value: []byte("{}")}, nil }
func (lastRow) Close() error              { return nil }

// TestBackfillOpens: objects are read where they are.
func TestBackfillOpens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("a\n1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bucket", "/bucket/":
			return
		case "/bucket/a.csv":
		default:
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("ETag", `"e"`)
		_, _ = io.WriteString(w, "a\n1\n")
	}))
	t.Cleanup(srv.Close)
	s3, err := object.Open(t.Context(), object.Config{Endpoint: srv.URL, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s3.Close)
	for what, c := range map[string]struct {
		o    backfill.Object
		s3   *object.Store
		says string
	}{
		"file":           {backfill.Object{Path: path, ETag: backfill.FileETag(info), Size: 4}, nil, ""},
		"file, changed":  {backfill.Object{Path: path, ETag: "file-1", Size: 4}, nil, `should be "file-1"`},
		"file, gone":     {backfill.Object{Path: path + "x", ETag: "file-1", Size: 4}, nil, "it is gone"},
		"S3":             {backfill.Object{Bucket: "bucket", Key: "a.csv", ETag: "e", Size: 4}, s3, ""},
		"S3, changed":    {backfill.Object{Bucket: "bucket", Key: "a.csv", ETag: "f", Size: 4}, s3, `its ETag was "f", and is "e"`},
		"S3, was empty":  {backfill.Object{Bucket: "bucket", Key: "a.csv", ETag: "f", Size: 0}, s3, `its ETag was "f", and is "e"`},
		"S3, gone":       {backfill.Object{Bucket: "bucket", Key: "b.csv", ETag: "f", Size: 4}, s3, `it is gone, whose ETag was "f"`},
		"S3, no bucket":  {backfill.Object{Bucket: "none", Key: "a.csv", ETag: "e", Size: 4}, s3, "there is no such bucket"},
		"no S3 settings": {backfill.Object{Bucket: "bucket", Key: "a.csv", ETag: "e", Size: 4}, nil, "no S3 endpoint"},
	} {
		s, err := newSourceObjects(backfill.Read{Format: rows.CSV}, []backfill.Object{c.o}, openWith(c.s3))
		if err != nil {
			t.Fatal(err)
		}
		got, err := rowsOf(t, s, 0)
		if c.says == "" && (err != nil || strings.Join(got, "|") != `0 {"a":"1"}`) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
	if _, err := newSourceObjects(backfill.Read{Zone: "nowhere"}, nil, nil); err == nil {
		t.Error("an unknown zone is taken")
	}
}
