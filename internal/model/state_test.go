package model

import (
	"fmt"
	"hash/maphash"
	"strings"

	"github.com/spillway-mq/spillway/internal/mutant"
)

// The sizes of a state's arrays. It has no pointers, so that it is copied,
// compared and hashed as it stands.
const (
	slots      = 4
	maxLanes   = 2
	maxRecords = 8 // in all lanes: a bit each
	maxIDs     = 5
	maxLayouts = 8
	maxWorkers = 3
	maxHelpers = 2
	maxGroups  = 4
)

// model is a configuration: what the lanes hold, who works, which edits are
// planned, and which rule is broken, if any.
type model struct {
	lanes   [][]message
	workers []uint8 // the lane of each; two on one lane, a zombie pair, come first
	helpers int
	cuts    []uint8 // where the first segments begin, besides slot 0
	edits   []edit  // in the order in which they are planned
	lossy   bool    // a create can happen after its caller has given up, one at a time
	named   bool    // tell equal processes apart; for traces, since it doubles the states
	mutant  mutant.Set

	// Set by initial:
	records []record
	first   [maxLanes]int     // the index of each lane's first record
	ends    [maxLanes][]uint8 // the positions at which a message ends
}

// message is one message of a lane: the slots of its rows.
type message []uint8

// record is a row of a message. Its position is its number in the lane, counted
// over the rows of all messages, from 1; it orders as (sequence, row) does (rule
// 8). Position 0 means that nothing is taken in.
type record struct{ lane, position, slot uint8 }

type (
	records uint8 // a set of records, by index
	ids     uint8 // a set of segments
	id      uint8 // a segment
)

// state is everything there is, at one moment.
type state struct {
	// On the filer:
	checkpoints [maxLanes]uint8
	layouts     [maxLayouts]layout // the layout log
	epochs      uint8              // number of its entries
	segments    [maxIDs]segment

	// What processes remember:
	workers [maxWorkers]worker
	helpers [maxHelpers]helper

	late  create // a create that its caller has given up on, and that may still happen
	fault fault  // what was wrong with the step to here
}

// layout is an entry of the layout log: a layout, or an intent that waits for
// its completion.
type layout struct {
	live     ids // in force; of an intent, still those before the edit (rule 27)
	pending  bool
	parents  ids
	children ids
}

// segment is a segment's description and its log: what the tail says, and what
// all entries hold.
type segment struct {
	lo, hi uint8                  // from the intent
	made   bool                   // segment.json exists
	floors [maxLanes][slots]uint8 // a list of ranges, written out per slot (rule 11)

	entries   uint8 // the number of the next one
	records   records
	positions [maxLanes]uint8 // cumulative; those left out are zero (rule 10)
	sealed    bool
	seal      [maxLanes][slots]uint8 // the floors that the seal carries (rule 11)
}

// create is an entry that somebody wants to make: number n of a segment's log.
type create struct {
	segment id
	n       uint8
	records records // of one lane (rule 9); empty: no create
	lane    uint8
}

// initial numbers the records and makes the first layout.
func (m *model) initial() state {
	m.records = nil
	for lane, messages := range m.lanes {
		m.first[lane], m.ends[lane] = len(m.records), nil
		position := uint8(0)
		for _, rows := range messages {
			for _, slot := range rows {
				position++
				m.records = append(m.records, record{uint8(lane), position, slot})
			}
			m.ends[lane] = append(m.ends[lane], position)
		}
	}
	var s state
	first := layout{}
	for i, lo := range append([]uint8{0}, m.cuts...) {
		s.segments[i] = segment{lo: lo, hi: slots, made: true}
		if i > 0 {
			s.segments[i-1].hi = lo
		}
		first.children |= 1 << i
	}
	first.live = first.children
	s.addLayout(first)
	return s
}

// next lets every process make each step that it can make.
func (m *model) next(s state, emit emit[state]) {
	out := emit
	if !m.named {
		out = func(next state, what string, args ...any) { emit(m.unnamed(next), what, args...) }
	}
	for i := range m.workers {
		m.work(s, i, out)
	}
	for i := range m.helpers {
		m.help(s, i, out)
	}
	m.happenLate(s, out)
}

var order = maphash.MakeSeed()

// unnamed puts processes that differ in their number alone into an order that
// depends on what they remember, so that two states in which they have swapped
// roles are one.
func (m *model) unnamed(s state) state {
	w, h := &s.workers, &s.helpers
	if len(m.workers) > 1 && m.workers[0] == m.workers[1] && maphash.Comparable(order, w[0]) > maphash.Comparable(order, w[1]) {
		w[0], w[1] = w[1], w[0]
	}
	if m.helpers == 2 && h[0].n > h[1].n {
		h[0], h[1] = h[1], h[0]
	}
	return s
}

// tail is the last entry of the layout log. Its live segments are in force.
func (s *state) tail() layout { return s.layouts[s.epochs-1] }

// owner is the one of some segments that has a slot. A layout in force has one
// for every slot; that is an invariant.
func (s *state) owner(live ids, slot uint8) id {
	for i := range id(maxIDs) {
		if live.has(i) && s.segments[i].has(slot) {
			return i
		}
	}
	panic("a layout does not cover a slot")
}

// committed is the records that are in some segment.
func (s *state) committed() records {
	var all records
	for i := range s.segments {
		all |= s.segments[i].records
	}
	return all
}

// between is the records of a lane after one position and up to another.
func (m *model) between(lane, after, to uint8) records {
	return records(1<<(m.first[lane]+int(to))) - records(1<<(m.first[lane]+int(after)))
}

// end is a lane's last position.
func (m *model) end(lane uint8) uint8 { return m.ends[lane][len(m.ends[lane])-1] }

func (g *segment) has(slot uint8) bool { return g.lo <= slot && slot < g.hi }
func (set ids) has(i id) bool          { return set&(1<<i) != 0 }
func (set records) has(r int) bool     { return set&(1<<r) != 0 }

// Words for traces.

func (i id) String() string { return string(rune('A' + i)) }

func (set ids) String() string {
	var names []string
	for i := range id(maxIDs) {
		if set.has(i) {
			names = append(names, i.String())
		}
	}
	return strings.Join(names, "+")
}

func (set records) String() string {
	var names []string
	for r := range maxRecords {
		if set.has(r) {
			names = append(names, fmt.Sprintf("r%d", r+1))
		}
	}
	return strings.Join(names, " ")
}

func (c create) String() string {
	return fmt.Sprintf("entry %d of segment %s, with %s", c.n, c.segment, c.records)
}

func (e edit) String() string {
	return fmt.Sprintf("%s at slot %d", [...]string{split: "split", merge: "merge", roll: "roll"}[e.kind], e.at)
}

// String says what the names in a trace stand for.
func (m *model) String() string {
	var b strings.Builder
	for i, r := range m.records {
		fmt.Fprintf(&b, "r%d: lane %d, position %d, slot %d\n", i+1, r.lane+1, r.position, r.slot)
	}
	for i, lane := range m.workers {
		fmt.Fprintf(&b, "worker %d: lane %d\n", i+1, lane+1)
	}
	s := m.initial()
	for i := range id(len(m.cuts) + 1) {
		fmt.Fprintf(&b, "segment %s: slots %d to %d\n", i, s.segments[i].lo, s.segments[i].hi-1)
	}
	fmt.Fprintf(&b, "edits: %v", m.edits)
	return b.String()
}
