package model

import "github.com/spillway-mq/spillway/internal/mutant"

// edit is what a planner wants to do to the layout in force.
type edit struct {
	kind kind
	at   uint8 // the slot where to split or to merge, or where the segment to roll begins
}

type kind uint8

const (
	split kind = iota
	merge
	roll
)

// helper is a planner or a worker, in so far as it begins edits or finishes
// somebody's. All that it remembers is the number of the layout that it has read
// last, maybe long ago. What is done of an edit is on the filer and stays done,
// so that looking is part of each step. A helper that crashes and starts again
// reads the layout, which it can do at any time.
type helper struct{ n uint8 }

// help makes each step that a helper can make: if it knows of an intent, it goes
// on with that edit, else it begins one.
func (m *model) help(s state, i int, emit emit[state]) {
	n := s.helpers[i].n
	if s.layouts[n].pending {
		m.finish(s, i, emit)
	} else {
		m.begin(s, i, emit)
	}
	if n != s.epochs-1 {
		s.helpers[i].n = s.epochs - 1
		emit(s, "helper %d reads layout %d", i+1, s.epochs-1)
	}
}

// begin appends the intent of the edit that is next, at the number after the
// layout that it was planned from. Who loses that number plans again (rule 25);
// see addLayout.
func (m *model) begin(s state, i int, emit emit[state]) {
	parents, children := m.plan(&s)
	if parents == 0 {
		return
	}
	intent := layout{live: s.tail().live, pending: true, parents: parents}
	for _, child := range children {
		name := s.newID(intent.children)
		intent.children |= 1 << name
		s.segments[name] = child
	}
	s.addLayout(intent)
	s.helpers[i].n = s.epochs - 1
	emit(s, "helper %d appends the intent, layout %d: %s to become %s", i+1, s.epochs-1, parents, intent.children)
}

// plan applies the next edit of the list to the layout in force: it gives the
// segments that it takes away, and the ranges of those that come instead.
func (m *model) plan(s *state) (parents ids, children []segment) {
	begun := 0
	for _, l := range s.layouts[:s.epochs] {
		if l.pending {
			begun++
		}
	}
	if begun == len(m.edits) {
		return 0, nil
	}
	e, live := m.edits[begun], s.tail().live
	name := s.owner(live, e.at)
	g := s.segments[name]
	switch {
	case e.kind == roll && g.lo == e.at:
		return 1 << name, []segment{{lo: g.lo, hi: g.hi}}
	case e.kind == split && g.lo < e.at:
		return 1 << name, []segment{{lo: g.lo, hi: e.at}, {lo: e.at, hi: g.hi}}
	case e.kind == merge && g.lo == e.at:
		left := s.owner(live, e.at-1)
		return 1<<left | 1<<name, []segment{{lo: s.segments[left].lo, hi: g.hi}}
	}
	return 0, nil
}

// finish makes the next thing that an intent asks for: the parents' seals, in any
// order; then the children; then the completion, at exactly the next number,
// where "exists" means done (rule 25). All of it follows from the intent and the
// seals alone (rule 26).
func (m *model) finish(s state, i int, emit emit[state]) {
	n := s.helpers[i].n
	intent := s.layouts[n]
	if m.mutant.Has(intentAborted) && n == s.epochs-1 {
		aborted := s
		aborted.addLayout(layout{live: intent.live})
		aborted.helpers[i].n = s.epochs
		emit(aborted, "helper %d aborts the edit of layout %d", i+1, n)
	}
	sealed := true
	for p := range id(maxIDs) {
		if intent.parents.has(p) && !s.segments[p].sealed {
			sealed = false
			next := s
			m.seal(&next, p)
			emit(next, "helper %d seals segment %s", i+1, p)
		}
	}
	if !sealed && !m.mutant.Has(childrenFirst) {
		return
	}
	for c := range id(maxIDs) {
		if intent.children.has(c) && !s.segments[c].made {
			s.segments[c].made = true
			s.segments[c].floors = m.inherit(&s, intent.parents, c)
			emit(s, "helper %d makes segment %s", i+1, c)
			return
		}
	}
	if sealed && (s.epochs == n+1 || m.mutant.Has(mutant.CompletionAtNextFree)) {
		s.addLayout(layout{live: intent.live&^intent.parents | intent.children, parents: intent.parents, children: intent.children})
		s.helpers[i].n = s.epochs - 1
		emit(s, "helper %d completes the edit of layout %d, by layout %d", i+1, n, s.epochs-1)
	}
}

// addLayout appends an entry to the layout log. A helper that was about to append
// an intent at the same number can only lose it; that it then reads the layout is
// part of this step.
func (s *state) addLayout(l layout) {
	s.layouts[s.epochs] = l
	s.epochs++
	for i, h := range s.helpers {
		if !s.layouts[h.n].pending {
			s.helpers[i].n = s.epochs - 1
		}
	}
}

// seal ends a segment. Reading the tail and creating the seal is one step here: if
// an entry comes between them, the create loses, and nothing has happened. The
// seal says for each slot how far each lane is taken in, in this segment or its
// ancestors (rule 11), and leaves out what the checkpoint covers (rule 10).
func (m *model) seal(s *state, name id) {
	g := &s.segments[name]
	for lane := range m.lanes {
		for slot := g.lo; slot < g.hi; slot++ {
			position := g.positions[lane]
			if !m.mutant.Has(mutant.FloorsNotComposed) {
				position = max(position, g.floors[lane][slot])
			}
			if position > s.checkpoints[lane] {
				g.seal[lane][slot] = position
			}
		}
	}
	g.sealed = true
	g.entries++
	s.forgetLate(name)
}

// inherit is the floors of a child: for each slot, what the seal of the parent
// with that slot says (rule 11).
func (m *model) inherit(s *state, parents ids, child id) (floors [maxLanes][slots]uint8) {
	c := &s.segments[child]
	for p := range id(maxIDs) {
		if !parents.has(p) {
			continue
		}
		for lane, seal := range s.segments[p].seal {
			for slot := c.lo; slot < c.hi; slot++ {
				floor := seal[slot]
				if m.mutant.Has(mutant.FloorIsOneNumber) {
					floor = max(seal[0], seal[1], seal[2], seal[3])
				}
				floors[lane][slot] = max(floors[lane][slot], floor)
			}
		}
		if m.mutant.Has(mutant.FloorFromOneParent) {
			break
		}
	}
	return floors
}

// newID is an id that no layout has named, and none of the given.
func (s *state) newID(taken ids) id {
	for _, l := range s.layouts {
		taken |= l.children
	}
	for i := range id(maxIDs) {
		if !taken.has(i) {
			return i
		}
	}
	panic("the edits need more segments than maxIDs")
}
