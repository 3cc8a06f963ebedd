// Package segment is the store of topics on the filer: their definitions,
// layouts and segments, appending to segments exactly once, and reading them
// back. docs/FORMAT.md describes the files.
package segment

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Errors about topics.
var (
	ErrNoTopic     = errors.New("no such topic")
	ErrTopicExists = errors.New("topic exists already")
	ErrDeleting    = errors.New("topic is being deleted")
)

// Store is everything of Spillway in one bucket of a filer. It keeps no state
// of its own; copies and concurrent use are fine.
type Store struct {
	Filer  filer.Store
	Bucket string
	Codec  string // of chunk files
	Inline int    // chunk files up to this size go inline
	Logger *slog.Logger
	Now    func() time.Time // for marks of active topics
	Mutant mutant.Set
}

// NewStore returns the store in a bucket.
func NewStore(f filer.Store, bucket string) *Store {
	return &Store{
		Filer: f, Bucket: bucket, Codec: record.CodecZstd, Inline: filer.InlineLimit,
		Logger: slog.New(slog.DiscardHandler), Now: time.Now,
	}
}

// Root is the bucket's folder.
func (s *Store) Root() string { return path.Join("/buckets", s.Bucket) }

func (s *Store) topicsDir() string           { return path.Join(s.Root(), "topics") }
func (s *Store) topicDir(name string) string { return path.Join(s.topicsDir(), name) }

func (s *Store) definition(name string) cursor.File[topic.Definition] {
	return cursor.At[topic.Definition](s.Filer, path.Join(s.topicDir(name), "topic.json"))
}

func (s *Store) log(dir, ext string) *commitlog.Log {
	l := commitlog.New(s.Filer, dir, ext)
	l.Mutant, l.Logger = s.Mutant, s.Logger
	return l
}

// Topic is a topic as it was when it was looked up. Safe for concurrent use.
type Topic struct {
	topic.Definition
	store   *Store
	version cursor.Version
	seen    lastSeen // of the layout log
	// woken holds when this handle last wrote the topic's mark, except while
	// somebody is at it.
	woken chan time.Time
}

func (s *Store) handle(def topic.Definition, version cursor.Version) *Topic {
	t := &Topic{Definition: def, store: s, version: version, woken: make(chan time.Time, 1)}
	t.woken <- time.Time{}
	return t
}

// lastSeen is the last entry of a log that was seen, without its content: from
// there the tail is found quickly.
type lastSeen struct {
	mu    sync.Mutex
	entry commitlog.Entry
}

func (l *lastSeen) get() commitlog.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.entry
}

func (l *lastSeen) set(e commitlog.Entry) {
	e.Content = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.N >= l.entry.N {
		l.entry = e
	}
}

// Dir is the folder of this incarnation of the topic.
func (t *Topic) Dir() string { return path.Join(t.store.topicDir(t.Name), t.Incarnation) }

// Topic looks a topic up. One whose creation was interrupted is finished first.
// ErrNoTopic and ErrDeleting are typed; a name that cannot be one is a
// *topic.NameError.
func (s *Store) Topic(ctx context.Context, name string) (*Topic, error) {
	t, err := s.lookup(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case t.State == topic.StateDeleting:
		return t, fmt.Errorf("topic %q: %w", name, ErrDeleting)
	case t.State == topic.StateCreating:
		return s.establish(ctx, t)
	}
	return t, nil
}

// lookup reads a topic's definition, whatever its state.
func (s *Store) lookup(ctx context.Context, name string) (*Topic, error) {
	if err := topic.CheckName(name); err != nil {
		return nil, err
	}
	def, version, err := s.definition(name).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = ErrNoTopic
	}
	if err != nil {
		return nil, fmt.Errorf("topic %q: %w", name, err)
	}
	return s.handle(def, version), nil
}

// Topics lists the definitions of all topics, by name, including those that are
// being deleted. Definitions that cannot be read are left out, and come as an error
// beside the others.
func (s *Store) Topics(ctx context.Context) ([]topic.Definition, error) {
	var defs []topic.Definition
	var faults []error
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = s.Filer.List(ctx, s.topicsDir(), after, 0)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list topics: %w", err)
		}
		for _, e := range page {
			def, _, err := s.definition(e.Name()).Load(ctx)
			if errors.Is(err, filer.ErrNotFound) {
				continue // a folder whose topic.json was never made, or is gone
			}
			if err != nil {
				faults = append(faults, err)
				continue
			}
			defs = append(defs, def)
		}
		if len(page) == 0 || ctx.Err() != nil {
			return defs, errors.Join(append(faults, ctx.Err())...)
		}
		after = page[len(page)-1].Name()
	}
}

// DeleteTopic deletes a topic and all its data: it marks the topic, seals its
// live segments, deletes their heads, then the checkpoints of its backfills and the
// rest (rule 29). Run again after a crash, it finishes.
func (s *Store) DeleteTopic(ctx context.Context, name string, now time.Time) error {
	t, err := s.markDeleted(ctx, name)
	if err != nil {
		return err
	}
	if err := t.sealAll(ctx, now); err != nil {
		return err
	}
	if err := t.deleteJobs(ctx); err != nil {
		return err
	}
	if err := s.deleteTree(ctx, t.Dir()); err != nil {
		return err
	}
	s.restGone(ctx, name) // before another topic can have the name
	return s.definition(name).Delete(ctx, t.version)
}

// markDeleted says in a topic's definition that it is being deleted. From then on
// nobody changes it.
func (s *Store) markDeleted(ctx context.Context, name string) (*Topic, error) {
	for {
		t, err := s.lookup(ctx, name)
		if err != nil || t.State == topic.StateDeleting {
			return t, err
		}
		t.State = topic.StateDeleting
		t.version, err = s.definition(name).Save(ctx, t.Definition, t.version)
		if !errors.Is(err, filer.ErrConflict) { // else somebody changed it meanwhile
			return t, err
		}
	}
}

// sealAll seals every segment that still takes records and removes all heads,
// so that no late writer can win in a folder that is about to go.
func (t *Topic) sealAll(ctx context.Context, now time.Time) error {
	segments, err := t.Segments(ctx)
	if errors.Is(err, commitlog.ErrNoLog) || errors.Is(err, filer.ErrNotFound) {
		return nil // an earlier deletion got this far
	}
	if err != nil {
		return err
	}
	for _, seg := range segments {
		if _, err := seg.Seal(ctx, now); err != nil && !errors.Is(err, commitlog.ErrNoLog) {
			return err
		}
		head := path.Join(seg.log.Dir(), "head")
		if err := filer.Retry(ctx, func(ctx context.Context) error { return t.store.Filer.Delete(ctx, head, "") }); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteTree(ctx context.Context, dir string) error {
	return filer.Retry(ctx, func(ctx context.Context) error { return s.Filer.DeleteTree(ctx, dir) })
}
