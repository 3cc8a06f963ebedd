package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/work"
)

// taker takes the tokens of a kind from the work queue, each of which names a
// topic, and has them handled.
type taker struct {
	kind string
	js   jetstream.JetStream
	log  *slog.Logger
	// handle does what a token asks for, and finishes it or puts it off; when stop
	// ends it is to come to an end. failed is about the topic, err about the queue.
	handle func(hard, stop context.Context, t *work.Token) (failed, err error)
	cut    bool // drain was stopped before it had found none
}

// Times of following tokens: a pause after a fault, and after one that only an
// operator can mend; how long a drained queue is looked at; and how often a token
// whose work takes long shows that it is in hand. tokenParallel is how many a
// resident function has in hand at most.
const (
	tokenPause    = 2 * time.Second
	tokenMend     = time.Minute
	tokenIdle     = 500 * time.Millisecond
	tokenShow     = work.DefaultAckWait / 3
	tokenParallel = 4
)

func (n *taker) open(ctx context.Context) (*work.Tokens, error) {
	q, err := work.Open(ctx, n.js)
	if err != nil {
		return nil, err
	}
	return q.Tokens(ctx, work.Filter(n.kind, 1))
}

// follow handles tokens until stop ends. Sweeps find what is missed here, so faults
// only make it later.
func (n *taker) follow(hard, stop context.Context) {
	var g errgroup.Group
	for range tokenParallel {
		g.Go(func() error { n.take(hard, stop); return nil })
	}
	_ = g.Wait() // always nil
}

func (n *taker) take(hard, stop context.Context) {
	var tokens *work.Tokens
	for stop.Err() == nil {
		var err error
		if tokens == nil {
			tokens, err = n.open(stop)
		}
		var t *work.Token
		if err == nil {
			t, err = tokens.Next(stop)
		}
		if err == nil {
			_, err = n.work(hard, stop, t)
		}
		if err == nil || stop.Err() != nil {
			continue
		}
		tokens = nil
		n.pause(stop, err)
	}
}

// pause waits after a fault of the queue.
func (n *taker) pause(stop context.Context, err error) {
	var mismatch *work.MismatchError
	wait, level := tokenPause, slog.LevelWarn
	if errors.As(err, &mismatch) {
		wait, level = tokenMend, slog.LevelError
	}
	n.log.Log(stop, level, "cannot follow nudges; sweeps go on", "kind", n.kind, "err", err)
	select {
	case <-stop.Done():
	case <-time.After(wait):
	}
}

// work handles a token, and shows meanwhile that it is in hand.
func (n *taker) work(hard, stop context.Context, t *work.Token) (failed, err error) {
	ctx, cancel := context.WithCancel(hard)
	var g errgroup.Group
	g.Go(func() error {
		tick := time.NewTicker(tokenShow)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if err := t.Progress(); err != nil {
					n.log.Debug("a nudge may be handed out twice", "kind", n.kind, "err", err)
				}
			}
		}
	})
	defer func() { cancel(); _ = g.Wait() }() // always nil
	return n.handle(hard, stop, t)
}

// drain handles tokens until none is left. Topics that fail are put off, and told
// when the others are done.
func (n *taker) drain(hard, stop context.Context) (taken int, err error) {
	tokens, err := n.open(stop)
	if err != nil {
		return 0, err
	}
	var faults []error
	for stop.Err() == nil {
		idle, cancel := context.WithTimeout(stop, tokenIdle)
		t, err := tokens.Next(idle)
		over := idle.Err() != nil
		cancel()
		if err != nil && over {
			return taken, errors.Join(faults...) // none came in time
		}
		if err != nil {
			return taken, errors.Join(append(faults, err)...)
		}
		taken++
		failed, err := n.work(hard, stop, t)
		if failed != nil {
			faults = append(faults, fmt.Errorf("topic %q: %w", t.Parts()[0], failed))
		}
		if err != nil {
			return taken, errors.Join(append(faults, err)...)
		}
	}
	n.cut = true
	return taken, errors.Join(faults...)
}

// beside follows tokens until stop ends, beside sweeps that end then too.
func (n *taker) beside(hard, stop context.Context, sweeps func()) {
	var g errgroup.Group
	g.Go(func() error { sweeps(); return nil })
	g.Go(func() error { n.follow(hard, stop); return nil })
	_ = g.Wait() // always nil
}
