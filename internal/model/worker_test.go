package model

import "github.com/spillway-mq/spillway/internal/mutant"

// worker is what an ingest worker remembers. What it does not need is zero, so
// that states that differ in nothing else are equal.
type worker struct {
	phase phase
	from  uint8            // the checkpoint that it reads its lane from
	to    uint8            // the end of the flush
	view  ids              // the live segments by which the flush is grouped
	parts [maxGroups]group // of the flush, not settled yet
	met   bool             // one of them has met a seal

	at       uint8   // which of the parts it appends
	n        uint8   // the number to create: it knows the tail before it
	position uint8   // of the lane, in that tail
	take     records // those above the effective position
}

// group is the records of a flush that go to one segment.
type group struct {
	records records // empty: no group
	segment id
}

type phase uint8

const (
	fresh    phase = iota // it knows nothing: started, crashed, or done with a flush
	settling              // parts: it appends any of them next
	looking               // at, n, position: it has read the tail
	creating              // at, n, take: it creates the entry next
)

// work makes each step that a worker can make. Before any of them it can crash.
// One that is slow, or has lost its lease, is one that makes no step for long.
func (m *model) work(s state, i int, emit emit[state]) {
	switch s.workers[i].phase {
	case fresh:
		m.cut(s, i, emit)
	case settling:
		m.settle(s, i, emit)
	case looking:
		m.decide(s, i, emit)
	case creating:
		m.create(s, i, emit)
	}
	if s.workers[i].phase != fresh {
		s.workers[i] = worker{}
		emit(s, "worker %d crashes, and starts again", i+1)
	}
}

// cut reads the lane after the checkpoint, every message in order (rule 12), and
// makes a flush of the next ones: of any number of whole messages (rule 15). It
// groups them by the layout in force. (The code goes on with the checkpoint and
// the layout that it knows. That they are old it finds out as it does here when
// they change right after this step: from a compare-and-swap that fails, and from
// a seal.)
func (m *model) cut(s state, i int, emit emit[state]) {
	lane := m.workers[i]
	from, view := s.checkpoints[lane], s.tail().live
	if intent := s.tail(); intent.pending && m.mutant.Has(childrenEarly) {
		view = intent.live&^intent.parents | intent.children
	}
	for _, to := range m.ends[lane] {
		if to <= from {
			continue
		}
		next, flush := s, m.between(lane, from, to)
		if m.mutant.Has(startAtPosition) {
			flush &^= m.between(lane, 0, s.highest(lane))
		}
		next.workers[i] = worker{phase: settling, from: from, to: to, view: view}
		next.workers[i].parts = m.divide(&s, flush, view)
		if m.mutant.Has(flushesAtOnce) {
			next.workers[i].parts = m.divideEach(&s, flush, view)
		}
		if m.mutant.Has(mutant.CheckpointFirst) {
			next.checkpoints[lane] = to
		}
		emit(next, "worker %d reads its lane from checkpoint %d, and flushes %s to %s", i+1, from, flush, view)
	}
}

// divide groups records by segment.
func (m *model) divide(s *state, set records, live ids) (parts [maxGroups]group) {
	var bySegment [maxIDs]records
	for r, record := range m.records {
		if set.has(r) {
			bySegment[s.owner(live, record.slot)] |= 1 << r
		}
	}
	n := 0
	for i, set := range bySegment {
		if set != 0 {
			parts[n] = group{set, id(i)}
			n++
		}
	}
	return parts
}

// settle turns to any of the groups that are left; the code goes on with several
// at a time. If none is left, every record of the flush is settled. Then, if a
// seal was met, all of them are grouped anew (rule 14), else the checkpoint moves
// (rule 15). Until it has, nothing of the next flush is created (rule 13).
func (m *model) settle(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	switch {
	case w.parts != [maxGroups]group{}:
		for j, part := range w.parts {
			if part.records != 0 {
				next := s
				next.workers[i].at = uint8(j)
				m.look(next, i, emit)
			}
		}
	case w.met:
		m.regroup(s, i, emit)
	default:
		m.advance(s, i, emit)
	}
}

// look finds out the first thing that an append has to know, the tail of the
// segment.
func (m *model) look(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	name := w.part().segment
	g := &s.segments[name]
	if g.sealed {
		m.meetSeal(s, i, emit)
		return
	}
	w.phase, w.n, w.position = looking, g.entries, g.positions[m.workers[i]]
	emit(s, "worker %d reads the tail of segment %s: the next number is %d, the position %d", i+1, name, w.n, w.position)
}

// decide finds out the second, the checkpoint, which must be read after the tail,
// since the tail may leave out what it covers. It selects the records above the
// effective position: the highest of the segment's position, the floor of the
// record's slot, and the checkpoint (rule 10).
func (m *model) decide(s state, i int, emit emit[state]) {
	w, lane := &s.workers[i], m.workers[i]
	part, position, checkpoint := w.part(), w.position, s.checkpoints[lane]
	g := &s.segments[part.segment]
	if m.mutant.Has(mutant.CheckpointBeforeTail) {
		checkpoint = w.from
	}
	w.position = 0
	for r, record := range m.records {
		if part.records.has(r) && record.position > max(position, g.floors[lane][record.slot], checkpoint) {
			w.take |= 1 << r
		}
	}
	if w.take == 0 {
		w.settled()
		emit(s, "worker %d needs no append to segment %s: position %d, checkpoint %d", i+1, part.segment, position, checkpoint)
		return
	}
	w.phase = creating
	emit(s, "worker %d is to append %s to segment %s: position %d, checkpoint %d", i+1, w.take, part.segment, position, checkpoint)
}

// create makes entry n if that number is free; else everything is computed again
// from what is there now (rules 1 and 2).
//
// If there is no answer, the worker reads entry n back, which tells it the same
// later. Or it crashes before it has; then either the create has happened, or it
// happens whenever it likes: that one is kept as the late create. Late moves of a
// checkpoint and late layouts are those of a slow worker and a slow helper.
func (m *model) create(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	entry := create{w.part().segment, w.n, w.take, m.workers[i]}
	if g := &s.segments[entry.segment]; g.entries != entry.n {
		w.toSettling()
		if m.mutant.Has(mutant.StalePosition) && !g.sealed {
			w.phase, w.n, w.take = creating, g.entries, entry.records
		}
		emit(s, "worker %d loses %s", i+1, entry)
		return
	}
	won := s
	m.append(&won, entry)
	won.workers[i].settled()
	emit(won, "worker %d wins %s", i+1, entry)
	if m.lossy && s.late == (create{}) {
		s.late = entry
		if m.mutant.Has(silenceIsSuccess) {
			w.settled()
			emit(s, "worker %d gets no answer about %s, and takes it for done", i+1, entry)
			return
		}
		*w = worker{}
		emit(s, "worker %d gets no answer about %s, crashes, and starts again", i+1, entry)
	}
}

// happenLate lets the late create happen.
func (m *model) happenLate(s state, emit emit[state]) {
	if late := s.late; late != (create{}) {
		m.append(&s, late)
		emit(s, "the late create of %s happens", late)
	}
}

// append is what the filer does with a create whose number is free. The new
// tail has the position of the last record, and leaves out the positions of
// other lanes that their checkpoints cover (rule 10), all of them: that is the
// least that it may say. A late create of the same number has lost by this.
func (m *model) append(s *state, c create) {
	m.judge(s, c)
	g := &s.segments[c.segment]
	g.entries++
	g.records |= c.records
	for lane := range m.lanes {
		if g.positions[lane] <= s.checkpoints[lane] {
			g.positions[lane] = 0
		}
	}
	for r, record := range m.records {
		if c.records.has(r) {
			g.positions[c.lane] = record.position
		}
	}
	s.forgetLate(c.segment)
}

func (s *state) forgetLate(name id) {
	if s.late.segment == name && s.late.n < s.segments[name].entries {
		s.late = create{}
	}
}

// meetSeal settles a group whose segment takes nothing any more.
func (m *model) meetSeal(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	part := w.part()
	if m.mutant.Has(mutant.RegroupAffected) {
		m.sendOn(s, i, emit)
		return
	}
	w.settled()
	w.met = true
	emit(s, "worker %d meets the seal of segment %s", i+1, part.segment)
}

// regroup groups all records of the flush by the layout of now (rule 14). While
// the edit is pending the old one holds, and the worker waits; if it helps, it is
// a helper.
func (m *model) regroup(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	if w.view == s.tail().live {
		return
	}
	w.view, w.met = s.tail().live, false
	flush := m.between(m.workers[i], w.from, w.to)
	w.parts = m.divide(&s, flush, w.view)
	emit(s, "worker %d reads the layout again, and flushes %s to %s", i+1, flush, w.view)
}

// advance moves the checkpoint by compare-and-swap (rule 15).
func (m *model) advance(s state, i int, emit emit[state]) {
	w, lane := &s.workers[i], m.workers[i]
	from, to := w.from, w.to
	*w = worker{}
	if s.checkpoints[lane] != from {
		emit(s, "worker %d does not move the checkpoint, since somebody else has, and starts again", i+1)
		return
	}
	s.checkpoints[lane] = to
	emit(s, "worker %d moves the checkpoint to %d", i+1, to)
}

func (w *worker) part() group { return w.parts[w.at] }

// settled ends the work on a group.
func (w *worker) settled() {
	w.parts[w.at] = group{}
	w.toSettling()
}

// toSettling forgets what it knows for an append.
func (w *worker) toSettling() {
	w.phase, w.at, w.n, w.position, w.take = settling, 0, 0, 0, 0
}
