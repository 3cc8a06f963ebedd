package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrSealed says that the segment takes no more records; its children do.
var ErrSealed = errors.New("segment is sealed")

// ErrDiffers says that a segment's description is not what its layout and its
// parents' seals make it. Taking records into it could lose or double some, so
// the edit stops until somebody has looked at it. It matches filer.ErrCorrupt.
var ErrDiffers = fmt.Errorf("the segment's description differs from what the edit makes it: %w", filer.ErrCorrupt)

// Segment is a handle on one segment. It remembers the tail that it has seen;
// one goroutine at a time may append with it.
type Segment struct {
	topic.Segment
	topic   *Topic
	log     *commitlog.Log
	tail    Chunk
	loaded  bool
	trusted string // ID of the last tail whose position the source confirmed
	held    bool   // the source confirmed the floors
	sought  uint64 // head when a search was last repeated
	foreign int    // how many positions the tail may carry before they are pruned
}

func (t *Topic) segmentDir(id topic.SegmentID) string {
	return path.Join(t.Dir(), "segments", string(id))
}

func (t *Topic) descriptor(id topic.SegmentID) cursor.File[topic.Segment] {
	return cursor.At[topic.Segment](t.store.Filer, path.Join(t.segmentDir(id), "segment.json"))
}

// createSegment writes the head of a segment's log and its description. One that
// exists must be the same: everything in it follows from the layout and the
// parents' seals, so whoever writes it writes the same bytes (rule 26). If they
// differ, something is badly wrong, and the edit stops with ErrDiffers.
func (t *Topic) createSegment(ctx context.Context, seg topic.Segment) error {
	if err := t.store.log(t.segmentDir(seg.ID), ".avro").Init(ctx); err != nil {
		return err
	}
	file := t.descriptor(seg.ID)
	_, err := file.Create(ctx, seg)
	if !errors.Is(err, filer.ErrExists) {
		return err
	}
	old, _, err := file.Load(ctx)
	if err != nil {
		return err
	}
	want, err := cursor.Encode(seg)
	if err != nil {
		return err
	}
	got, err := cursor.Encode(old)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s: %w", file.Path(), ErrDiffers)
	}
	return err
}

// Segment opens a segment of the topic.
func (t *Topic) Segment(ctx context.Context, id topic.SegmentID) (*Segment, error) {
	seg, _, err := t.descriptor(id).Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("segment %s of topic %q: %w", id, t.Name, err)
	}
	if seg.ID != id || !seg.Range.Valid() {
		return nil, fmt.Errorf("%s describes segment %s with range %s: %w", t.descriptor(id).Path(), seg.ID, seg.Range, filer.ErrCorrupt)
	}
	return &Segment{Segment: seg, topic: t, log: t.store.log(t.segmentDir(id), ".avro")}, nil
}

// Tail finds the segment's last chunk, from the last one this handle has seen.
func (s *Segment) Tail(ctx context.Context) (Chunk, error) {
	e, err := s.log.Tail(ctx, s.tail.Entry)
	if err != nil {
		return Chunk{}, err
	}
	return s.moveTo(e)
}

// moveTo makes an entry the tail that the handle knows. The bytes of a small file
// come with its entry; they are not kept, since a worker has many handles.
func (s *Segment) moveTo(e commitlog.Entry) (Chunk, error) {
	e.Content = nil
	c := Chunk{}
	if e.ID != "" {
		var err error
		if c, err = parseChunk(e); err != nil {
			return Chunk{}, err
		}
	}
	s.tail, s.loaded = c, true
	return c, nil
}

// Chunks yields the segment's chunks from number n (or head) on, the seal too. Of a
// segment that is compacted there may be nothing else: [Segment.Items] finds the
// records.
func (s *Segment) Chunks(ctx context.Context, n uint64) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for e, err := range s.log.Entries(ctx, n) {
			var c Chunk
			if err == nil {
				c, err = parseChunk(e)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Trim makes the chunks below number n void and deletes them. The tail cannot be
// trimmed, so that a sealed segment keeps its seal. That the records are in data files
// or not wanted any more is for the caller to see to (rule 36). After an error some may
// be gone; trimming again goes on.
func (s *Segment) Trim(ctx context.Context, n uint64) error { return s.log.Trim(ctx, n) }

// outcome turns the result of an append into the tail to go on from. Lost and
// void entries are no errors here: the caller computes again from the new tail.
func (s *Segment) outcome(ctx context.Context, won commitlog.Entry, err error) (Chunk, error) {
	var lost *commitlog.LostError
	switch {
	case err == nil:
		return s.moveTo(won)
	case errors.As(err, &lost):
		return s.moveTo(lost.Winner)
	case errors.Is(err, commitlog.ErrVoid):
		return s.Tail(ctx)
	}
	return Chunk{}, err
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
