package sim

import (
	"cmp"
	"slices"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// chunk is what a flush tells of the load that fell into a segment: counts in
// buckets and of hot slots, and nothing finer.
func chunk(r topic.Range, flush Step) (c segment.Chunk) {
	total := flush.of(r)
	c.Count, c.Bytes = uint64(total.Records+.5), uint64(total.Bytes+.5)
	size := uint64(r.Size())
	edge := func(i uint64) uint32 {
		return r.Lo + uint32((i*size+segment.LoadBuckets-1)/segment.LoadBuckets)
	}
	for i := range uint64(segment.LoadBuckets) {
		bucket := topic.Range{Lo: edge(i), Hi: edge(i + 1)}
		if bucket.Lo == bucket.Hi {
			continue
		}
		load := flush.of(bucket)
		b := segment.Bucket{Index: int(i), Records: uint64(load.Records + .5), Bytes: uint64(load.Bytes + .5)}
		if b.Records > 0 || b.Bytes > 0 {
			c.Load = append(c.Load, b)
		}
		c.Hot = hot(c.Hot, flush, bucket, total)
	}
	if len(c.Hot) > segment.MaxHot {
		weight := func(h segment.HotSlot) float64 {
			return max(float64(h.Records)/max(total.Records, 1), float64(h.Bytes)/max(total.Bytes, 1))
		}
		slices.SortFunc(c.Hot, func(a, b segment.HotSlot) int { return cmp.Compare(weight(b), weight(a)) })
		c.Hot = c.Hot[:segment.MaxHot]
		slices.SortFunc(c.Hot, func(a, b segment.HotSlot) int { return cmp.Compare(a.Slot, b.Slot) })
	}
	return c
}

// hot adds the slots of a range that take more than one part in HotShare of the
// whole. A range has such slots only if it takes as much itself.
func hot(list []segment.HotSlot, flush Step, r topic.Range, whole planner.Rate) []segment.HotSlot {
	load := flush.of(r)
	if load.Records*segment.HotShare <= whole.Records && load.Bytes*segment.HotShare <= whole.Bytes {
		return list
	}
	if r.Size() == 1 {
		return append(list, segment.HotSlot{Slot: topic.Slot(r.Lo), Records: uint64(load.Records + .5), Bytes: uint64(load.Bytes + .5)})
	}
	middle := r.Lo + r.Size()/2
	list = hot(list, flush, topic.Range{Lo: r.Lo, Hi: middle}, whole)
	return hot(list, flush, topic.Range{Lo: middle, Hi: r.Hi}, whole)
}
