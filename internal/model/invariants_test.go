package model

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// fault is what was wrong with an entry. It stays in the state that the entry led
// to.
type fault uint8

const (
	none fault = iota
	twice
	notItsSlot
	outOfOrder
	ancestorOpen
)

var faults = [...]string{
	twice:        "a record is in the segments twice",
	notItsSlot:   "a record is in a segment that does not have its slot",
	outOfOrder:   "a record is behind a later one of its lane and slot",
	ancestorOpen: "a segment takes records while one of its ancestors can still take some",
}

// judge looks at an entry that is being made: each record at most once over all
// segments, in a segment that has its slot, and in the order of its lane and slot.
// Since all ancestors are sealed before a segment takes anything, the order in
// time is the order along the lineage too.
func (m *model) judge(s *state, c create) {
	committed := s.committed()
	if committed&c.records != 0 {
		s.fault = twice
	}
	for r, record := range m.records {
		if !c.records.has(r) {
			continue
		}
		if !s.segments[c.segment].has(record.slot) {
			s.fault = notItsSlot
		}
		for later, other := range m.records {
			if committed.has(later) && other.lane == record.lane && other.slot == record.slot && other.position > record.position {
				s.fault = outOfOrder
			}
		}
	}
	lineage := ids(1) << c.segment
	for _, l := range slices.Backward(s.layouts[:s.epochs]) {
		if l.children&lineage != 0 {
			lineage |= l.parents
		}
	}
	for p := range id(maxIDs) {
		if p != c.segment && lineage.has(p) && !s.segments[p].sealed {
			s.fault = ancestorOpen
		}
	}
}

// wrong checks the invariants. Where no worker is at anything, it also looks
// whether fresh processes could do the rest.
func (m *model) wrong(s state) string {
	broken := m.broken(&s)
	if broken == "" && s.workers == [maxWorkers]worker{} && s.late == (create{}) {
		broken = m.stuck(s)
	}
	return broken
}

func (m *model) broken(s *state) string {
	if s.fault != none {
		return faults[s.fault]
	}
	now := s.tail()
	if times := s.cover(now.live); times != [slots]uint8{1, 1, 1, 1} {
		return fmt.Sprintf("layout %d covers the slots %v times, by %s", s.epochs-1, times, now.live)
	}
	if now.parents != 0 && s.cover(now.children) != s.cover(now.parents) {
		return fmt.Sprintf("layout %d: the children %s do not cover just what their parents %s do", s.epochs-1, now.children, now.parents)
	}
	for i := range id(maxIDs) {
		if now.live.has(i) && s.segments[i].sealed && !now.pending {
			return fmt.Sprintf("segment %s is live and sealed, and no edit is pending", i)
		}
	}
	for lane := range m.lanes {
		if lost := m.between(uint8(lane), 0, s.checkpoints[lane]) &^ s.committed(); lost != 0 {
			return fmt.Sprintf("the checkpoint of lane %d is %d, and %s is in no segment", lane+1, s.checkpoints[lane], lost)
		}
	}
	return ""
}

// cover counts how many of some segments have each slot.
func (s *state) cover(set ids) (times [slots]uint8) {
	for i := range id(maxIDs) {
		for slot := s.segments[i].lo; set.has(i) && slot < s.segments[i].hi; slot++ {
			times[slot]++
		}
	}
	return times
}

// stuck has a fresh helper finish the edit that is pending, and a fresh worker for
// each lane commit all the rest, alone. With all checkpoints at the end, the
// invariants say that every record is in the segments once. A broken one is left
// to the search, which takes the same steps.
func (m *model) stuck(s state) string {
	s.helpers[0].n = s.epochs - 1
	for s.tail().pending && m.broken(&s) == "" {
		next, ok := first(func(emit emit[state]) { m.help(s, 0, emit) })
		if !ok {
			return fmt.Sprintf("a fresh helper cannot finish the edit of layout %d", s.epochs-1)
		}
		s = next
	}
	for i, lane := range m.workers {
		for s.checkpoints[lane] != m.end(lane) && m.broken(&s) == "" {
			next, ok := first(func(emit emit[state]) { m.work(s, i, emit) })
			if !ok || next.workers[i].phase == fresh && next.checkpoints == s.checkpoints {
				return fmt.Sprintf("a fresh worker, alone, gets stuck at checkpoint %d of lane %d", s.checkpoints[lane], lane+1)
			}
			s = next
		}
	}
	return ""
}

// first is the first of the steps that there are, which is one that gets on.
func first(steps func(emit[state])) (next state, ok bool) {
	steps(func(s state, _ string, _ ...any) {
		if !ok {
			next, ok = s, true
		}
	})
	return next, ok
}

// TestInvariants breaks each invariant by hand, in a state that is otherwise right.
func TestInvariants(t *testing.T) {
	entry := func(segment id, set records) func(m *model, s *state) {
		return func(m *model, s *state) {
			m.append(s, create{segment: segment, n: s.segments[segment].entries, records: set})
		}
	}
	intend := func(m *model, s *state) {
		m.begin(*s, 0, func(next state, _ string, _ ...any) { *s = next })
	}
	type change = func(m *model, s *state)
	for want, changes := range map[string][]change{
		"":                       {entry(0, 1), entry(0, 2), entry(1, 4), intend},
		faults[twice]:            {entry(0, 1), entry(0, 1|2)},
		faults[notItsSlot]:       {entry(1, 1)},
		faults[outOfOrder]:       {entry(0, 2), entry(0, 1)},
		faults[ancestorOpen]:     {intend, entry(2, 1)},
		"layout 0 covers":        {func(_ *model, s *state) { s.layouts[0].live = 1 }},
		"do not cover just what": {intend, func(_ *model, s *state) { s.layouts[1].children = 1 }},
		"segment A is live and sealed, and no edit is pending": {func(m *model, s *state) { m.seal(s, 0) }},
		"the checkpoint of lane 1 is 2, and r2 is in no":       {entry(0, 1), func(_ *model, s *state) { s.checkpoints[0] = 2 }},
	} {
		m := &model{lanes: [][]message{{{0}, {0}, {2}}}, workers: []uint8{0}, helpers: 1, cuts: []uint8{2}, edits: mergeHalves}
		s := m.initial()
		for _, change := range changes {
			change(m, &s)
		}
		if got := m.wrong(s); got != want && (want == "" || !strings.Contains(got, want)) {
			t.Errorf("found %q, want %q", got, want)
		}
	}
}
