package topic

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// SegmentID names a segment within its topic: epoch, number within the edit and
// a random incarnation ("00000000-00-k3j9x2ab"), so that no two segments of any
// topic ever share a path.
type SegmentID string

// Live is a segment that takes records, with its key range.
type Live struct {
	ID SegmentID `json:"id"`
	Range
}

// String gives "id [lo,hi)".
func (l Live) String() string { return fmt.Sprintf("%s %s", l.ID, l.Range) }

// Segment is a segment's immutable description, its segment.json.
type Segment struct {
	ID      SegmentID   `json:"id"`
	Range   Range       `json:"range"`
	Epoch   uint64      `json:"epoch"` // the layout that created it
	Parents []SegmentID `json:"parents"`
	Floors  []Floor     `json:"floors"`
	Created time.Time   `json:"created"`
}

// FloorOf is the highest floor of a source at a slot, zero if there is none.
func (s Segment) FloorOf(source string, slot Slot) (p Position) {
	for _, f := range s.Floors {
		if f.Source == source && f.Contains(slot) {
			p = p.Max(f.At)
		}
	}
	return p
}

// Edit is a change of the layout.
type Edit struct {
	Kind     string      `json:"kind"` // one of the Edit constants
	Reason   string      `json:"reason"`
	Parents  []SegmentID `json:"parents"`
	Children []Live      `json:"children"`
}

// Layout is the live segments of a topic at an epoch, one entry of its layout
// log; the epoch is the entry's number. Pending is true on an intent: until the
// entry after it, its completion, the old Live list holds, and is repeated here.
type Layout struct {
	Epoch   uint64    `json:"epoch"`
	At      time.Time `json:"at"`
	Edit    Edit      `json:"edit"`
	Live    []Live    `json:"live"`
	Pending bool      `json:"pending"`
}

// Route returns the live segment that owns a slot. The layout must be valid.
func (l Layout) Route(s Slot) SegmentID { return l.Live[l.IndexOf(s)].ID }

// IndexOf is where in Live the segment stands that owns a slot. The layout must be
// valid.
func (l Layout) IndexOf(s Slot) int {
	i, _ := slices.BinarySearchFunc(l.Live, s, func(live Live, s Slot) int {
		switch {
		case live.Contains(s):
			return 0
		case live.Hi <= uint32(s):
			return -1
		}
		return 1
	})
	return i
}

// Validate checks the invariant of every layout: its live ranges, in order,
// cover the key space exactly once, and no id appears twice; and of an intent,
// that the children cover exactly their parents.
func (l Layout) Validate() error {
	if len(l.Live) == 0 {
		return errors.New("layout has no live segment")
	}
	seen := map[SegmentID]bool{}
	next := uint32(0)
	for _, s := range l.Live {
		switch {
		case !s.Valid():
			return fmt.Errorf("segment %s has the range %s", s.ID, s.Range)
		case s.Lo != next:
			return fmt.Errorf("segment %s starts at slot %d, want %d", s.ID, s.Lo, next)
		case seen[s.ID]:
			return fmt.Errorf("segment %s is listed twice", s.ID)
		}
		seen[s.ID] = true
		next = s.Hi
	}
	if next != Slots {
		return fmt.Errorf("live segments end at slot %d, want %d", next, Slots)
	}
	if l.Pending {
		return l.validateIntent()
	}
	return nil
}

// Divide cuts the key space into n ranges of nearly equal size, 1 <= n <= Slots.
func Divide(n int) []Range {
	ranges := make([]Range, n)
	for i := range ranges {
		ranges[i] = Range{uint32(i * Slots / n), uint32((i + 1) * Slots / n)}
	}
	return ranges
}
