package refcheck

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// endpoint is an S3 endpoint. What it says of objects that are on the filer is what
// the filer has; others are only here.
type endpoint struct {
	filer filer.Objects

	mu    sync.Mutex
	held  map[string]object.Info // by bucket/key
	heads map[string]int
	fail  map[string]error // of a HEAD
	// listing, if not nil, is called before each listing.
	listing func() error
	deleted []string
}

func (e *endpoint) Head(ctx context.Context, bucket, key, version string) (object.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := bucket + "/" + key
	e.heads[name]++
	if err := e.fail[name]; err != nil {
		return object.Info{}, err
	}
	info, ok := e.held[name]
	if !ok {
		return info, fmt.Errorf("head %s: %w", name, object.ErrNotFound)
	}
	if o, err := e.filer.Look(ctx, filer.ObjectName{Bucket: bucket, Key: key, Version: version}); err == nil {
		info.ETag, info.Version = o.ETag, o.Name.Version
	}
	return info, ctx.Err()
}

func (e *endpoint) List(_ context.Context, bucket, prefix, _ string) iter.Seq2[object.Object, error] {
	return func(yield func(object.Object, error) bool) {
		if e.listing != nil {
			if err := e.listing(); err != nil {
				yield(object.Object{}, err)
				return
			}
		}
		e.mu.Lock()
		all := maps.Clone(e.held)
		e.mu.Unlock()
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if key, ok := strings.CutPrefix(name, bucket+"/"); ok && strings.HasPrefix(key, prefix) && !yield(object.Object{Key: key, Info: all[name]}, nil) {
				return
			}
		}
	}
}

func (e *endpoint) Delete(_ context.Context, n object.Name, _ string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deleted = append(e.deleted, n.Key)
	delete(e.held, n.Bucket+"/"+n.Key)
	return nil
}

// world is a topic with its segment, and buckets: "box" and "versioned" are on the
// filer, "far" is not.
type world struct {
	t     *testing.T
	fs    *memfs.FS
	filer *memfs.Client
	s3    *endpoint
	store *segment.Store
	topic *segment.Topic
	seg   *segment.Segment
	seq   uint64
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t)) })
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, fs: memfs.New()}
	w.filer = w.fs.Client("objects", nil)
	w.fs.MakeBucket("box", false)
	w.fs.MakeBucket("versioned", true)
	w.s3 = &endpoint{filer: w.filer, held: map[string]object.Info{}, heads: map[string]int{}, fail: map[string]error{}}
	w.store = segment.NewStore(w.fs.Client("store", nil), "test")
	w.topic, w.seg = w.create("images")
	return w
}

func (w *world) create(name string) (*segment.Topic, *segment.Segment) {
	w.t.Helper()
	def := topic.Definition{
		Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
		Buckets: []string{"box", "far", "versioned"},
	}
	top, err := w.store.CreateTopic(w.t.Context(), def, 1, time.Now())
	w.ok(err)
	segs, err := top.Segments(w.t.Context())
	w.ok(err)
	return top, segs[0]
}

// later lets time pass.
func (w *world) later(d time.Duration) { <-time.After(d) }

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// put puts an object of an age, and returns the reference to it.
func (w *world) put(name, data string, age time.Duration) record.Ref {
	w.t.Helper()
	bucket, key, _ := strings.Cut(name, "/")
	sum := sha256.Sum256([]byte(data))
	info := object.Info{Size: int64(len(data)), ETag: "far-" + data, Modified: time.Now().Add(-age), SHA256: sum[:]}
	version, err := w.fs.PutObject(bucket, key, []byte(data), nil)
	if !errors.Is(err, filer.ErrNoBucket) {
		w.ok(err)
		o, err := w.filer.Look(w.t.Context(), filer.ObjectName{Bucket: bucket, Key: key})
		w.ok(err)
		info.ETag, info.Version = o.ETag, version
	}
	w.s3.mu.Lock()
	defer w.s3.mu.Unlock()
	w.s3.held[name] = info
	return record.Ref{URL: "s3://" + name, Size: info.Size, ETag: info.ETag, Version: version}
}

// remove deletes an object.
func (w *world) remove(name string) {
	bucket, key, _ := strings.Cut(name, "/")
	_ = w.fs.DeleteObject(filer.ObjectName{Bucket: bucket, Key: key})
	delete(w.s3.held, name)
}

func (w *world) pin(f record.Ref) {
	w.t.Helper()
	name := strings.TrimPrefix(f.URL, "s3://")
	bucket, key, _ := strings.Cut(name, "/")
	w.ok(w.pins().Pin(w.t.Context(), object.Name{Bucket: bucket, Key: key, Version: f.Version}, w.s3.held[name], w.holder()))
}

func (w *world) pins() *pin.Pins { return &pin.Pins{Filer: w.filer, Now: time.Now} }

func (w *world) holder() pin.Holder {
	return pin.Holder{Topic: w.topic.Name, Incarnation: w.topic.Incarnation}
}

// entry is a record of a chunk.
type entry struct {
	ref      *record.Ref
	key      string
	rejected string
	pending  bool
}

func to(refs ...record.Ref) (all []entry) {
	for _, f := range refs {
		all = append(all, entry{ref: &f})
	}
	return all
}

// commit makes one chunk of records.
func (w *world) commit(entries ...entry) {
	w.t.Helper()
	set := &record.Set{}
	for _, e := range entries {
		w.seq++
		r := record.Record{Time: time.Now(), Position: topic.Position{Sequence: w.seq}, Ref: e.ref, Rejected: e.rejected}
		if e.ref == nil {
			r.Value = []byte("value")
		}
		if e.key != "" {
			r.Key = []byte(e.key)
		}
		w.ok(set.Append(&r, 1))
		set.Recs[len(set.Recs)-1].Pending = e.pending
	}
	_, err := w.seg.Append(w.t.Context(), segment.Input{
		Source: "lane", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	w.ok(err)
}

func (w *world) checker() *Checker {
	return &Checker{
		Topic: w.topic, Objects: w.s3, Endpoint: "http://s3", Pins: w.pins(), Filer: w.filer, OlderThan: time.Hour,
		Now: time.Now,
	}
}

// check runs a check, and returns what it found as short texts.
func (w *world) check(c *Checker) (Report, []string) {
	w.t.Helper()
	var found []string
	c.Found = func(f Finding) error { found = append(found, short(f)); return nil }
	r, err := c.Check(w.t.Context())
	w.ok(err)
	return r, found
}

// short is "word bucket/key@offset".
func short(f Finding) string {
	s := fmt.Sprintf("%s %s", cmp.Or(wordOf(f), string(f.Kind)), strings.TrimPrefix(f.URL, "s3://"))
	if f.Offset != nil {
		s += fmt.Sprintf("@%d", *f.Offset)
	}
	return s
}

func wordOf(f Finding) string {
	if f.Kind == Dangling {
		return string(f.State)
	}
	return ""
}

// doing is a call that notes what is done.
func (w *world) doing(did *[]string, urls ...string) Call {
	return Call{
		URLs: urls, Settle: func(context.Context) error { return nil },
		Tell: func(d Deed) error {
			text := fmt.Sprintf("%s %s", d.Done, strings.TrimPrefix(d.URL, "s3://"))
			if d.DryRun {
				text = "would be " + text
			}
			*did = append(*did, text)
			return nil
		},
	}
}

func (w *world) dropper(did *[]string, urls ...string) *Dropper {
	return &Dropper{
		Checker: w.checker(), Call: w.doing(did, urls...), Remover: w.filer, Deleter: w.s3,
		Logger: slog.New(slog.DiscardHandler),
	}
}

// adopter publishes by committing a record at once.
func (w *world) adopter(did *[]string, urls ...string) *Adopter {
	return &Adopter{
		Checker: w.checker(), Call: w.doing(did, urls...), Unpinned: true, Orphans: true, Pending: func(Finding) {},
		Publish: func(_ context.Context, f Finding) (func(context.Context) error, error) {
			w.commit(to(record.Ref{URL: f.URL, Size: f.Size})...)
			return func(context.Context) error { return nil }, nil
		},
	}
}

func equal(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// plain is an endpoint that has nothing to do with the filer.
type plain struct{ *endpoint }

func (p *plain) Head(_ context.Context, bucket, key, _ string) (object.Info, error) {
	info, ok := p.held[bucket+"/"+key]
	if !ok {
		return info, object.ErrNotFound
	}
	return info, nil
}
