package client

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// errLost ends an attempt whose connection broke: the answer will not come.
var errLost = errors.New("the connection to NATS broke before the answer came")

// link follows the state of a NATS connection, so that senders hand nothing to a
// broken one: what waits in a client library's own buffer has an unknown outcome.
type link struct {
	nc     *nats.Conn
	events chan nats.Status

	mu      sync.Mutex
	lost    chan struct{} // closed when the present connection breaks
	changed chan struct{} // closed at the next event
}

func newLink(nc *nats.Conn) *link {
	return &link{
		nc:      nc,
		events:  nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED, nats.CLOSED),
		lost:    make(chan struct{}),
		changed: make(chan struct{}),
	}
}

// close is for a link that was not run.
func (l *link) close() { l.nc.RemoveStatusListener(l.events) }

// run follows the connection until ctx ends.
func (l *link) run(ctx context.Context) {
	defer l.close()
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-l.events:
			l.note(s)
		}
	}
}

func (l *link) note(s nats.Status) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	if s != nats.CONNECTED {
		close(l.lost)
		l.lost = make(chan struct{})
	}
}

// generation counts the connections made. What was learned from the server holds
// while it stays the same.
func (l *link) generation() uint64 { return l.nc.Stats().Reconnects }

// up waits until the connection stands and returns a channel that is closed when
// it breaks.
func (l *link) up(ctx context.Context) (lost <-chan struct{}, err error) {
	for {
		l.mu.Lock()
		lost, changed := l.lost, l.changed
		l.mu.Unlock()
		if l.nc.IsConnected() {
			return lost, nil
		}
		if l.nc.IsClosed() {
			return nil, nats.ErrConnectionClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("not connected to NATS: %w", context.Cause(ctx))
		}
	}
}
