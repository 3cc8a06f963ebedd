package functions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// relayWindow is how many notifications wait for their acknowledgement at most.
const relayWindow = 256

// Times of publishing: how long an acknowledgement is waited for, the pauses before
// what was not acknowledged is published again, and how long a Once run goes on
// without a single acknowledgement.
const (
	ackWait   = 10 * time.Second
	outPause  = 100 * time.Millisecond
	outPauses = 5 * time.Second
	onceWait  = 30 * time.Second
)

// asyncPublisher is what a relay needs of JetStream.
type asyncPublisher interface {
	PublishMsgAsync(m *nats.Msg, opts ...jetstream.PublishOpt) (jetstream.PubAckFuture, error)
}

// relayOut publishes notifications side by side, but those of one object one after
// the other. Not for concurrent use.
type relayOut struct {
	js       asyncPublisher
	subject  string
	patience time.Duration             // without an acknowledgement; 0: for ever
	refused  func(n int, err error)    // takes notice of messages that are to be published again
	waiting  []*sent                   // in order
	objects  map[filer.ObjectName]bool // of those
}

// sent is a message that waits for its acknowledgement.
type sent struct {
	msg    *nats.Msg
	future jetstream.PubAckFuture // nil: the outcome is known
	err    error                  // of the outcome
}

// add publishes the notification of an event. It may wait, for others.
func (p *relayOut) add(ctx context.Context, e seaweed.ObjectEvent) error {
	if len(p.waiting) >= relayWindow || p.objects[e.Object] {
		if err := p.flush(ctx); err != nil {
			return err
		}
	}
	m, err := notify(p.subject, &e)
	if err != nil {
		return err
	}
	s := &sent{msg: m}
	p.publish(s)
	p.waiting = append(p.waiting, s)
	if p.objects == nil {
		p.objects = map[filer.ObjectName]bool{}
	}
	p.objects[e.Object] = true
	return nil
}

func (p *relayOut) publish(s *sent) {
	if s.future, s.err = p.js.PublishMsgAsync(s.msg); s.err != nil {
		s.future = nil // which may be a nil of another type
	}
}

// flush returns when all that was added is acknowledged, publishing again what is
// not, with pauses. An error means that ctx has ended, or its patience.
func (p *relayOut) flush(ctx context.Context) error {
	pause, last := outPause, time.Now()
	for len(p.waiting) > 0 {
		left, err := p.collect(ctx)
		if len(left) < len(p.waiting) {
			pause, last = outPause, time.Now()
		}
		if p.waiting = left; len(left) == 0 {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.refused(len(left), err)
		if p.patience > 0 && time.Since(last) >= p.patience {
			return &RetryError{fmt.Errorf("%d notifications are not acknowledged: %w", len(left), err)}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, outPauses)
		for _, s := range left {
			p.publish(s)
		}
	}
	clear(p.objects)
	return nil
}

// collect waits for what is on its way, and returns what is not acknowledged, with a
// reason.
func (p *relayOut) collect(ctx context.Context) (left []*sent, why error) {
	late, cancel := context.WithTimeoutCause(ctx, ackWait+time.Second, errLate) // in case that the client does not tell
	defer cancel()
	for _, s := range p.waiting {
		if s.await(late); s.err != nil {
			left = append(left, s)
			why = s.err
		}
	}
	return left, why
}

var errLate = errors.New("no acknowledgement came")

// await waits for the outcome, which is known from then on.
func (s *sent) await(ctx context.Context) {
	if s.future == nil {
		return
	}
	select {
	case <-s.future.Ok():
	case s.err = <-s.future.Err():
	case <-ctx.Done():
		s.err = context.Cause(ctx)
	}
	s.future = nil
}

// drop forgets what waits; it will be published again from the cursor.
func (p *relayOut) drop() {
	p.waiting = nil
	clear(p.objects)
}
