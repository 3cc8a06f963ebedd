package compactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// tester is what helpers need of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Context() context.Context
}

var _ tester = (*testing.T)(nil)

var noon = time.Date(2026, 3, 29, 12, 0, 0, 0, time.UTC)

const grace = time.Hour

// world is a filer with a topic, a catalog, and what was appended.
type world struct {
	fs      *memfs.FS         // nil: the servers are real ones
	catalog *tabletest.Server // as fs
	files   func(memfs.Hook) filer.Store
	calls   func(tabletest.Hook) table.Catalog
	bucket  string
	name    string // of the topic
	store   *segment.Store
	top     *segment.Topic
	objects *fakeObjects
	log     *lines

	mu   sync.Mutex
	now  time.Time
	seq  uint64
	want map[topic.SegmentID][]string // dumps of records, by offset
	rows map[topic.SegmentID]uint64   // how many rows its data files are to have
}

func newWorld(t tester, segments int) *world {
	t.Helper()
	w := emptyWorld("test", "orders")
	w.fs = memfs.New()
	w.catalog = tabletest.NewServer(w.fs.Client("catalog", nil), "warehouse")
	w.inMemory()
	w.create(t, segments)
	return w
}

func emptyWorld(bucket, name string) *world {
	return &world{
		bucket: bucket, name: name, objects: newFakeObjects(), log: &lines{}, now: noon,
		want: map[topic.SegmentID][]string{}, rows: map[topic.SegmentID]uint64{},
	}
}

func (w *world) inMemory() {
	w.files = func(hook memfs.Hook) filer.Store { return w.fs.Client("compactor", hook) }
	w.calls = func(hook tabletest.Hook) table.Catalog { return w.catalog.Client(hook) }
}

// newWorldOn is a world with a topic of the same name as that of another one, which was
// deleted, and one sealed segment.
func newWorldOn(t tester, old *world) *world {
	t.Helper()
	w := emptyWorld(old.bucket, old.name)
	w.fs, w.catalog = old.fs, old.catalog
	w.inMemory()
	w.create(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "..")
	w.roll(t, id)
	return w
}

func (w *world) create(t tester, segments int) {
	t.Helper()
	w.store = w.storeOf(nil)
	top, err := w.store.CreateTopic(t.Context(), topic.Definition{
		Name: w.name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default", Buckets: []string{"bucket"},
	}, segments, noon)
	if err != nil {
		t.Fatal(err)
	}
	w.top = top
}

func fileOf(text string) filer.File { return filer.File{ID: filer.NewID(), Content: []byte(text)} }

func (w *world) storeOf(hook memfs.Hook) *segment.Store {
	s := segment.NewStore(w.files(hook), w.bucket)
	s.Codec, s.Inline, s.Now = record.CodecNull, 1<<10, w.clock
	return s
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

// options are those of a compactor with the hooks of its ways out.
func (w *world) options(files memfs.Hook, calls tabletest.Hook) Options {
	store := w.storeOf(files)
	return Options{
		Store: store, Expander: w.objects, Grace: grace, Holder: "test", Now: w.clock,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
		Tables: table.New(table.Options{
			Catalog: w.calls(calls), Store: store.Filer, Warehouse: "warehouse", Bucket: w.bucket, Now: w.clock,
		}),
	}
}

func (w *world) compactor() *Compactor { return New(w.options(nil, nil)) }

// compact looks once at the topic, without an error.
func (w *world) compact(t tester, c *Compactor) Report {
	t.Helper()
	r, err := c.Topic(t.Context(), t.Context(), w.name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// finish compacts to the end, as if nothing had been before, and checks everything.
func (w *world) finish(t tester) {
	t.Helper()
	for range 2 {
		sum, err := w.compactor().Sweep(t.Context(), t.Context(), true)
		if err != nil || sum.Silent > 0 || sum.Left > 0 || sum.Held > 0 || sum.Quarantined > 0 {
			t.Fatalf("%+v, %v", sum, err)
		}
		w.pass(2 * grace)
	}
	w.audit(t)
	w.trimmed(t)
	for _, id := range w.sealed(t) {
		if q, err := w.segment(t, id).Quarantine(t.Context()); !errors.Is(err, filer.ErrNotFound) {
			t.Errorf("segment %s is in quarantine: %+v, %v", id, q, err)
		}
	}
}

func (w *world) segment(t tester, id topic.SegmentID) *segment.Segment {
	t.Helper()
	s, err := w.top.Segment(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// record makes the n-th record that is appended. kind tells what it is: "." any, "r" a
// reference, "x" a rejected one, "b" a batch reference whose object has 3 rows, "e" one to be expanded by a job,
// "m" one whose object is missing, "p" one that was missing when it was committed too, "l"
// a long value.
func (w *world) record(kind byte) record.Record {
	n := w.seq
	r := record.Record{Time: noon.Add(time.Duration(n) * time.Millisecond), Position: topic.Position{Sequence: n, Row: uint32(n % 3)}}
	switch n % 3 {
	case 1:
		r.Key = []byte{}
	case 2:
		r.Key = fmt.Appendf(nil, "key %d", n%7)
	}
	if n%2 == 0 {
		r.Headers = []record.Header{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte{}}, {Name: "b", Value: fmt.Append(nil, n)}}
		r.ID, r.EventTime = &record.ID{Producer: "p", Sequence: n}, noon.Add(-time.Duration(n)*time.Hour)
	}
	r.Value = fmt.Appendf(nil, `{"n":%d}`, n)
	switch kind {
	case 'n':
		r.Value = nil
	case 'l':
		r.Value = make([]byte, 90<<10)
		random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
		_, _ = random.Read(r.Value) // never fails
	case 'x':
		r.Rejected = "it is wrong"
	case 'r', 'b', 'm', 'e', 'p':
		count := int64(3)
		r.Value = nil
		r.Ref = &record.Ref{URL: fmt.Sprintf("s3://bucket/%c/%d", kind, n), Size: int64(n) + 1, ETag: "etag", SHA256: bytes.Repeat([]byte{byte(n)}, 32), Records: &count}
		if kind != 'r' {
			r.Headers = append(r.Headers, ref.Batch{Format: "ndjson", Expand: kind == 'e'}.Headers()...)
		}
	}
	return r
}

// add appends a chunk to a segment.
func (w *world) add(t tester, id topic.SegmentID, kinds string) {
	t.Helper()
	s := w.segment(t, id)
	set := &record.Set{}
	w.mu.Lock()
	var dumps []string
	rows := uint64(0)
	for _, kind := range []byte(kinds) {
		w.seq++
		r := w.record(kind)
		if err := set.Append(&r, topic.Slot(s.Range.Lo)); err != nil {
			t.Fatal(err)
		}
		r.Pending = kind == 'p'
		set.Recs[len(set.Recs)-1].Pending = r.Pending
		dumps = append(dumps, dump(&r))
		rows++
		if kind == 'b' {
			rows += 2
		}
	}
	w.mu.Unlock()
	out, err := s.Append(t.Context(), segment.Input{
		Source: "backfill.x.0", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	if err != nil || out.Taken != len(kinds) {
		t.Fatalf("%+v, %v", out, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want[id] = append(w.want[id], dumps...)
	w.rows[id] += rows
}

// dump is everything of a record, as text.
func dump(r *record.Record) string {
	c := r.Clone()
	c.Time, c.EventTime = c.Time.UTC(), c.EventTime.UTC()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %v %q %s key %q %t value %q %t headers %q", c.Time, c.Position, c.Pending, c.Rejected, c.EventTime, c.Key, c.Key == nil, c.Value, c.Value == nil, c.Headers)
	if c.ID != nil {
		fmt.Fprintf(&b, " id %v", *c.ID)
	}
	if c.Ref != nil {
		f := *c.Ref
		f.Records = nil
		fmt.Fprintf(&b, " ref %v", f)
		if c.Ref.Records != nil {
			fmt.Fprintf(&b, " of %d", *c.Ref.Records)
		}
	}
	return b.String()
}

// live lists the live segments.
func (w *world) live(t tester) (ids []topic.SegmentID) {
	t.Helper()
	l, err := w.top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range l.Live {
		ids = append(ids, s.ID)
	}
	return ids
}

// roll seals a live segment, and returns its child.
func (w *world) roll(t tester, id topic.SegmentID) topic.SegmentID {
	t.Helper()
	l, err := w.top.Edit(t.Context(), w.clock(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(id) })
	if err != nil {
		t.Fatal(err)
	}
	return l.Edit.Children[0].ID
}

// sealed lists the segments that are sealed.
func (w *world) sealed(t tester) (ids []topic.SegmentID) {
	t.Helper()
	l, err := w.top.Lineage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Members {
		if len(m.Children) > 0 {
			ids = append(ids, m.ID)
		}
	}
	return ids
}

// lines is a log that tests look into.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// count is how many lines have some words.
func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Count(l.buf.Bytes(), []byte(words))
}
