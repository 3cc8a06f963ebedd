package planner

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Kinds of decisions: those of edits, and Keep.
const (
	Split = topic.EditSplit
	Merge = topic.EditMerge
	Roll  = topic.EditRoll
	Keep  = "keep"
)

// Decision is what to do with a segment, or with neighbours that are merged, and
// why. The reason is one line.
type Decision struct {
	Kind     string            `json:"kind"`
	Segments []topic.SegmentID `json:"segments"`
	Cuts     []uint32          `json:"cuts,omitempty"` // of a split
	Level    float64           `json:"level"`          // of the segments together
	Reason   string            `json:"reason"`
}

// Edit is the edit that a decision asks for, on a layout in force. Errors are
// *topic.EditError: the layout has moved on. Not for Keep.
func (d Decision) Edit(l topic.Layout) (e topic.Edit, err error) {
	switch d.Kind {
	case Split:
		e, err = l.Split(d.Segments[0], d.Cuts...)
	case Merge:
		e, err = l.Merge(d.Segments...)
	case Roll:
		e, err = l.Roll(d.Segments[0])
	default:
		return e, fmt.Errorf("%q is no edit", d.Kind)
	}
	e.Reason = "planner: " + d.Reason
	return e, err
}

// Plan decides about every live segment of a topic. Decisions come in the order
// of the key space, and each live segment is in exactly one of them. It is a pure
// function: the same situation gives the same plan. The policy must be valid, and
// the layout's edit not pending.
func Plan(s Situation, p Policy) []Decision {
	pl := newPlan(s, p)
	pl.splits()
	pl.merges()
	pl.rolls()
	return pl.decisions()
}

// AtRest tells whether nothing will need to be done about a topic until records
// come: its segments are empty and as few as may be, what they have taken in
// lately is no reason to split them, and no load is declared.
func AtRest(s Situation, p Policy) bool {
	pl := newPlan(s, p)
	for i, l := range pl.Loads {
		if l.Records > 0 || pl.now(i) > pl.Sustained {
			return false
		}
	}
	few := len(pl.Loads) <= pl.floor || pl.RollOnly || pl.MergeBelow == 0
	return few && s.Expected == Rate{}
}

// plan is a plan in the making. What is said of segment i is at i; gaps[i] is why
// segments i and i+1 are not merged.
type plan struct {
	Situation
	Policy
	floor    int
	live     int // segments after the splits that are decided so far
	least    int // segments after the merges alone: edits are made one by one
	merged   int // merges
	segments []topic.Live
	decided  []*Decision
	notes    []string // why it is not split
	gaps     []string
	odd      []bool // its load makes no sense
	later    []bool // it is due to be rolled, but others come first
}

func newPlan(s Situation, p Policy) *plan {
	n := len(s.Loads)
	pl := &plan{Situation: s, Policy: p, floor: cmp.Or(p.Floor, s.Roots, 1), live: n, least: n, segments: s.Layout.Live}
	pl.floor = min(pl.floor, p.Cap)
	pl.decided, pl.notes, pl.gaps = make([]*Decision, n), make([]string, n), make([]string, n)
	pl.odd, pl.later = make([]bool, n), make([]bool, n)
	pl.Loads = slices.Clone(s.Loads)
	for i := range pl.Loads {
		l := &pl.Loads[i]
		var short, long bool
		l.Short, short = sane(l.Short)
		l.Long, long = sane(l.Long)
		pl.odd[i] = !short || !long
	}
	pl.Expected, _ = sane(s.Expected)
	return pl
}

// sane is a rate that can be reckoned with. False: it was negative or no number,
// and says nothing.
func sane(r Rate) (Rate, bool) {
	if !(r.Records >= 0 && r.Bytes >= 0) {
		return Rate{}, false
	}
	return Rate{min(r.Records, maxRate), min(r.Bytes, maxRate)}, true
}

// expected is the declared level of a range. Keys are hashed, so it is taken to
// be spread evenly.
func (pl *plan) expected(r topic.Range) float64 {
	return pl.level(pl.Expected) * float64(r.Size()) / topic.Slots
}

// now is a segment's level: the higher of its two averages.
func (pl *plan) now(i int) float64 {
	return max(pl.level(pl.Loads[i].Short), pl.level(pl.Loads[i].Long))
}

func (pl *plan) note(i int, format string, a ...any) {
	pl.notes[i] = fmt.Sprintf(format, a...)
}

// name is how reasons name segment i.
func (pl *plan) name(i int) string { return inspect.Short(pl.segments[i].ID) }

// age is a duration as reasons say it.
func age(d time.Duration) string {
	if d = max(d, 0); d < 10*time.Second {
		d = d.Round(100 * time.Millisecond)
	} else {
		d = d.Round(time.Second)
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// decisions lists what was decided, and Keep for the rest.
func (pl *plan) decisions() (list []Decision) {
	for i := 0; i < len(pl.decided); i++ {
		d := pl.decided[i]
		if d == nil {
			d = &Decision{Kind: Keep, Segments: []topic.SegmentID{pl.segments[i].ID}, Level: pl.now(i), Reason: pl.whyKeep(i)}
		}
		list = append(list, *d)
		if d.Kind == Merge {
			i += len(d.Segments) - 1
		}
	}
	return list
}

// whyKeep says why nothing is done about a segment.
func (pl *plan) whyKeep(i int) string {
	l := pl.Loads[i]
	load := "idle"
	if (l.Short != Rate{} || l.Long != Rate{}) {
		load = fmt.Sprintf("level %.2f (%s over %s, %s over %s)", pl.now(i), pl.show(l.Short), age(pl.Short), pl.show(l.Long), age(pl.Long))
	}
	why := []string{load}
	switch {
	case pl.RollOnly:
		return load + "; this topic is never split or merged, only rolled"
	case pl.odd[i]:
		return "its load makes no sense, so it is neither split nor merged"
	case pl.notes[i] != "":
		why = append(why, "not split: "+pl.notes[i])
	case load != "idle":
		why = append(why, fmt.Sprintf("not split: not above %g, nor above %g for %s", pl.Burst, pl.Sustained, age(pl.Long)))
	}
	why = append(why, pl.whyApart(i)...)
	if pl.later[i] {
		why = append(why, fmt.Sprintf("to be rolled, after %d more urgent edits", atOnce))
	}
	return strings.Join(why, "; ")
}

// whyApart says why a segment is not merged with the one before and the one after
// it.
func (pl *plan) whyApart(i int) (why []string) {
	with := func(whom, reason string) { why = append(why, fmt.Sprintf("not merged with %s: %s", whom, reason)) }
	first, last := i == 0, i == len(pl.gaps)-1
	switch {
	case first && last:
	case first:
		with(pl.name(i+1), pl.gaps[i])
	case last:
		with(pl.name(i-1), pl.gaps[i-1])
	case pl.gaps[i-1] == pl.gaps[i]:
		with("its neighbours", pl.gaps[i])
	default:
		with(pl.name(i-1), pl.gaps[i-1])
		with(pl.name(i+1), pl.gaps[i])
	}
	return why
}
