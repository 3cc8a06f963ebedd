package functions

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// depot is an S3 endpoint with one bucket.
type depot struct {
	url string

	mu      sync.Mutex
	objects map[string][]byte
	// before is asked before each answer, and may give another one: a status.
	before func(*http.Request) int
}

const depotBucket = "depot"

func newDepot(t *testing.T) *depot {
	t.Helper()
	d := &depot{objects: map[string][]byte{}}
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	d.url = srv.URL
	return d
}

// judge is what functions reach the depot by.
func (d *depot) judge(t *testing.T) *verdict.Judge {
	t.Helper()
	s3, err := object.Open(t.Context(), object.Config{Endpoint: d.url, Anonymous: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s3.Close)
	return &verdict.Judge{Objects: s3, Endpoint: d.url}
}

func (d *depot) put(key string, data []byte) backfill.Object {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.objects[key] = data
	return backfill.Object{Bucket: depotBucket, Key: key, ETag: etagOf(data), Size: int64(len(data))}
}

func (d *depot) hook(before func(*http.Request) int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.before = before
}

func etagOf(data []byte) string {
	sum := md5.Sum(data)
	return hex.EncodeToString(sum[:])
}

func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	before := d.before
	d.mu.Unlock()
	if before != nil {
		if status := before(r); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	data, ok := d.objects[key]
	switch {
	case bucket != depotBucket:
		w.WriteHeader(http.StatusNotFound)
	case key == "" && r.URL.Query().Has("list-type"):
		d.list(w, r.URL.Query().Get("prefix"))
	case key == "":
	case !ok:
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("ETag", `"`+etagOf(data)+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func (d *depot) list(w io.Writer, prefix string) {
	type contents struct {
		Key, ETag, LastModified string
		Size                    int
	}
	out := struct {
		XMLName     xml.Name `xml:"ListBucketResult"`
		IsTruncated bool
		Contents    []contents
	}{}
	for _, key := range slices.Sorted(maps.Keys(d.objects)) {
		if strings.HasPrefix(key, prefix) {
			out.Contents = append(out.Contents, contents{key, `"` + etagOf(d.objects[key]) + `"`, "2025-01-01T00:00:00.000Z", len(d.objects[key])})
		}
	}
	_ = xml.NewEncoder(w).Encode(out)
}

// yard is a bench with a depot, and a topic that jobs are for.
type yard struct {
	*bench
	*depot
	top  *segment.Topic
	jobs *backfill.Jobs
}

func newYard(t *testing.T, b *bench, segments int) *yard {
	t.Helper()
	y := &yard{bench: b, depot: newDepot(t)}
	b.Judge = y.judge(t)
	var err error
	y.top, err = b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
	}, segments, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	y.jobs = backfill.Of(b.Store, y.top)
	return y
}

// job makes a job of objects, with as many sources.
func (y *yard) job(t *testing.T, sources int, limits backfill.Limits, objects ...backfill.Object) string {
	t.Helper()
	read, err := backfill.Formats(backfill.Read{Key: "/origin"}, objects, backfill.As{})
	if err != nil {
		t.Fatal(err)
	}
	j, err := y.jobs.Create(t.Context(), backfill.Job{By: "test", Origin: "s3://depot", Read: read, Limits: limits, Sources: backfill.Divide(objects, "", sources)})
	if err != nil {
		t.Fatal(err)
	}
	return j.ID
}

func (y *yard) state(t *testing.T, id string) backfill.State {
	t.Helper()
	s, err := y.jobs.State(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// change changes the state of a job, as the command does.
func (y *yard) change(t *testing.T, id string, change func(*backfill.State) error) {
	t.Helper()
	if _, err := y.jobs.Update(t.Context(), id, change); err != nil {
		t.Fatal(err)
	}
}

// run works on a job in the foreground.
func (y *yard) run(t *testing.T, o JobOptions) (backfill.Summary, error) {
	t.Helper()
	y.fresh()
	o.Topic = "t"
	return RunJob(t.Context(), y.Deps, o)
}

// lines are rows first … first+n-1, of a few keys.
func lines(first, n int) []byte {
	var b bytes.Buffer
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, `{"origin":"k%d","n":%d,"text":"some more text for the row to have a length"}`+"\n", i%50, i)
	}
	return b.Bytes()
}

func zipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(data)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// flightRows are the rows of the sample of flights.
func flightRows(t *testing.T) (file []byte, values []string) {
	t.Helper()
	file, err := os.ReadFile("../internal/rows/testdata/flights.parquet")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rows.Open(bytes.NewReader(file), rows.Options{Format: rows.Parquet})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // read-only
	for {
		row, err := r.Next()
		if err == io.EOF { //nolint:errorlint // as documented
			return file, values
		}
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, string(row.Value))
	}
}

// holds checks that the topic has exactly these rows as its records, those of one key
// in the order of each object, and that all of its files agree.
func (y *yard) holds(t *testing.T, objects ...[]string) {
	t.Helper()
	type spot struct{ object, row int }
	want := map[string][]spot{} // some flights are equal
	n := 0
	for o, values := range objects {
		for i, v := range values {
			want[v] = append(want[v], spot{o, i})
			n++
		}
	}
	last := map[string]spot{}
	items := y.read(t, "t")
	for _, item := range items {
		left := want[string(item.Value)]
		if len(left) == 0 || item.Rejected != "" {
			t.Fatalf("record %q (rejected: %q) is there once too often", item.Value, item.Rejected)
		}
		s := left[0]
		want[string(item.Value)] = left[1:]
		place := fmt.Sprintf("%s/%d", item.Key, s.object)
		if was, ok := last[place]; ok && was.row >= s.row {
			t.Fatalf("key %s: row %d of object %d after row %d", item.Key, s.row, s.object, was.row)
		}
		last[place] = s
	}
	if len(items) != n {
		t.Fatalf("%d records are there, of %d rows", len(items), n)
	}
	y.verify(t, "t")
}

// texts are the lines of a text.
func texts(data []byte) []string {
	return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
}
