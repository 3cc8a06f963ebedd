package ingest

import "time"

const (
	// lookBudget is how long a flush that is due may wait for what its records refer
	// to, so that with its commit no record comes more than 2 s later (rule 24).
	lookBudget = 1750 * time.Millisecond
	// lookGrace is for how long they are looked at, at least, once no more messages
	// come to the flush.
	lookGrace = 200 * time.Millisecond
	// After something was waited for in vain, flushes wait no longer than sulkBudget,
	// for as long as sulk.
	sulkBudget = 100 * time.Millisecond
	sulk       = 10 * time.Second
)

// temper decides how long to wait for objects, so that those that do not come, an
// endpoint that does not answer, or more references than can be looked at, hold
// records up for the whole budget once in a while and not with every flush. The zero
// value is patient.
type temper struct{ until time.Time } // it sulks

// sulks tells whether nothing is worth a second look.
func (t temper) sulks(now time.Time) bool { return now.Before(t.until) }

// inVain notes that a flush has waited for verdicts that did not come.
func (t *temper) inVain(now time.Time) { t.until = now.Add(sulk) }

// deadline is until when a flush that closes now may wait for verdicts about
// references of which the first came at since. It was due, or is, at a time.
func (t temper) deadline(now, since, due time.Time) time.Time {
	if due.Before(since) {
		since = due
	}
	until, grace := since.Add(lookBudget), now.Add(lookGrace)
	if grace.After(until) {
		until = grace
	}
	if short := now.Add(sulkBudget); t.sulks(now) && short.Before(until) {
		return short
	}
	return until
}
