package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Item is a record as it is read: where it stands, and the record.
type Item struct {
	Segment topic.SegmentID
	Offset  uint64
	record.Record
}

// ReadPosition is how far a reader has got: the offset of the next record in
// each segment. Ancestors of the segments named are taken as read; segments
// that are not named and are no ancestors are read from their start.
type ReadPosition map[topic.SegmentID]uint64

// String is the printable form, "v1" for the start of everything or
// "v1,segment=offset,…"; [ParseReadPosition] reads it.
func (p ReadPosition) String() string {
	parts := make([]string, 0, len(p))
	for id, off := range p {
		parts = append(parts, fmt.Sprintf(",%s=%d", id, off))
	}
	sort.Strings(parts)
	return "v1" + strings.Join(parts, "")
}

// ParseReadPosition reads what [ReadPosition.String] prints.
func ParseReadPosition(s string) (ReadPosition, error) {
	version, rest, _ := strings.Cut(s, ",")
	if version != "v1" {
		return nil, fmt.Errorf("position %q: want one that spillway printed, starting with v1", s)
	}
	p := ReadPosition{}
	for _, part := range strings.Split(rest, ",") {
		if part == "" {
			continue
		}
		id, off, _ := strings.Cut(part, "=")
		n, err := strconv.ParseUint(off, 10, 64)
		if err != nil || id == "" {
			return nil, fmt.Errorf("position %q: %q is not segment=offset", s, part)
		}
		p[topic.SegmentID(id)] = n
	}
	return p, nil
}

// ErrForeignPosition says that a position names a segment that this topic does not have,
// because it belongs to another topic or to an earlier one of the same name.
var ErrForeignPosition = errors.New("the position does not belong to this topic")

// Reader reads a topic from a position on, parents before children, so that the
// records of a key come in order. One goroutine uses it.
type Reader struct {
	topic    *Topic
	pos      ReadPosition
	done     map[topic.SegmentID]bool
	chunk    map[topic.SegmentID]uint64 // number of the chunk to look at next
	segments map[topic.SegmentID]*Segment
	notUntil time.Time
}

// Read starts at a position (nil: the earliest record there is). Positions in
// or beyond what is there are fine; those of another topic are
// ErrForeignPosition.
func (t *Topic) Read(ctx context.Context, from ReadPosition) (*Reader, error) {
	r := &Reader{
		topic: t, pos: ReadPosition{}, done: map[topic.SegmentID]bool{},
		chunk: map[topic.SegmentID]uint64{}, segments: map[topic.SegmentID]*Segment{},
	}
	all, err := t.Segments(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		r.segments[s.ID] = s
	}
	for id, off := range from {
		if r.segments[id] == nil {
			return nil, fmt.Errorf("segment %s, topic %q: %w", id, t.Name, ErrForeignPosition)
		}
		r.pos[id] = off
	}
	for id := range from {
		r.skipAncestors(id)
	}
	return r, nil
}

func (r *Reader) skipAncestors(id topic.SegmentID) {
	for _, parent := range r.segments[id].Parents {
		if _, named := r.pos[parent]; !named && r.segments[parent] != nil {
			r.done[parent] = true
			r.skipAncestors(parent)
		}
	}
}

// ReadSince starts at the first record appended at or after a time.
func (t *Topic) ReadSince(ctx context.Context, at time.Time) (*Reader, error) {
	r, err := t.Read(ctx, nil)
	if err == nil {
		r.notUntil = at
	}
	return r, err
}

// Latest is the position after everything that is there now.
func (t *Topic) Latest(ctx context.Context) (ReadPosition, error) {
	layout, err := t.Layout(ctx)
	if err != nil {
		return nil, err
	}
	p := ReadPosition{}
	for _, live := range layout.Live {
		s, err := t.Segment(ctx, live.ID)
		if err != nil {
			return nil, err
		}
		tail, err := s.Tail(ctx)
		if err != nil {
			return nil, err
		}
		p[live.ID] = tail.End()
	}
	return p, nil
}

// Position is where the reader stands: after the last record it yielded.
func (r *Reader) Position() ReadPosition {
	p := ReadPosition{}
	for id, off := range r.pos {
		p[id] = off
	}
	return p
}

// Next yields what there is to read now and ends when there is no more. It may
// be called again to read what has been added since. After an error the
// position is that of the last record yielded, and reading can be tried again.
func (r *Reader) Next(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		all, err := r.topic.Segments(ctx)
		if err != nil {
			yield(Item{}, err)
			return
		}
		for _, s := range all {
			if old := r.segments[s.ID]; old != nil {
				s = old
			}
			r.segments[s.ID] = s
			if r.done[s.ID] || !r.parentsDone(s) {
				continue
			}
			if !r.segment(ctx, s, yield) {
				return
			}
		}
	}
}

func (r *Reader) parentsDone(s *Segment) bool {
	for _, parent := range s.Parents {
		if !r.done[parent] && r.segments[parent] != nil {
			return false
		}
	}
	return true
}

// segment yields the rest of one segment. It returns false to stop.
func (r *Reader) segment(ctx context.Context, s *Segment, yield func(Item, error) bool) bool {
	for c, err := range s.Chunks(ctx, r.chunk[s.ID]) {
		if err != nil {
			yield(Item{}, err)
			return false
		}
		if c.Base > r.pos[s.ID] && r.chunk[s.ID] > 0 || c.Sealed && c.Base < r.pos[s.ID] {
			yield(Item{}, &ChunkError{c.Entry.Path, fmt.Sprintf("it starts at offset %d, but the reader stands at %d", c.Base, r.pos[s.ID])})
			return false
		}
		if c.End() > r.pos[s.ID] && !c.Last.Before(r.notUntil) {
			if !r.records(ctx, s, c, yield) {
				return false
			}
		}
		r.pos[s.ID] = max(r.pos[s.ID], c.End())
		r.chunk[s.ID] = c.Entry.N + 1
		r.done[s.ID] = c.Sealed
	}
	return true
}

func (r *Reader) records(ctx context.Context, s *Segment, c Chunk, yield func(Item, error) bool) bool {
	offset := c.Base
	for rec, err := range s.Records(ctx, c) {
		if err != nil {
			yield(Item{}, err)
			return false
		}
		skip := offset < r.pos[s.ID] || rec.Time.Before(r.notUntil)
		item := Item{s.ID, offset, rec}
		offset++
		if skip {
			continue
		}
		r.pos[s.ID] = offset
		if !yield(item, nil) {
			return false
		}
	}
	return true
}
