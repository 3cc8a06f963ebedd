package refcheck

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// walk goes through the records of a topic that have a reference, segment by
// segment, and can go on later with what was added since. What is trimmed
// meanwhile is passed over: nothing retained refers to its objects.
type walk struct {
	topic *segment.Topic
	since time.Time
	// read chooses chunks by their attributes; the others' bytes are not read.
	read   func(topic.SegmentID, segment.Chunk) bool
	next   map[topic.SegmentID]uint64 // the number of the first chunk that was not gone through
	at     map[topic.SegmentID]uint64 // the offset of the first record that was not
	sealed map[topic.SegmentID]bool   // and nothing can follow
	chunks uint64                     // that were read
}

func newWalk(t *segment.Topic, read func(topic.SegmentID, segment.Chunk) bool) *walk {
	return &walk{topic: t, read: read, next: map[topic.SegmentID]uint64{}, at: map[topic.SegmentID]uint64{}, sealed: map[topic.SegmentID]bool{}}
}

// trimTries is how often a log may be trimmed while one chunk of it is read.
const trimTries = 5

// items yields the records with a reference, rejected ones too, and ends with what
// there is when it gets there, or with its first error.
func (w *walk) items(ctx context.Context) iter.Seq2[segment.Item, error] {
	return func(yield func(segment.Item, error) bool) {
		segments, err := w.topic.Segments(ctx)
		if err != nil {
			yield(segment.Item{}, err)
			return
		}
		for _, s := range segments {
			if w.sealed[s.ID] {
				continue
			}
			more, err := w.segment(ctx, s, yield)
			if err != nil {
				yield(segment.Item{}, err)
				return
			}
			if !more {
				return
			}
		}
	}
}

// segment goes through the rest of a segment.
func (w *walk) segment(ctx context.Context, s *segment.Segment, yield func(segment.Item, error) bool) (more bool, err error) {
	for try := 1; ; try++ {
		before := w.at[s.ID]
		more, err = w.rest(ctx, s, yield)
		trimmed := errors.Is(err, commitlog.ErrVoid) || errors.Is(err, filer.ErrNotFound)
		if !trimmed || try == trimTries {
			return more, err
		}
		if w.at[s.ID] > before {
			try = 0
		}
	}
}

func (w *walk) rest(ctx context.Context, s *segment.Segment, yield func(segment.Item, error) bool) (more bool, err error) {
	for c, err := range s.Chunks(ctx, w.next[s.ID]) {
		if err != nil {
			return false, err
		}
		if c.Base > w.at[s.ID] {
			if more, err := w.compacted(ctx, s, c.Base, yield); !more || err != nil {
				return more, err
			}
		}
		if !c.Last.Before(w.since) && w.read(s.ID, c) {
			more, err := w.chunk(ctx, s, c, yield)
			if !more || err != nil {
				return more, err
			}
		}
		w.next[s.ID], w.at[s.ID], w.sealed[s.ID] = c.Entry.N+1, c.End(), c.Sealed
	}
	return true, nil
}

// compacted goes through the records up to an offset whose chunks are gone: those that
// are in data files. All of them are read, whatever w.read says.
func (w *walk) compacted(ctx context.Context, s *segment.Segment, to uint64, yield func(segment.Item, error) bool) (more bool, err error) {
	for before := ^w.at[s.ID]; w.at[s.ID] < to && w.at[s.ID] != before; {
		before = w.at[s.ID]
		for item, err := range s.Items(ctx, before) {
			var gap *segment.TrimmedError
			if errors.As(err, &gap) && gap.Next > w.at[s.ID] {
				w.at[s.ID] = gap.Next // to go on behind it
				break
			}
			if err != nil {
				return false, err
			}
			if item.Offset >= to {
				return true, nil
			}
			w.at[s.ID] = item.Offset + 1
			if item.Ref == nil || item.Time.Before(w.since) {
				continue
			}
			item.Value, item.Headers = nil, nil
			if !yield(item, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// chunk takes the references of a chunk together before it yields the first, so
// that none is yielded twice if the chunk goes while it is read.
func (w *walk) chunk(ctx context.Context, s *segment.Segment, c segment.Chunk, yield func(segment.Item, error) bool) (more bool, err error) {
	var items []segment.Item
	offset := c.Base
	for r, err := range s.Records(ctx, c) {
		if err != nil {
			return false, err
		}
		if r.Ref != nil && !r.Time.Before(w.since) {
			r.Value, r.Headers = nil, nil
			items = append(items, segment.Item{Segment: s.ID, Offset: offset, Record: r})
		}
		offset++
	}
	w.chunks++
	for _, item := range items {
		if !yield(item, nil) {
			return false, nil
		}
	}
	return true, nil
}
