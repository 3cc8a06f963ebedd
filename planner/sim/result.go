package sim

import (
	"io"
	"time"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// Result is what became of a trace.
type Result struct {
	Summary
	Edits []Edit             `json:"edits"`
	Load  []Point            `json:"load"`
	Final []planner.Decision `json:"final"` // of the planner's last run

	// Layouts are those in force, from the first on; only the first lists its live
	// segments, the others have just their edit. Segments is the load of each segment
	// that there ever was.
	Layouts  []topic.Layout                      `json:"-"`
	Segments map[topic.SegmentID][]inspect.Point `json:"-"`

	policy     planner.Policy
	start, end time.Time
}

// Edit is an edit that was made.
type Edit struct {
	At    topic.Duration `json:"at"` // since the start
	Epoch uint64         `json:"epoch"`
	planner.Decision
}

// Point is how things were from a time on until the next point.
type Point struct {
	At topic.Duration `json:"at"`
	planner.Rate
	Segments int     `json:"segments"`
	Level    float64 `json:"level"` // of the heaviest segment, at worst
}

// Summary says in numbers how it went. Levels are multiples of the target, of what
// truly came in, not of what the planner saw of it.
type Summary struct {
	Length topic.Duration `json:"length"`
	Runs   int            `json:"runs"` // of the planner
	Mean   planner.Rate   `json:"mean"`
	Peak   planner.Rate   `json:"peak"`

	First int `json:"segments_first"`
	Most  int `json:"segments_most"`
	Last  int `json:"segments_last"`

	Splits  int `json:"splits"`
	Merges  int `json:"merges"`
	Rolls   int `json:"rolls"`
	PerHour int `json:"edits_in_busiest_hour"` // splits and merges
	// Undone is how many merges took in what had come out of a split within the
	// policy's cool-down.
	Undone int `json:"undone"`

	// Onsets is how often a segment of two slots or more came to be above the
	// target; OverFor for how long in all, and Longest at a time.
	Onsets  int            `json:"onsets"`
	OverFor topic.Duration `json:"over_for"`
	Longest topic.Duration `json:"over_longest"`
	Worst   float64        `json:"level_worst"`
	HotSlot float64        `json:"level_hot_slot"` // of a segment of one slot: it cannot be split

	// Imbalance is the level of the heaviest segment in the end divided by that of
	// the lightest, as far as keys allow: see [Imbalance].
	Imbalance float64 `json:"imbalance"`
	Unsealed  uint64  `json:"unsealed"` // records that live segments hold in the end
}

// finish ends a run.
func (s *run) finish() *Result {
	s.point(s.now, s.live)
	r := &Result{
		Edits: s.edits, Load: s.series, Final: s.last, Layouts: s.layouts, Segments: s.points,
		policy: s.policy, start: s.Start, end: s.end,
		Summary: Summary{
			Length: topic.Duration(s.end.Sub(s.Start)), Runs: s.runs, Peak: s.peak,
			Mean:  s.arrived.Times(1 / s.end.Sub(s.Start).Seconds()),
			First: s.Roots, Most: s.most, Last: len(s.live),
			Onsets: s.onsets, OverFor: topic.Duration(s.overFor), Longest: topic.Duration(s.lasted),
			Worst: s.worst, HotSlot: s.hotSlot,
		},
	}
	now := make([]Segment, len(s.live))
	for i, l := range s.live {
		s.retire(l)
		now[i] = Segment{l.Range, level(s.policy, l.rate)}
		r.Unsealed += l.held()
	}
	r.Imbalance = Imbalance(now)
	for _, e := range r.Edits {
		switch e.Kind {
		case planner.Split:
			r.Splits++
		case planner.Merge:
			r.Merges++
		default:
			r.Rolls++
		}
	}
	r.PerHour = r.busiest(time.Hour)
	r.Undone = r.MergedWithin(s.policy.CoolDown)
	return r
}

// busiest is how many splits and merges there are at most in any stretch of time.
func (r *Result) busiest(span time.Duration) (most int) {
	var recent []topic.Duration
	for _, e := range r.Edits {
		if e.Kind == planner.Roll {
			continue
		}
		recent = append(recent, e.At)
		for e.At-recent[0] > topic.Duration(span) {
			recent = recent[1:]
		}
		most = max(most, len(recent))
	}
	return most
}

// MergedWithin is how many merges took in a part of the key space that had come
// out of a split less than a while before.
func (r *Result) MergedWithin(coolDown time.Duration) (n int) {
	var splits []topic.Layout
	for _, l := range r.Layouts {
		slots := union(l.Edit.Children)
		switch l.Edit.Kind {
		case topic.EditSplit:
			splits = append(splits, l)
		case topic.EditMerge:
			for len(splits) > 0 && l.At.Sub(splits[0].At) >= coolDown {
				splits = splits[1:]
			}
			for _, s := range splits {
				if union(s.Edit.Children).Overlaps(slots) {
					n++
					break
				}
			}
		}
	}
	return n
}

// union is what neighbours cover.
func union(list []topic.Live) topic.Range {
	if len(list) == 0 {
		return topic.Range{}
	}
	return topic.Range{Lo: list[0].Lo, Hi: list[len(list)-1].Hi}
}

// Segment is a live segment with its level.
type Segment struct {
	topic.Range
	Level float64
}

// Imbalance is how many times the level of the lightest segment the heaviest has,
// as far as keys allow: a segment of one slot cannot be made lighter and is left
// out, and so is, as the lightest, one that has nothing but such beside it. 0: there
// are no two to compare, or there is no load.
func Imbalance(list []Segment) float64 {
	heaviest, lightest, n := 0.0, 0.0, 0
	alone := func(i int) bool { return i < 0 || i >= len(list) || list[i].Size() == 1 }
	for i, s := range list {
		if s.Size() == 1 {
			continue
		}
		heaviest = max(heaviest, s.Level)
		if alone(i-1) && alone(i+1) {
			continue
		}
		if n++; n == 1 || s.Level < lightest {
			lightest = s.Level
		}
	}
	if n == 0 || lightest == 0 {
		return 0
	}
	return heaviest / lightest
}

// SVG draws the river of segments and the load above it.
func (r *Result) SVG(w io.Writer, title string) error {
	p := inspect.Picture{
		Title: title, From: r.start, To: r.end, Relative: true, Segments: r.Segments,
		Target: r.policy.TargetBytes, TargetRecords: r.policy.TargetRecords,
	}
	for _, l := range r.Load {
		p.Load = append(p.Load, inspect.Point{At: r.start.Add(time.Duration(l.At)), Bytes: l.Bytes, Records: l.Records})
	}
	return inspect.SVG(w, r.Layouts, p)
}
