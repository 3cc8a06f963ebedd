package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// Trace is a load over time. The load of a step holds until the next; the last
// step is the end, its load never comes.
type Trace struct {
	Steps    []Step // two or more, ascending
	Declared []Declaration
}

// Step is a change of the load: so much of it comes per second from At on.
type Step struct {
	At time.Duration // since the start of the trace
	planner.Rate
	Where *Profile // nil: evenly over the key space
}

// Declaration is a load that was declared before it comes, for the whole topic.
type Declaration struct {
	From, To time.Duration
	planner.Rate
}

// Length is how long the trace lasts.
func (t Trace) Length() time.Duration { return t.Steps[len(t.Steps)-1].At - t.Steps[0].At }

// Bounds of what a trace can hold. Rates beyond them are faults of the trace, and
// would overflow the counters of a segment.
const (
	MaxLength = 100 * 24 * time.Hour
	maxRate   = 1e12
)

// check reports the first thing that is wrong.
func (t Trace) check() error {
	switch len(t.Steps) {
	case 0:
		return errors.New("it has no times")
	case 1:
		return errors.New("it has one time only: the last is the end, so that nothing ever comes")
	}
	for i, s := range t.Steps {
		switch {
		case i > 0 && s.At <= t.Steps[i-1].At:
			return fmt.Errorf("%s comes after %s: times ascend", s.At, t.Steps[i-1].At)
		case s.At < 0 || s.At-t.Steps[0].At > MaxLength:
			return fmt.Errorf("it goes on to %s: want 0 to %s after its start", s.At, MaxLength)
		}
		if err := checkRate(s.Rate); err != nil {
			return fmt.Errorf("at %s: %w", s.At, err)
		}
	}
	for _, d := range t.Declared {
		if err := checkRate(d.Rate); err != nil {
			return fmt.Errorf("declared at %s: %w", d.From, err)
		}
	}
	return nil
}

func checkRate(r planner.Rate) error {
	for _, v := range []float64{r.Bytes, r.Records} {
		if !(v >= 0 && v <= maxRate) { // NaN too
			return fmt.Errorf("the load is %v per second: want 0 to %g", v, float64(maxRate))
		}
	}
	if r.Bytes > 0 && r.Records == 0 {
		return fmt.Errorf("%v bytes come per second, but no records", r.Bytes)
	}
	return nil
}

// Profile tells where in the key space load falls, as shares of the whole. It is
// immutable, and many steps can share one.
type Profile struct {
	edges          []uint32 // from 0 to topic.Slots
	records, bytes []float64
	// The share of records, and of bytes, below edge i.
}

// Part is a load that is spread evenly over a range.
type Part struct {
	topic.Range
	planner.Rate
}

// NewProfile is the profile of several loads that add up, and their sum. Ranges
// must be valid and rates not negative; ranges may overlap.
func NewProfile(parts ...Part) (*Profile, planner.Rate) {
	edges := []uint32{0, topic.Slots}
	for _, p := range parts {
		edges = append(edges, p.Lo, p.Hi)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	// What a part brings per slot begins at its Lo and ends at its Hi.
	slope := make([]planner.Rate, len(edges))
	var sum planner.Rate
	for _, p := range parts {
		lo, _ := slices.BinarySearch(edges, p.Lo)
		hi, _ := slices.BinarySearch(edges, p.Hi)
		each := p.Times(1 / float64(p.Size()))
		slope[lo] = slope[lo].Plus(each)
		slope[hi] = slope[hi].Plus(each.Times(-1))
		sum = sum.Plus(p.Rate)
	}
	w := &Profile{edges: edges, records: make([]float64, len(edges)), bytes: make([]float64, len(edges))}
	var perSlot, below planner.Rate
	for i := range edges[1:] {
		perSlot = perSlot.Plus(slope[i])
		below = below.Plus(perSlot.Times(float64(edges[i+1] - edges[i])))
		w.records[i+1], w.bytes[i+1] = max(below.Records, w.records[i]), max(below.Bytes, w.bytes[i])
	}
	w.scale()
	return w, sum
}

// NewSlotProfile is the profile of a load for each slot.
func NewSlotProfile(loads *[topic.Slots]float64) *Profile {
	w := &Profile{edges: make([]uint32, topic.Slots+1), records: make([]float64, topic.Slots+1)}
	for i, l := range loads {
		w.edges[i+1], w.records[i+1] = uint32(i+1), w.records[i]+l
	}
	w.bytes = slices.Clone(w.records)
	w.scale()
	return w
}

// scale makes shares of loads.
func (w *Profile) scale() {
	for _, below := range [][]float64{w.records, w.bytes} {
		total := below[len(below)-1]
		for i := range below {
			below[i] /= cmp.Or(total, 1)
		}
	}
}

// everywhere is an even load.
var everywhere, _ = NewProfile(Part{topic.Full, planner.Rate{Records: 1, Bytes: 1}})

// below is the share of the load that falls below a slot.
func (w *Profile) below(slot uint32) (r planner.Rate) {
	i := sort.Search(len(w.edges)-1, func(i int) bool { return w.edges[i+1] >= slot })
	if len(w.edges) == topic.Slots+1 {
		i = max(0, int(slot)-1)
	}
	f := float64(slot-w.edges[i]) / float64(w.edges[i+1]-w.edges[i])
	return planner.Rate{
		Records: w.records[i] + f*(w.records[i+1]-w.records[i]),
		Bytes:   w.bytes[i] + f*(w.bytes[i+1]-w.bytes[i]),
	}
}

// share is the share of the load that falls into a range.
func (w *Profile) share(r topic.Range) planner.Rate {
	lo, hi := w.below(r.Lo), w.below(r.Hi)
	return planner.Rate{Records: math.Max(0, hi.Records-lo.Records), Bytes: math.Max(0, hi.Bytes-lo.Bytes)}
}

// of is what of a step falls into a range.
func (s Step) of(r topic.Range) planner.Rate {
	share := s.Where.share(r)
	return planner.Rate{Records: s.Records * share.Records, Bytes: s.Bytes * share.Bytes}
}
