package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/topic"
)

// merges joins neighbours that take in little together, from the left, as many at
// a time as stay light. No group gets more than its share of the key space at the
// topic's floor; only if that leaves nothing to merge, up to twice as much.
func (pl *plan) merges() {
	share := uint32((topic.Slots + pl.floor - 1) / pl.floor)
	if !pl.join(share) {
		pl.join(2 * share)
	}
}

// join merges groups of at most so many slots, and tells whether there were any.
func (pl *plan) join(size uint32) (some bool) {
	for i := 0; i < len(pl.Loads); {
		g := pl.group(i)
		for g.end < len(pl.Loads) {
			if pl.gaps[g.end-1] = pl.apart(g, g.end, size); pl.gaps[g.end-1] != "" {
				break
			}
			g = g.with(pl, g.end)
		}
		if g.end-i > 1 {
			pl.merge(g)
			some = true
		}
		i = g.end
	}
	return some
}

// group is the neighbours begin..end-1 with what they take in together.
type group struct {
	begin, end int
	slots      topic.Range
	load       Rate    // of each the higher of its averages
	declared   float64 // the level with what is declared, if anything is
}

func (pl *plan) group(i int) group {
	return group{begin: i, end: i, slots: topic.Range{Lo: pl.segments[i].Lo}}.with(pl, i)
}

// with is the group and its next neighbour.
func (g group) with(pl *plan, i int) group {
	l := pl.Loads[i]
	rate := Rate{max(l.Short.Records, l.Long.Records), max(l.Short.Bytes, l.Long.Bytes)}
	if (pl.Expected != Rate{}) {
		g.declared += pl.density(i).Total()
	}
	return group{g.begin, i + 1, topic.Range{Lo: g.slots.Lo, Hi: pl.segments[i].Hi}, g.load.Plus(rate), g.declared}
}

// apart is why segment i does not join the group before it, "" if it does. A
// group has at most so many slots.
func (pl *plan) apart(g group, i int, size uint32) string {
	both := g.with(pl, i)
	level := pl.level(both.load)
	switch {
	case pl.RollOnly || pl.MergeBelow == 0:
		return "merging is off"
	case pl.decided[i-1] != nil:
		return pl.name(i-1) + " is split"
	case pl.decided[i] != nil:
		return pl.name(i) + " is split"
	case pl.odd[i-1] || pl.odd[i]:
		return "the load of one makes no sense"
	case level >= pl.MergeBelow:
		return pl.together(g, fmt.Sprintf("level %.2f", level))
	case both.declared >= pl.MergeBelow:
		return pl.together(g, fmt.Sprintf("with what is declared, level %.2f", both.declared))
	case pl.least-(both.end-both.begin-1) < pl.floor:
		return fmt.Sprintf("the topic's floor is %s", plural(pl.floor, "segment"))
	case both.slots.Size() > size:
		return fmt.Sprintf("together more of the key space than one of %s, the topic's floor, is to have", plural(pl.floor, "segment"))
	case both.end-both.begin > pl.MaxWays:
		return fmt.Sprintf("at most %d are merged at a time", pl.MaxWays)
	case pl.merged >= atOnce:
		return fmt.Sprintf("%d merges are made at a time, others in the next run", atOnce)
	}
	for _, b := range pl.Backlogs {
		if b.Lag > pl.Short {
			return fmt.Sprintf("%s messages wait in lane %s, the oldest for %s, so the load is higher than it seems", humanize.Comma(int64(min(b.Messages, math.MaxInt64))), b.Lane, age(b.Lag))
		}
	}
	return cmp.Or(pl.unsettled(i-1), pl.unsettled(i))
}

// together says that segments would have too much load together.
func (pl *plan) together(g group, load string) string {
	with := "together"
	if n := g.end - g.begin; n > 1 {
		with = fmt.Sprintf("with the %d merged there", n)
	}
	return fmt.Sprintf("%s %s, not below %g", load, with, pl.MergeBelow)
}

// unsettled is why a segment is not merged yet, "" if it can be.
func (pl *plan) unsettled(i int) string {
	l := pl.Loads[i]
	switch since := pl.Now.Sub(l.Split); {
	case !l.Split.IsZero() && since < pl.CoolDown:
		return fmt.Sprintf("%s came out of a split %s ago, the cool-down is %s", pl.name(i), age(since), age(pl.CoolDown))
	case l.Observed < pl.Long:
		return fmt.Sprintf("%s is known for %s, less than %s", pl.name(i), age(l.Observed), age(pl.Long))
	}
	return ""
}

func (pl *plan) merge(g group) {
	d := &Decision{Kind: Merge, Level: pl.level(g.load)}
	for i := g.begin; i < g.end; i++ {
		d.Segments = append(d.Segments, pl.segments[i].ID)
		pl.decided[i] = d
	}
	what := "are idle"
	if g.load != (Rate{}) {
		what = fmt.Sprintf("take in %s together, level %.2f, below %g", pl.show(g.load), d.Level, pl.MergeBelow)
	}
	d.Reason = fmt.Sprintf("%s %s", plural(len(d.Segments), "neighbour"), what)
	pl.least -= len(d.Segments) - 1
	pl.merged++
}

// atOnce is how many merges and rolls a plan has at most. Edits are made one after
// the other, and while they last nothing is split: a flood is not to wait for what
// has time.
const atOnce = 32

// rolls seals segments that are large or old, so that they get compacted, however
// idle the topic is: those first that are most overdue.
func (pl *plan) rolls() {
	due := map[int]float64{} // times what makes a segment due
	var order []int
	for i, l := range pl.Loads {
		if pl.decided[i] != nil || l.Records == 0 {
			continue
		}
		var size, old float64
		if pl.RollBytes > 0 {
			size = float64(l.Bytes) / float64(pl.RollBytes)
		}
		if pl.RollAge > 0 && !l.First.IsZero() {
			old = float64(pl.Now.Sub(l.First)) / float64(pl.RollAge)
		}
		if due[i] = max(size, old); due[i] >= 1 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(due[b], due[a]) })
	room := max(0, atOnce-pl.merged)
	for _, i := range order[min(room, len(order)):] {
		pl.later[i] = true
	}
	for _, i := range order[:min(room, len(order))] {
		pl.decided[i] = &Decision{Kind: Roll, Segments: []topic.SegmentID{pl.Loads[i].Segment}, Level: pl.now(i), Reason: pl.whyRoll(i)}
	}
}

// whyRoll says why a segment is rolled.
func (pl *plan) whyRoll(i int) string {
	l := pl.Loads[i]
	if pl.RollBytes > 0 && l.Bytes >= pl.RollBytes {
		return fmt.Sprintf("holds %s; segments are rolled at %s", humanize.IBytes(l.Bytes), humanize.IBytes(pl.RollBytes))
	}
	return fmt.Sprintf("its oldest record is %s old; segments are rolled after %s", age(pl.Now.Sub(l.First)), age(pl.RollAge))
}
