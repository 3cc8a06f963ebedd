// Package mutant names deliberately broken variants of the protocol. Tests
// switch one on to prove that the simulation would notice it; nothing else may.
// The zero Set is the correct protocol.
package mutant

// Variant is one way to break the protocol.
type Variant string

// The variants. Each breaks the rule of the protocol that its comment names.
const (
	// SameBytesAfterDrop reuses an uploaded chunk although some of its records
	// were dropped since (rule 2).
	SameBytesAfterDrop Variant = "same-bytes-after-drop"
	// CheckpointFirst moves the checkpoint before the flush is committed (rule 15).
	CheckpointFirst Variant = "checkpoint-first"
	// LostReplyIsLostRace takes a create without an answer for one that lost,
	// without looking whose entry is there (rule 1).
	LostReplyIsLostRace Variant = "lost-reply-is-lost-race"
	// StalePosition keeps the position and the records computed before a race
	// was lost (rules 2 and 10).
	StalePosition Variant = "stale-position"
	// TailBelowHead trusts a tail, and a win, without reading head afterwards
	// (rules 3 and 4).
	TailBelowHead Variant = "tail-below-head"
	// ForgetProducers does not save the tables of producers and of objects with the
	// checkpoint (rule 20).
	ForgetProducers Variant = "forget-producers"
	// UnroutedNotRolled creates topics without deciding first what was refused
	// for want of them (ADR 0006).
	UnroutedNotRolled Variant = "unrouted-not-rolled"
	// UndecidedIsValid commits a reference that was not looked at, and not pinned,
	// like one that was (rules 24 and 37).
	UndecidedIsValid Variant = "undecided-is-valid"
	// FailureInPassing commits what lies behind an object that cannot be read before
	// the checkpoint says so (ADR 0021).
	FailureInPassing Variant = "failure-in-passing"
	// FloorFromOneParent gives the child of a merge the floors of its first
	// parent only (rule 11).
	FloorFromOneParent Variant = "floor-from-one-parent"
	// FloorIsOneNumber keeps one floor per source for the whole range of a child,
	// the highest of its parents' (rule 11).
	FloorIsOneNumber Variant = "floor-is-one-number"
	// FloorsNotComposed leaves a parent's own floors out of its seal (rule 11).
	FloorsNotComposed Variant = "floors-not-composed"
	// CompletionAtNextFree appends the completion of an edit wherever the layout
	// log ends, not right after its intent (rule 25).
	CompletionAtNextFree Variant = "completion-at-next-free"
	// RegroupAffected regroups only the records of the segment that was sealed
	// (rule 14).
	RegroupAffected Variant = "regroup-affected"
	// CheckpointBeforeTail reads the checkpoint before the tail (rule 10).
	CheckpointBeforeTail Variant = "checkpoint-before-tail"
)

// Plain lists the variants that show without edits, Edits those that need them,
// Backfills those that need backfills beside them.
var (
	Plain = []Variant{
		SameBytesAfterDrop, CheckpointFirst, LostReplyIsLostRace, StalePosition, TailBelowHead, ForgetProducers, UnroutedNotRolled,
		UndecidedIsValid,
	}

	Backfills = []Variant{FailureInPassing}

	Edits = []Variant{
		FloorFromOneParent, FloorIsOneNumber, FloorsNotComposed, CompletionAtNextFree, RegroupAffected, CheckpointBeforeTail,
	}
)

// Set is the variant that is on, if any.
type Set struct{ On Variant }

// Has tells whether v is on.
func (s Set) Has(v Variant) bool { return s.On == v }
