// Package model holds the protocol (docs/PROTOCOL.md) in executable form, small
// enough to be explored completely: every order of steps, every crash, every lost
// reply. It has tests only, and shares no code with what it models.
//
// Read it in this order:
//
//   - state_test.go: what is on the filer, and what a worker and a helper remember
//   - worker_test.go: rules 1, 2, 8 to 15, the way from a lane into segments
//   - helper_test.go: rules 11 and 25 to 27, edits of the layout
//   - invariants_test.go: what must hold in every state
//   - checker_test.go: the search; it knows nothing of the protocol
//   - model_test.go: which configurations are explored, and the broken variants
//     that must be found
//
// A step is what one process does between two moments at which another could
// interfere: one read, or one write, of what they share. What a process does
// with what it knows is part of the step before. Some steps hold a read and a
// write that loses if anything has come between; where that is so, the comment
// says why nothing is missed.
//
// Not in the model: heads and trimming (rules 3 and 4), lanes that go back (rule
// 17), producers' repeats (rule 20), readers. The simulation in package ingest
// has those, on the real code.
package model
