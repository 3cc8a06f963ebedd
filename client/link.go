package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
)

// link follows the state of a NATS connection, so that senders hand nothing to a
// broken one: what waits in a client library's own buffer has an unknown outcome.
type link struct {
	nc     *nats.Conn
	events chan nats.Status

	mu      sync.Mutex
	changed chan struct{} // closed at the next event
}

func newLink(nc *nats.Conn) *link {
	return &link{
		nc:      nc,
		events:  nc.StatusChanged(nats.CONNECTED, nats.CLOSED),
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
		case <-l.events:
			l.mu.Lock()
			close(l.changed)
			l.changed = make(chan struct{})
			l.mu.Unlock()
		}
	}
}

// generation counts the connections made. What was learned from the server holds
// while it stays the same.
func (l *link) generation() uint64 { return l.nc.Stats().Reconnects }

// up waits until the connection stands.
func (l *link) up(ctx context.Context) error {
	for {
		l.mu.Lock()
		changed := l.changed
		l.mu.Unlock()
		if l.nc.IsConnected() {
			return nil
		}
		if l.nc.IsClosed() {
			return nats.ErrConnectionClosed
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("not connected to NATS: %w", context.Cause(ctx))
		}
	}
}
