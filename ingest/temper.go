package ingest

import "time"

const (
	// lookBudget is how long a message may wait for what its references name, so that
	// with its commit it does not come more than 2 s later (rule 24).
	lookBudget = 1750 * time.Millisecond
	// lookGrace is how long the objects of a flush are looked at, at least, once no
	// more messages come to it.
	lookGrace = 500 * time.Millisecond
	// sulk is for how long nothing is waited for after something was waited for in
	// vain.
	sulk = 10 * time.Second
	// silence is how many looks in a row without an answer make the endpoint one
	// that is not asked.
	silence = 8
)

// temper decides what is worth waiting for, so that objects that do not come,
// or an endpoint that does not answer, hold records up for one budget in a while
// and not again and again. The zero value is patient. Times are given to it.
type temper struct {
	absent time.Time // until when absent objects are not waited for
	silent time.Time // until when the endpoint is not asked
	mute   int       // looks in a row without an answer
}

// asks tells whether to look at all. When an endpoint has been silent for long
// enough, one look finds out whether it still is.
func (p *temper) asks(now time.Time) bool {
	if p.mute < silence {
		return true
	}
	if now.Before(p.silent) {
		return false
	}
	p.silent = now.Add(sulk)
	return true
}

// waits tells whether to look again for an object that is not there.
func (p *temper) waits(now time.Time) bool { return !now.Before(p.absent) }

// answered notes a look to which the endpoint said anything.
func (p *temper) answered() { p.mute = 0 }

// unanswered notes a look to which it did not.
func (p *temper) unanswered(now time.Time) {
	p.mute++
	if p.mute >= silence {
		p.silent = now.Add(sulk)
	}
}

// inVain notes that a flush has waited for objects that did not come.
func (p *temper) inVain(now time.Time) { p.absent = now.Add(sulk) }
