// Package inspect looks into topics for people and planners: how much each
// segment holds and takes in, where its load lies, what became of a message, and
// a picture of the lineage. It reads the attributes of few chunks, writes
// nothing, and can run beside everything else.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Topic is a topic that is looked into. Safe for concurrent use.
type Topic struct {
	*segment.Topic
	near  *segment.Topic // the same, over a filer that lists a few files at a time
	store *segment.Store
}

// Open looks a topic up. Its errors are those of [segment.Store.Topic].
func Open(ctx context.Context, store *segment.Store, name string) (*Topic, error) {
	narrow := *store
	narrow.Filer = shortPages{store.Filer}
	for {
		wide, err := store.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		near, err := narrow.Topic(ctx, name)
		if err != nil {
			return nil, err
		}
		if wide.Incarnation == near.Incarnation { // else it was made anew in between
			return &Topic{wide, near, store}, nil
		}
	}
}

// gone explains an error by the topic's deletion, if that is the cause.
func (t *Topic) gone(ctx context.Context, err error) error {
	if !errors.Is(err, commitlog.ErrNoLog) && !errors.Is(err, filer.ErrNotFound) {
		return err
	}
	now, deleted := t.store.Topic(ctx, t.Name)
	if deleted == nil && now.Incarnation != t.Incarnation {
		deleted = fmt.Errorf("topic %q was deleted and made again: %w", t.Name, segment.ErrNoTopic)
	}
	return errors.Join(deleted, err)
}

// shortPages is a filer for looking at single chunks. What is wanted is the next
// one or two, and each that is listed comes with its bytes if they are inline.
type shortPages struct{ filer.Store }

const shortPage = 4

// List is the Store's, with a bound.
func (s shortPages) List(ctx context.Context, dir, after string, _ int) ([]filer.Entry, error) {
	return s.Store.List(ctx, dir, after, shortPage)
}

// chunkAt is the first chunk from number n on, the zero Chunk if there is none.
func chunkAt(ctx context.Context, s *segment.Segment, n uint64) (segment.Chunk, error) {
	for c, err := range s.Chunks(ctx, n) {
		return c, err
	}
	return segment.Chunk{}, nil
}

// numbered is chunk n, which was there. commitlog.ErrVoid: it was trimmed
// meanwhile.
func numbered(ctx context.Context, s *segment.Segment, n uint64) (segment.Chunk, error) {
	c, err := s.ChunkAt(ctx, n)
	if errors.Is(err, filer.ErrNotFound) {
		err = fmt.Errorf("chunk %d of segment %s: %w", n, s.ID, commitlog.ErrVoid)
	}
	return c, err
}

// firstWhere halves the chunks from..to, which must exist, for the first one of
// which reached is true. It must stay true from there on. ok is false if it is
// true for none.
func firstWhere(ctx context.Context, s *segment.Segment, from, to uint64, reached func(segment.Chunk) bool) (first segment.Chunk, ok bool, err error) {
	for from <= to {
		mid := from + (to-from)/2
		c, err := numbered(ctx, s, mid)
		if err != nil {
			return segment.Chunk{}, false, err
		}
		if !reached(c) {
			from = mid + 1
			continue
		}
		first, ok = c, true
		if mid == 0 {
			break
		}
		to = mid - 1
	}
	return first, ok, nil
}

// trimTries is how often a segment is looked at again that is trimmed meanwhile.
const trimTries = 5

// whileTrimmed calls look again if the log was trimmed under it.
func whileTrimmed(look func() error) (err error) {
	for range trimTries {
		if err = look(); !errors.Is(err, commitlog.ErrVoid) {
			return err
		}
	}
	return err
}

// Short is how pictures and messages name a segment: "4-1" for segment 1 that
// the layout of epoch 4 made. It is unique within a topic.
func Short(id topic.SegmentID) string {
	epoch, rest, _ := strings.Cut(string(id), "-")
	n, _, ok := strings.Cut(rest, "-")
	if !ok || epoch == "" || n == "" || strings.Trim(epoch+n, "0123456789") != "" {
		return string(id)
	}
	trim := func(s string) string {
		if s = strings.TrimLeft(s, "0"); s == "" {
			return "0"
		}
		return s
	}
	return trim(epoch) + "-" + trim(n)
}
