package inspect

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrNoLoad says that nothing tells where in a segment's range its load lies.
var ErrNoLoad = errors.New("no load is recorded that says where to cut")

// Cut is a place to split a range, with the load on each side of it.
type Cut struct {
	Slot        uint32 // where the right child begins
	Left, Right float64
}

// HalfLoad finds where to cut a range so that as nearly half of the load as
// possible lies on each side. [ErrNoLoad]: there is no load, or the range is one
// slot.
func HalfLoad(load topic.Density) (Cut, error) {
	cuts := load.Cuts(2)
	if len(cuts) == 0 {
		return Cut{}, ErrNoLoad
	}
	r := load.Range()
	left := load.Of(topic.Range{Lo: r.Lo, Hi: cuts[0]})
	return Cut{cuts[0], left, load.Of(topic.Range{Lo: cuts[0], Hi: r.Hi})}, nil
}

// loadChunks is how many of a segment's last chunks are read for its load.
const loadChunks = 256

// Load is where in a segment's range the bytes of its last chunks fell.
func (t *Topic) Load(ctx context.Context, id topic.SegmentID) (load topic.Density, err error) {
	err = whileTrimmed(func() error {
		s, err := t.Segment(ctx, id)
		if err != nil {
			return err
		}
		load, err = lately(ctx, s)
		return err
	})
	return load, err
}

func lately(ctx context.Context, s *segment.Segment) (topic.Density, error) {
	tail, err := s.Tail(ctx)
	if err != nil {
		return nil, err
	}
	load := topic.Even(s.Range, 0)
	for c, err := range s.Chunks(ctx, tail.Entry.Next()-min(tail.Entry.Next(), loadChunks)) {
		if err != nil {
			return nil, err
		}
		load = load.Plus(c.Density(s.Range, true))
	}
	return load, nil
}
