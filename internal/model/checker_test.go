package model

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"testing"
)

// emit receives one state that can follow, and what happens on the way there, as
// for fmt.Sprintf. The words are put together only for a trace.
type emit[S comparable] func(next S, what string, args ...any)

// system is what the checker explores.
type system[S comparable] interface {
	initial() S
	// next gives every state that can follow s, the same ones whenever it is
	// called.
	next(s S, emit emit[S])
	// wrong says which invariant s breaks, or "".
	wrong(s S) string
}

// result is what a search found.
type result struct {
	states   int
	steps    map[string]int // how often each kind of step was made
	depth    int            // steps to the state that is farthest away
	complete bool           // no state was left out
	wrong    string         // the invariant that is broken; "" if there is none
	trace    []string       // a shortest way there, in words
}

func (r result) String() string {
	return fmt.Sprintf("%s\nafter these %d steps:\n  %s", r.wrong, len(r.trace), strings.Join(r.trace, "\n  "))
}

// search is a breadth-first search under way. Of a visited state it keeps a hash
// of 64 bits and that of the state before it. That two of 10 million states have
// the same one, so that the second is passed over, has a chance of 1 in 400,000,
// and the hashes are others in every run.
type search[S comparable] struct {
	sys    system[S]
	result result
	seed   maphash.Seed
	before map[uint64]uint64 // visited state → the one that it was reached from
	end    uint64            // the state that is wrong
}

// explore visits every state that can be reached, nearest first, until one is
// wrong or more than limit have been seen.
func explore[S comparable](sys system[S], limit int) result {
	s := &search[S]{sys: sys, seed: maphash.MakeSeed(), before: map[uint64]uint64{}}
	start := sys.initial()
	s.before[s.hash(start)] = 0
	s.result = result{steps: map[string]int{}, wrong: sys.wrong(start)}
	for front := []S{start}; len(front) > 0; s.result.depth++ {
		further := make([]S, 0, len(front)+len(front)/8)
		for _, state := range front {
			if s.result.wrong != "" || len(s.before) > limit {
				return s.finish()
			}
			further = s.visit(state, further)
		}
		front = further
	}
	s.result.depth--
	s.result.complete = s.result.wrong == ""
	return s.finish()
}

func (s *search[S]) hash(state S) uint64 { return maphash.Comparable(s.seed, state) }

// visit adds to further those successors of a state that are new.
func (s *search[S]) visit(state S, further []S) []S {
	from := s.hash(state)
	s.sys.next(state, func(next S, what string, _ ...any) {
		s.result.steps[what]++
		h := s.hash(next)
		if _, seen := s.before[h]; seen || s.result.wrong != "" {
			return
		}
		s.before[h], s.end = from, h
		s.result.wrong = s.sys.wrong(next)
		further = append(further, next)
	})
	return further
}

func (s *search[S]) finish() result {
	s.result.states = len(s.before)
	if s.result.wrong != "" {
		s.result.trace = s.words()
	}
	return s.result
}

// words goes the way from the start to the wrong state once more, and writes
// down what happens.
func (s *search[S]) words() []string {
	state := s.sys.initial()
	var way []uint64
	for at := s.end; at != s.hash(state) && at != 0; at = s.before[at] {
		way = append(way, at)
	}
	slices.Reverse(way)
	var steps []string
	for _, to := range way {
		at := state
		s.sys.next(at, func(next S, what string, args ...any) {
			if state == at && s.hash(next) == to {
				state = next
				steps = append(steps, fmt.Sprintf(what, args...))
			}
		})
	}
	return steps
}

// counter is a system to test the checker with: two processes each add one, by
// reading and then writing.
type counter struct{ atomic bool }

type counterState struct {
	value int
	read  [2]int // -1: not yet
	done  [2]bool
}

func (counter) initial() counterState { return counterState{read: [2]int{-1, -1}} }

func (c counter) next(s counterState, emit emit[counterState]) {
	for i := range s.done {
		next := s
		switch {
		case s.done[i]:
		case c.atomic:
			next.value++
			next.done[i] = true
			emit(next, "%d adds", i)
		case s.read[i] < 0:
			next.read[i] = s.value
			emit(next, "%d reads %d", i, s.value)
		default:
			next.value, next.done[i] = s.read[i]+1, true
			emit(next, "%d writes %d", i, next.value)
		}
	}
}

func (counter) wrong(s counterState) string {
	if s.done == [2]bool{true, true} && s.value != 2 {
		return "an addition is lost"
	}
	return ""
}

func TestChecker(t *testing.T) {
	r := explore(counter{}, 100)
	want := []string{"0 reads 0", "1 reads 0", "0 writes 1", "1 writes 1"}
	if r.wrong != "an addition is lost" || !slices.Equal(r.trace, want) || r.complete {
		t.Errorf("racing: found %v", r)
	}
	r = explore(counter{atomic: true}, 100)
	if r.wrong != "" || !r.complete || r.states != 4 || r.depth != 2 || r.steps["%d adds"] != 4 {
		t.Errorf("atomic: found %+v", r)
	}
	if r = explore(counter{atomic: true}, 2); r.wrong != "" || r.complete {
		t.Errorf("with a limit of 2 states: found %+v", r)
	}
}
