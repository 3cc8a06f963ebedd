package followup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
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

// world is a filer with a topic, the objects that its records refer to, and a
// follower.
type world struct {
	*Follower
	fs      *memfs.FS
	store   *segment.Store
	top     *segment.Topic
	objects *objects
	log     *bytes.Buffer
	seq     uint64
	refs    []place // all that were committed as pending
}

// place is where a pending reference is.
type place struct {
	segment topic.SegmentID
	chunk   uint64
	offset  uint64
	url     string
}

func newWorld(t tester, segments int) *world {
	t.Helper()
	w := &world{fs: memfs.New(), objects: newObjects(), log: &bytes.Buffer{}}
	w.store = segment.NewStore(w.fs.Client("world", nil), "test")
	w.store.Codec = record.CodecNull
	w.top = w.create(t, "orders", segments)
	w.Follower = w.follower(w.store)
	return w
}

func (w *world) create(t tester, name string, segments int) *segment.Topic {
	t.Helper()
	top, err := w.store.CreateTopic(t.Context(), topic.Definition{
		Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default", Buckets: []string{"bucket"},
	}, segments, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func (w *world) follower(store *segment.Store) *Follower {
	return New(Options{Store: store, Judge: w.objects, Logger: slog.New(slog.NewTextHandler(w.log, nil))})
}

// objects is a judge: it says what it is told, or that an object is not there.
type objects struct {
	mu     sync.Mutex
	says   map[string]error // by URL
	down   error            // whatever is asked
	looks  map[string]int
	pinned map[string]bool
	now    int // looks that are under way, and the most of them
	most   int
	wait   chan struct{} // looks wait for it; nil: they do not
}

func newObjects() *objects {
	return &objects{says: map[string]error{}, looks: map[string]int{}, pinned: map[string]bool{}}
}

func (o *objects) Judge(ctx context.Context, d topic.Definition, f record.Ref) error {
	o.mu.Lock()
	o.now++
	o.most = max(o.most, o.now)
	wait := o.wait
	o.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now--
	key := d.Incarnation + " " + f.URL
	o.looks[key]++
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if o.down != nil {
		return o.down
	}
	err, known := o.says[f.URL]
	if !known {
		err = fmt.Errorf("head %s: %w", f.URL, object.ErrNotFound)
	}
	if err == nil {
		o.pinned[key] = true
	}
	return err
}

// say sets what is found from now on.
func (o *objects) say(err error, urls ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, u := range urls {
		o.says[u] = err
	}
}

func (o *objects) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = err
}

func (o *objects) looked(top *segment.Topic, url string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looks[top.Incarnation+" "+url]
}

func (o *objects) isPinned(top *segment.Topic, url string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pinned[top.Incarnation+" "+url]
}

// commit appends a chunk to a segment: records of which each wish tells what it is
// ("." no reference, "v" one that was verified, "p" pending, "x" pending and to be expanded, "r" rejected).
func (w *world) commit(t tester, id topic.SegmentID, wishes string) {
	t.Helper()
	s, err := w.top.Segment(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	set := &record.Set{}
	for i := range len(wishes) {
		w.seq++
		r := record.Record{Time: time.Now(), Position: topic.Position{Sequence: w.seq}}
		if wishes[i] != '.' {
			r.Ref = &record.Ref{URL: fmt.Sprintf("s3://bucket/%d", w.seq), SHA256: bytes.Repeat([]byte{byte(i)}, 32)}
		}
		if wishes[i] == 'x' {
			r.Key, r.Headers = fmt.Appendf(nil, "key %d", w.seq), ref.Batch{Format: "csv", Expand: true}.Headers()
		}
		if wishes[i] == 'r' {
			r.Rejected = "wrong"
		}
		if err := set.Append(&r, topic.Slot(s.Range.Lo)); err != nil {
			t.Fatal(err)
		}
		set.Recs[i].Pending = wishes[i] == 'p' || wishes[i] == 'x'
	}
	out, err := s.Append(t.Context(), segment.Input{
		Source: "backfill.x.0", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	if err != nil || out.Taken != len(wishes) {
		t.Fatalf("%+v, %v", out, err)
	}
	for i := range len(wishes) {
		if wishes[i] == 'p' || wishes[i] == 'x' {
			url := fmt.Sprintf("s3://bucket/%d", w.seq-uint64(len(wishes)-1-i))
			w.refs = append(w.refs, place{id, out.Chunk.Entry.N, out.Chunk.Base + uint64(i), url})
		}
	}
}

func (w *world) live(t tester) []topic.Live {
	t.Helper()
	l, err := w.top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l.Live
}

// first is the topic's first live segment.
func (w *world) first(t tester) topic.SegmentID { return w.live(t)[0].ID }

// follow looks once, without an error.
func (w *world) follow(t tester) Report {
	t.Helper()
	r, err := w.Topic(t.Context(), t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// state is what is saved.
func (w *world) state(t tester) State {
	t.Helper()
	s, err := Load(t.Context(), w.store, w.top)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// logged counts lines of the log.
func (w *world) logged(words string) int { return bytes.Count(w.log.Bytes(), []byte(words)) }

var errDown = &object.UnavailableError{Op: "head", Err: errors.New("connection refused")}

// dying is a store of which all calls after the n-th fail. ctx ends then.
func (w *world) dying(ctx context.Context, n int) (context.Context, *segment.Store, *atomic.Int64) {
	ctx, kill := context.WithCancel(ctx)
	var calls atomic.Int64
	return ctx, segment.NewStore(w.fs.Client("dying", func(memfs.Op) memfs.Fault {
		if calls.Add(1) <= int64(n) {
			return memfs.Fault{}
		}
		kill()
		return memfs.Fault{Before: memfs.ErrKilled}
	}), "test"), &calls
}

// crashing is a follower on a store that dies.
func (w *world) crashing(ctx context.Context, n int) (context.Context, *Follower, *atomic.Int64) {
	ctx, store, calls := w.dying(ctx, n)
	return ctx, w.follower(store), calls
}

var _ tester = (*testing.T)(nil)
