package rig

import "sync"

// NumberHeader is the header that carries a record's number in the ledger.
const NumberHeader = "Number"

// Place is where in the lane a receipt says that a record went.
type Place struct {
	Sequence uint64
	Row      uint32
}

// Ledger is what publishers sent and what was acknowledged to them. A record's
// number is its place in the ledger, so numbers of one key increase in the order
// of sending. It may be used concurrently.
type Ledger struct {
	flights []Flight

	mu     sync.Mutex
	sent   []entry
	acked  int
	failed int
	err    error // the first failure
}

// entry is one record that was sent.
type entry struct {
	flight uint32
	row    uint32
	seq    uint64 // of the receipt; 0: not acknowledged
}

// NewLedger makes the ledger of records whose values are flights.
func NewLedger(flights []Flight) *Ledger { return &Ledger{flights: flights} }

// Divide gives each airport one of two ways in, since the order of a key holds
// within one way only, and lists their flights.
func (l *Ledger) Divide() (plain, batched []int) {
	ways := map[string]int{}
	for i, f := range l.flights {
		n, known := ways[f.Key]
		if !known {
			n = len(ways)
			ways[f.Key] = n
		}
		if n%2 == 0 {
			plain = append(plain, i)
		} else {
			batched = append(batched, i)
		}
	}
	return plain, batched
}

// Send notes that a flight is about to be sent and gives the record's number.
func (l *Ledger) Send(flight int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, entry{flight: uint32(flight)})
	return len(l.sent) - 1
}

// Acknowledge notes the receipt of a record.
func (l *Ledger) Acknowledge(number int, at Place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[number].seq, l.sent[number].row = at.Sequence, at.Row
	l.acked++
}

// Fail notes that a record was not acknowledged. It may be stored all the same.
func (l *Ledger) Fail(_ int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed++
	if l.err == nil {
		l.err = err
	}
}

// Counts tells how many records were sent, and of these acknowledged and failed.
type Counts struct{ Sent, Acknowledged, Failed int }

// Counts are those so far.
func (l *Ledger) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Counts{len(l.sent), l.acked, l.failed}
}

// Failure is the first error that a publisher got, or nil.
func (l *Ledger) Failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Above counts the records that the lane has taken and that lie above a
// checkpoint: those that a worker has not acknowledged yet.
func (l *Ledger) Above(checkpoint uint64) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.sent {
		if l.sent[i].seq > checkpoint {
			n++
		}
	}
	return n
}
