package rig

import (
	"bytes"
	"fmt"
)

// maxProblems is how many problems a comparison tells; the others are counted.
const maxProblems = 20

// Read is a record as it was read back.
type Read struct {
	Number   int // -1: it has none
	Key      string
	Value    []byte
	Place    Place
	Rejected string
}

// Comparison checks records, as they are read back one by one, against a ledger:
// acknowledged ⊆ read ⊆ sent, each once, at the place that its receipt names,
// and each key in the order of sending. One goroutine uses it, after all
// publishers have ended.
type Comparison struct {
	Read     int
	Surplus  int // records without a receipt that are there: their outcome was not known
	Problems []string
	More     int // problems beyond those

	ledger *Ledger
	seen   []bool
	last   map[string]int // number, by key
}

// Compare starts a comparison.
func (l *Ledger) Compare() *Comparison {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Comparison{ledger: l, seen: make([]bool, len(l.sent)), last: map[string]int{}}
}

// Add compares one record.
func (c *Comparison) Add(r Read) {
	c.Read++
	if r.Number < 0 || r.Number >= len(c.seen) {
		c.problem("a record that was never sent: number %d, key %q, lane sequence %d row %d", r.Number, r.Key, r.Place.Sequence, r.Place.Row)
		return
	}
	sent := c.ledger.sent[r.Number]
	flight := c.ledger.flights[sent.flight]
	switch {
	case r.Rejected != "":
		c.problem("record %d was rejected: %s", r.Number, r.Rejected)
	case c.seen[r.Number]:
		c.problem("record %d is there twice, again at lane sequence %d row %d", r.Number, r.Place.Sequence, r.Place.Row)
	case r.Key != flight.Key || !bytes.Equal(r.Value, flight.Value):
		c.problem("record %d was altered: key %q, value %.80q", r.Number, r.Key, r.Value)
	case sent.seq != 0 && r.Place != (Place{sent.seq, sent.row}):
		c.problem("record %d came from lane sequence %d row %d, but its receipt says %d row %d",
			r.Number, r.Place.Sequence, r.Place.Row, sent.seq, sent.row)
	}
	if last, ok := c.last[r.Key]; ok && last > r.Number {
		c.problem("key %s is out of order: record %d after %d", r.Key, r.Number, last)
	}
	c.last[r.Key] = r.Number
	if !c.seen[r.Number] && sent.seq == 0 {
		c.Surplus++
	}
	c.seen[r.Number] = true
}

// Done ends the comparison: what was acknowledged must have been read. It tells
// whether there was no problem.
func (c *Comparison) Done() bool {
	for n, sent := range c.ledger.sent {
		if sent.seq != 0 && !c.seen[n] {
			c.problem("record %d (key %s) was acknowledged at lane sequence %d row %d and is lost",
				n, c.ledger.flights[sent.flight].Key, sent.seq, sent.row)
		}
	}
	return len(c.Problems) == 0
}

func (c *Comparison) problem(format string, args ...any) {
	if len(c.Problems) == maxProblems {
		c.More++
		return
	}
	c.Problems = append(c.Problems, fmt.Sprintf(format, args...))
}
