package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Bounds of what is remembered of topics.
const (
	maxOpenTopics = 20_000
	missingFor    = time.Second // how long a topic is taken as missing after a look
	maxMissing    = 10_000
)

// openTopic is a topic with its layout in force and the segments used so far.
type openTopic struct {
	*segment.Topic
	layout topic.Layout
	loaded time.Time
	stale  bool // to be looked up again; owned by topics

	lock     lock
	segments map[topic.SegmentID]*segment.Segment
}

// lock is a mutex whose waiters give up when their context ends, since it is
// held while the filer is asked.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) acquire(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case l <- struct{}{}:
		return nil
	}
}

func (l lock) release() { <-l }

func (t *openTopic) segment(ctx context.Context, id topic.SegmentID) (*segment.Segment, error) {
	if err := t.lock.acquire(ctx); err != nil {
		return nil, err
	}
	defer t.lock.release()
	if s := t.segments[id]; s != nil {
		return s, nil
	}
	s, err := t.Topic.Segment(ctx, id)
	if err == nil {
		t.segments[id] = s
	}
	return s, err
}

// topics remembers open topics. What it remembers may be out of date; a commit
// that meets a seal, or a segment that is gone, forgets the topic.
type topics struct {
	store      *segment.Store
	autoCreate bool
	buckets    []string // that topics allow which are made here
	group      string
	now        func() time.Time
	strict     bool // records of topics that are not there go nowhere, not to "unrouted"

	lock    lock
	open    map[string]*openTopic
	missing map[string]missing
	// unrouted is where messages go that name no topic. It is opened before any
	// of them is judged, and never looked up again: when it was rolled, a topic
	// has been created since, and the session ends (ADR 0006).
	unrouted *openTopic
}

func newTopics(store *segment.Store, now func() time.Time) *topics {
	return &topics{store: store, now: now, lock: newLock(), open: map[string]*openTopic{}, missing: map[string]missing{}}
}

// missing is a topic that could not be opened, when it was last looked for.
type missing struct {
	why *refused
	at  time.Time
}

// refused is why a message cannot go to the topic that it names.
type refused struct{ reason string }

func (r *refused) Error() string { return r.reason }

// get opens a topic. *refused: there is none, and the message is unrouted.
func (ts *topics) get(ctx context.Context, name string) (*openTopic, error) {
	if err := ts.lock.acquire(ctx); err != nil {
		return nil, err
	}
	defer ts.lock.release()
	if name == topic.Unrouted {
		return ts.openUnrouted(ctx)
	}
	old := ts.open[name]
	if old != nil && !old.stale {
		return old, nil
	}
	if m, ok := ts.missing[name]; ok && ts.now().Sub(m.at) < missingFor {
		return nil, m.why
	}
	t, err := ts.load(ctx, name, old)
	var why *refused
	if errors.As(err, &why) && ts.unrouted == nil && !ts.strict {
		if _, err := ts.openUnrouted(ctx); err != nil {
			return nil, err
		}
		t, err = ts.load(ctx, name, old) // only what is seen now counts
	}
	if errors.As(err, &why) {
		delete(ts.open, name)
		if len(ts.missing) >= maxMissing {
			clear(ts.missing)
		}
		ts.missing[name] = missing{why, ts.now()}
	}
	if err != nil {
		return nil, err
	}
	if len(ts.open) >= maxOpenTopics {
		clear(ts.open)
	}
	ts.open[name] = t
	delete(ts.missing, name)
	return t, nil
}

func (ts *topics) openUnrouted(ctx context.Context) (*openTopic, error) {
	if ts.unrouted != nil {
		return ts.unrouted, nil
	}
	t, err := ts.load(ctx, topic.Unrouted, nil)
	if err == nil {
		ts.unrouted = t
	}
	return t, err
}

// load looks a topic up, and finishes an edit that is under way: what it seals
// takes no records, and its children take none before it is finished (rules 27
// and 28). old is the same topic as it was known until now, or nil.
func (ts *topics) load(ctx context.Context, name string, old *openTopic) (*openTopic, error) {
	t, err := ts.store.Topic(ctx, name)
	var bad *topic.NameError
	switch {
	case errors.As(err, &bad):
		return nil, &refused{bad.Error()}
	case errors.Is(err, segment.ErrDeleting):
		return nil, &refused{fmt.Sprintf("topic %q is being deleted", name)}
	case errors.Is(err, segment.ErrNoTopic) && (ts.autoCreate || name == topic.Unrouted):
		t, err = ts.create(ctx, name)
	case errors.Is(err, segment.ErrNoTopic):
		return nil, &refused{fmt.Sprintf("no topic %q", name)}
	}
	if err != nil {
		return nil, err
	}
	if old != nil {
		t.Follow(old.Topic)
	}
	layout, err := t.Finish(ctx)
	if err != nil {
		return nil, ts.vanished(ctx, t, err)
	}
	is := &openTopic{Topic: t, layout: layout, loaded: ts.now(), lock: newLock(), segments: map[topic.SegmentID]*segment.Segment{}}
	if err := is.keep(ctx, old); err != nil {
		return nil, err
	}
	return is, nil
}

// keep takes over the segments that are still live: their tails are known.
func (t *openTopic) keep(ctx context.Context, old *openTopic) error {
	if old == nil || old.Incarnation != t.Incarnation {
		return nil
	}
	if err := old.lock.acquire(ctx); err != nil {
		return err
	}
	defer old.lock.release()
	for _, live := range t.layout.Live {
		if s := old.segments[live.ID]; s != nil {
			t.segments[live.ID] = s
		}
	}
	return nil
}

func (ts *topics) create(ctx context.Context, name string) (*segment.Topic, error) {
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: ts.group}
	if name != topic.Unrouted {
		def.AllowOnly(ts.buckets...)
	}
	t, err := ts.store.CreateTopic(ctx, def, 1, ts.now())
	if errors.Is(err, segment.ErrTopicExists) {
		return t, nil
	}
	return t, err
}

// vanished explains a topic whose files are gone: deleted since it was looked
// up, or damaged.
func (ts *topics) vanished(ctx context.Context, was *segment.Topic, err error) error {
	if !errors.Is(err, commitlog.ErrNoLog) && !errors.Is(err, filer.ErrNotFound) {
		return err
	}
	is, err2 := ts.store.Topic(ctx, was.Name)
	if err2 == nil && is.Incarnation == was.Incarnation {
		return err
	}
	return &refused{fmt.Sprintf("topic %q is being deleted", was.Name)}
}

// refresh makes a topic be looked up again when it is next asked for.
func (ts *topics) refresh(ctx context.Context, name string) error {
	if err := ts.lock.acquire(ctx); err != nil {
		return err
	}
	defer ts.lock.release()
	if t := ts.open[name]; t != nil {
		t.stale = true
	}
	return nil
}
