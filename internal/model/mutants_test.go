package model

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/mutant"
)

// Variants that only the model has. Those of package mutant are the same ones
// that the simulation of the real code is tried with.
const (
	// silenceIsSuccess takes a create without an answer for done, without reading
	// it back (rule 1).
	silenceIsSuccess mutant.Variant = "silence-is-success"
	// startAtPosition reads a lane after the highest position that is in any
	// segment, as if everything below were committed (rule 12).
	startAtPosition mutant.Variant = "start-at-position"
	// flushesAtOnce creates entries of the next flush before the one before is
	// settled; each message is a flush (rule 13).
	flushesAtOnce mutant.Variant = "flushes-at-once"
	// intentAborted lets a helper go back to the layout before the edit (rule 25).
	intentAborted mutant.Variant = "intent-aborted"
	// childrenFirst makes the children before the parents are sealed (rule 25).
	childrenFirst mutant.Variant = "children-first"
	// childrenEarly appends to the children before the edit is completed (rule 27).
	childrenEarly mutant.Variant = "children-early"
)

// highest is the highest position of a lane in any segment.
func (s *state) highest(lane uint8) (position uint8) {
	for _, g := range s.segments {
		position = max(position, g.positions[lane])
	}
	return position
}

// sendOn is what a worker with RegroupAffected does with the records that met a
// seal, as soon as the layout tells where to.
func (m *model) sendOn(s state, i int, emit emit[state]) {
	w := &s.workers[i]
	part, live := w.part(), s.tail().live
	if live.has(part.segment) {
		return
	}
	w.settled()
	w.view = live
	w.add(m.divide(&s, part.records, live))
	emit(s, "worker %d meets the seal of segment %s, and sends just %s on, to %s", i+1, part.segment, part.records, live)
}

// divideEach is how a worker with flushesAtOnce groups: every record by itself.
func (m *model) divideEach(s *state, set records, live ids) [maxGroups]group {
	var w worker
	for r := range m.records {
		if set.has(r) {
			w.add(m.divide(s, 1<<r, live))
		}
	}
	return w.parts
}

// add adds groups to those that are left.
func (w *worker) add(parts [maxGroups]group) {
	for _, part := range parts {
		for j := range w.parts {
			if w.parts[j].records == 0 {
				w.parts[j] = part
				break
			}
		}
	}
}

// limit is more states than any configuration has.
const limit = 60_000_000

// Edits that the configurations make.
var (
	splitThenMerge = []edit{{split, 2}, {merge, 2}}
	mergeHalves    = []edit{{merge, 2}}
	rollTwice      = []edit{{roll, 0}, {roll, 0}}
	chain          = []edit{{split, 2}, {roll, 2}, {merge, 2}}
)

// explained explores a configuration. If something is wrong, it does so again with
// processes told apart, so that each keeps its name throughout the trace.
func explained(m *model) result {
	r := explore[state](m, limit)
	if r.wrong != "" {
		m.named = true
		r = explore[state](m, limit)
	}
	return r
}

// TestMutants breaks one rule at a time, in the smallest configuration that shows
// it, where the correct protocol holds.
func TestMutants(t *testing.T) {
	one := []uint8{0} // lane of one worker
	cases := []struct {
		variant mutant.Variant
		wrong   string
		model
	}{
		{mutant.FloorFromOneParent, "twice", model{
			lanes: [][]message{{{2}}}, workers: one, helpers: 1, cuts: []uint8{2}, edits: mergeHalves}},
		{mutant.FloorIsOneNumber, "r1 is in no segment", model{
			lanes: [][]message{{{0}, {2}}}, workers: one, helpers: 1, cuts: []uint8{2}, edits: mergeHalves}},
		{mutant.FloorsNotComposed, "twice", model{
			lanes: [][]message{{{0}}}, workers: one, helpers: 1, edits: rollTwice}},
		{mutant.CompletionAtNextFree, "segment B is live and sealed", model{
			lanes: [][]message{{{0}}}, workers: one, helpers: 2, edits: rollTwice}},
		{mutant.RegroupAffected, "r1 is in no segment", model{
			lanes: [][]message{{{2}, {0}}}, workers: one, helpers: 1, cuts: []uint8{2}, edits: mergeHalves}},
		// What the second worker should see is left out of a seal, or of the entry
		// of another lane's worker.
		{mutant.CheckpointBeforeTail, "twice", model{
			lanes: [][]message{{{0}}}, workers: []uint8{0, 0}, helpers: 1, edits: rollTwice[:1]}},
		{mutant.CheckpointBeforeTail, "twice", model{
			lanes: [][]message{{{0}}, {{0}}}, workers: []uint8{0, 0, 1}}},
		{mutant.CheckpointFirst, "r1 is in no segment", model{
			lanes: [][]message{{{0}}}, workers: one}},
		{mutant.StalePosition, "twice", model{
			lanes: [][]message{{{0}}}, workers: []uint8{0, 0}}},
		{silenceIsSuccess, "r1 is in no segment", model{
			lanes: [][]message{{{0}}}, workers: one, lossy: true}},
		{startAtPosition, "r1 is in no segment", model{
			lanes: [][]message{{{0}, {2}}}, workers: one, cuts: []uint8{2}}},
		{flushesAtOnce, "r1 is in no segment", model{
			lanes: [][]message{{{0}, {0}}}, workers: one}},
		{intentAborted, "live and sealed", model{
			lanes: [][]message{{{0}}}, workers: one, helpers: 1, edits: splitThenMerge}},
		{childrenFirst, "twice", model{
			lanes: [][]message{{{0}}}, workers: one, helpers: 1, edits: splitThenMerge}},
		{childrenEarly, "one of its ancestors can still take some", model{
			lanes: [][]message{{{0}}}, workers: one, helpers: 1, edits: splitThenMerge}},
	}
	tried := map[mutant.Variant]bool{}
	for _, c := range cases {
		tried[c.variant] = true
		t.Run(string(c.variant), func(t *testing.T) {
			if r := explained(&c.model); !r.complete {
				t.Fatalf("the correct protocol: %v", r)
			}
			c.named, c.mutant.On = true, c.variant
			r := explained(&c.model)
			if !strings.Contains(r.wrong, c.wrong) {
				t.Fatalf("after %d states, found %q, want %q", r.states, r.wrong, c.wrong)
			}
			t.Logf("%v\nwhere\n%v", r, &c.model)
		})
	}
	for _, v := range mutant.Edits {
		if !tried[v] {
			t.Errorf("variant %s is not tried", v)
		}
	}
}
