package ingest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"
)

// dice gives the same answers for the same questions, whatever the order in
// which they are asked, so that a seed replays.
type dice uint64

func (d dice) roll(question ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, uint64(d))
	fmt.Fprint(h, question...)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// chance is true in permille of 1000 cases.
func (d dice) chance(permille uint64, question ...any) bool {
	return d.roll(question...)%1000 < permille
}

// span is a duration in [0, limit), in nanoseconds, so that hardly two are equal.
func (d dice) span(limit time.Duration, question ...any) time.Duration {
	return time.Duration(d.roll(question...) % uint64(limit))
}

var errSimLane = errors.New("lane: no answer")

// simServer is the JetStream server of a simulation: one lane.
type simServer struct {
	mu       sync.Mutex
	messages []Message
	archive  []Message // the trimmed ones too
	sent     []Message // the lost ones too
	first    uint64
	changed  chan struct{} // closed when a message arrives
	commit   uint64        // last announcement
	back     int           // times that it lost its tail
	conn     int           // connections before this are broken
}

func newSimServer() *simServer { return &simServer{first: 1, changed: make(chan struct{})} }

// publish stores a message and returns its sequence.
func (s *simServer) publish(m Message) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Sequence, m.Time = s.first+uint64(len(s.messages)), time.Now()
	s.messages, s.archive, s.sent = append(s.messages, m), append(s.archive, m), append(s.sent, m)
	close(s.changed)
	s.changed = make(chan struct{})
	return m.Sequence
}

// goBack loses the last n messages, as a server does that had not synced them.
func (s *simServer) goBack(n int) (lost []Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = min(n, len(s.messages)-1)
	if n <= 0 {
		return nil
	}
	lost = s.messages[len(s.messages)-n:]
	s.messages = s.messages[:len(s.messages)-n]
	s.archive = s.archive[:len(s.archive)-n]
	s.back++
	s.conn++
	return lost
}

func (s *simServer) state() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Incarnation: "sim", First: s.first, Last: s.first + uint64(len(s.messages)) - 1}
}

// simLane is a worker's connection to the server.
type simLane struct {
	server *simServer
	dice   dice
	name   string
	calm   bool // no faults
	mu     sync.Mutex
	calls  int
	stats  *simStats
	pause  func() time.Duration // the worker's process is stopped for so long
}

// call is where faults happen: before the effect, or to the reply.
func (l *simLane) call(ctx context.Context, op string, effect func() error) error {
	l.mu.Lock()
	l.calls++
	n := l.calls
	l.mu.Unlock()
	wait := l.pause() + l.dice.span(3*time.Millisecond, l.name, op, n, "wait")
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
	}
	if !l.calm && l.dice.chance(10, l.name, op, n, "before") {
		return errSimLane
	}
	if err := effect(); err != nil {
		return err
	}
	if !l.calm && l.dice.chance(10, l.name, op, n, "after") {
		return errSimLane
	}
	return nil
}

func (l *simLane) State(ctx context.Context) (s State, err error) {
	err = l.call(ctx, "state", func() error { s = l.server.state(); return nil })
	return s, err
}

func (l *simLane) TimeOf(ctx context.Context, seq uint64) (t time.Time, err error) {
	err = l.call(ctx, "time", func() error {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		if seq < l.server.first || seq-l.server.first >= uint64(len(l.server.messages)) {
			return ErrNoMessage
		}
		t = l.server.messages[seq-l.server.first].Time
		return nil
	})
	return t, err
}

func (l *simLane) Announce(ctx context.Context, _ string, checkpoint uint64) error {
	return l.call(ctx, "announce", func() error {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		l.server.commit = max(l.server.commit, checkpoint)
		return nil
	})
}

func (l *simLane) Trim(ctx context.Context, below uint64) error {
	return l.call(ctx, "trim", func() error {
		l.server.mu.Lock()
		defer l.server.mu.Unlock()
		if below > l.server.first {
			n := min(below-l.server.first, uint64(len(l.server.messages)))
			l.server.messages = l.server.messages[n:]
			l.server.first += n
		}
		return nil
	})
}

func (l *simLane) Read(ctx context.Context, from uint64) (Reader, error) {
	l.server.mu.Lock()
	conn := l.server.conn
	l.server.mu.Unlock()
	r := &simReader{lane: l, next: from, conn: conn}
	return r, l.call(ctx, "read", func() error { return nil })
}

type simReader struct {
	lane *simLane
	next uint64
	conn int
	n    int
}

func (r *simReader) Close() {}

func (r *simReader) Next(ctx context.Context) (Message, error) {
	r.n++
	d := r.lane.dice
	select {
	case <-ctx.Done():
		return Message{}, ctx.Err()
	case <-time.After(r.lane.pause() + d.span(2*time.Millisecond, r.lane.name, "next", r.next, r.n)):
	}
	if !r.lane.calm && d.chance(2, r.lane.name, "next-fails", r.next, r.n) {
		return Message{}, errSimLane
	}
	for {
		r.lane.server.mu.Lock()
		s := r.lane.server
		if s.conn != r.conn {
			s.mu.Unlock()
			return Message{}, ErrReconnected
		}
		r.next = max(r.next, s.first)
		if i := r.next - s.first; i < uint64(len(s.messages)) {
			m := s.messages[i]
			s.mu.Unlock()
			r.next++
			return m, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return Message{}, ctx.Err()
		case <-changed:
		case <-time.After(500 * time.Millisecond):
		}
	}
}
