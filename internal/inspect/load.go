package inspect

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrNoLoad says that nothing tells where in a segment's range its load lies.
var ErrNoLoad = errors.New("no load is recorded that says where to cut")

// Cut is a place to split a range, with the bytes of load on each side of it.
type Cut struct {
	Slot        uint32 // where the right child begins
	Left, Right uint64
}

// HalfLoad finds where to cut a range so that as nearly half of the load as
// possible lies on each side. load may hold the buckets of many chunks. Buckets
// are as fine as it gets: load that lies in one of them is not divided but left
// with as small a range as the cut allows, and the next split sees it finer.
// [ErrNoLoad]: there is no load, or the range is one slot.
func HalfLoad(r topic.Range, load []segment.Bucket) (Cut, error) {
	var bytes [segment.LoadBuckets]uint64
	total := uint64(0)
	for _, b := range load {
		if b.Index >= 0 && b.Index < len(bytes) {
			bytes[b.Index] += b.Bytes
			total += b.Bytes
		}
	}
	var best Cut
	for i, left := 1, uint64(0); i < len(bytes) && total > 0; i++ {
		left += bytes[i-1]
		c := Cut{bucketStart(r, i), left, total - left}
		if c.Slot > r.Lo && c.Slot < r.Hi && (best.Slot == 0 || c.better(best, r)) {
			best = c
		}
	}
	if best.Slot == 0 {
		return Cut{}, ErrNoLoad
	}
	return best, nil
}

// bucketStart is the first slot that counts for bucket i.
func bucketStart(r topic.Range, i int) uint32 {
	size := uint64(r.Size())
	return r.Lo + uint32((uint64(i)*size+segment.LoadBuckets-1)/segment.LoadBuckets)
}

// better prefers the smaller difference between the sides. Of equal ones: that
// which gives the side with more load the fewest slots, so that a hot place is
// narrowed down, and if both have the same, that nearest to the middle.
func (c Cut) better(than Cut, r topic.Range) bool {
	if c.imbalance() != than.imbalance() {
		return c.imbalance() < than.imbalance()
	}
	return c.spread(r) < than.spread(r)
}

func (c Cut) imbalance() uint64 { return max(c.Left, c.Right) - min(c.Left, c.Right) }

func (c Cut) spread(r topic.Range) uint32 {
	left, right := c.Slot-r.Lo, r.Hi-c.Slot
	switch {
	case c.Left < c.Right:
		return right
	case c.Left > c.Right:
		return left
	}
	return max(left, right) - min(left, right)
}

// loadChunks is how many of a segment's last chunks are read for its load.
const loadChunks = 256

// Load is the load that the last chunks of a segment have counted.
func (t *Topic) Load(ctx context.Context, id topic.SegmentID) (load []segment.Bucket, err error) {
	err = whileTrimmed(func() error {
		s, err := t.Segment(ctx, id)
		if err != nil {
			return err
		}
		tail, err := s.Tail(ctx)
		if err != nil {
			return err
		}
		load = nil
		for c, err := range s.Chunks(ctx, tail.Entry.Next()-min(tail.Entry.Next(), loadChunks)) {
			if err != nil {
				return err
			}
			load = append(load, c.Load...)
		}
		return nil
	})
	return load, err
}
