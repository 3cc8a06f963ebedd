package functions

import (
	"context"
	"sync"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/work"
)

// nudger puts tokens of a kind into the work queue, which it opens when it is first
// needed: a worker does not depend on it. For one goroutine.
type nudger struct {
	d     Deps
	kind  string
	queue *work.Queue
}

var _ ingest.Nudger = (*nudger)(nil)

// Nudge puts a token for the topic.
func (n *nudger) Nudge(ctx context.Context, topic string) error {
	if n.queue == nil {
		js, err := jetstream.New(n.d.NATS)
		if err != nil {
			return err
		}
		if n.queue, err = work.Open(ctx, js); err != nil {
			return err
		}
	}
	err := n.queue.Put(ctx, work.Subject(n.kind, topic))
	if err != nil {
		n.queue = nil // should its stream be gone, the next nudge makes it again
	}
	return err
}

// sharedNudger is a nudger for several goroutines.
type sharedNudger struct {
	mu sync.Mutex
	n  nudger
}

var _ ingest.Nudger = (*sharedNudger)(nil)

// Nudge puts a token for the topic.
func (s *sharedNudger) Nudge(ctx context.Context, topic string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n.Nudge(ctx, topic)
}
