package planner

import (
	"math"
	"sort"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Rate is a load per second.
type Rate struct {
	Records float64 `json:"records_per_second"`
	Bytes   float64 `json:"bytes_per_second"`
}

// Plus is the sum of two rates.
func (r Rate) Plus(o Rate) Rate { return Rate{r.Records + o.Records, r.Bytes + o.Bytes} }

// Times is the rate multiplied by f.
func (r Rate) Times(f float64) Rate { return Rate{r.Records * f, r.Bytes * f} }

// Sample is how much a segment had taken in at a time: what a chunk says of itself
// and all before it.
type Sample struct {
	At      time.Time // when the chunk was committed
	Records uint64    // up to here, since the segment was made
	Bytes   uint64
}

// Series is a segment's samples, in the order of the chunks. The first is where
// counting begins: when the segment was made, with zero, or any chunk.
//
// Times come from the clocks of workers, so they may stand still or go back from
// one to the next. A sample that is not later than the one before counts as of the
// same time.
type Series []Sample

// Average is the exponentially weighted mean rate as of a time. The weight of
// what happened a whole window ago is 5 % of that of what happens now, so that a
// step shows with 95 % of its height after the window. Between two samples the
// load counts as even; weights are corrected for the time before the first sample,
// of which nothing is known. The zero Rate: fewer than two samples. It is never
// negative: counts that shrink add nothing.
func (s Series) Average(asOf time.Time, window time.Duration) Rate {
	if len(s) == 0 || !asOf.After(s[0].At) {
		return Rate{}
	}
	w := weights{asOf, window.Seconds() / 3}
	known := w.of(asOf.Sub(s[0].At))
	if i := s.index(asOf.Add(-negligible * window)); i > 0 {
		s = s[i:]
	}
	var sum Rate
	from, to := s[0], s[0]
	for i, next := range s[1:] {
		if next.At.After(asOf) && i+2 < len(s) {
			continue // by a clock that was ahead; the next one counts these, too
		}
		if next.At.After(to.At) {
			sum = sum.Plus(w.span(from, to))
			from, to = to, Sample{At: next.At, Records: to.Records, Bytes: to.Bytes}
		}
		to.Records, to.Bytes = max(to.Records, next.Records), max(to.Bytes, next.Bytes)
	}
	sum = sum.Plus(w.span(from, to))
	return sum.Times(1 / known)
}

// negligible is how many windows ago the weight of everything before is less than
// the precision of a number.
const negligible = 12

// index of the last sample before a time, as far as samples are in order.
func (s Series) index(t time.Time) int {
	return sort.Search(len(s), func(i int) bool { return !s[i].At.Before(t) }) - 1
}

// weights are those of moments as of a time, exponentially less with age.
type weights struct {
	asOf time.Time
	tau  float64 // seconds in which a weight falls to 1/e
}

// of is the weight of all of a time up to now.
func (w weights) of(d time.Duration) float64 { return -math.Expm1(-d.Seconds() / w.tau) }

// span is what the time between two samples adds to the mean.
func (w weights) span(from, to Sample) Rate {
	end := to.At
	if end.After(w.asOf) {
		end = w.asOf
	}
	if !end.After(from.At) {
		return Rate{}
	}
	share := math.Exp(-w.asOf.Sub(end).Seconds()/w.tau) * w.of(end.Sub(from.At)) / to.At.Sub(from.At).Seconds()
	return Rate{float64(to.Records - from.Records), float64(to.Bytes - from.Bytes)}.Times(share)
}

// Silence is for how long a segment need not show anything new, as a multiple of
// its topic's flush age, before that counts as no load.
const Silence = 2

// AsOf is the time at which averages are taken: now, less what the next flush may
// still be waiting for.
func (s Series) AsOf(now time.Time, flushAge time.Duration) time.Time {
	asOf := now.Add(-Silence * flushAge)
	if len(s) > 0 && s[len(s)-1].At.After(asOf) {
		return s[len(s)-1].At
	}
	return asOf
}

// Load is what is known of a live segment.
type Load struct {
	Segment  topic.SegmentID `json:"segment"`
	Short    Rate            `json:"short"`
	Long     Rate            `json:"long"`
	Observed time.Duration   `json:"observed"` // how long it is known, by itself or what it was rolled from
	// Split is when a part of the range last came out of a split, zero if that
	// is longer ago than any cool-down.
	Split   time.Time     `json:"split"`
	Records uint64        `json:"records"` // that it holds
	Bytes   uint64        `json:"bytes"`
	First   time.Time     `json:"first"`   // when its oldest record was committed; zero if it is empty
	Density topic.Density `json:"density"` // of the recent load, in any unit; nil: not known
}

// Backlog is what of a lane is not in segments yet.
type Backlog struct {
	Lane     string        `json:"lane"`
	Messages uint64        `json:"messages"`
	Lag      time.Duration `json:"lag"` // how long the oldest of them has been waiting
}

// Situation is all that a plan depends on.
type Situation struct {
	Topic    string       `json:"topic"`
	Layout   topic.Layout `json:"layout"` // in force: no edit under way
	Loads    []Load       `json:"loads"`  // of the live segments, in their order
	Backlogs []Backlog    `json:"backlogs"`
	Expected Rate         `json:"expected"` // declared, for the whole topic
	Roots    int          `json:"roots"`    // segments that the topic was made with
	// RollOnly: the topic must not be split or merged.
	RollOnly bool      `json:"roll_only"`
	Now      time.Time `json:"now"`
}
