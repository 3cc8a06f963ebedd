package client

import (
	"context"
	"errors"
)

// Publish hands a record in, to be sent with others of its topic. It blocks while
// MaxBuffered bytes have no answer, until ctx ends ([*BlockedError]). An error of
// Publish means that the record was not handed in: it is a [*NameError],
// [*ValueTooLargeError], [*RecordTooLargeError], [*RecordError],
// [*BlockedError] or [ErrClosed].
//
// Records that one goroutine publishes with one key to one topic keep their
// order. r may be changed as soon as Publish returns. The Pending need not be
// used: Flush and Close tell of failures as well.
func (p *Producer) Publish(ctx context.Context, topic string, r Record, opts ...PublishOption) (*Pending, error) {
	c := callOptions{ack: p.opts.Ack}
	if len(opts) > 0 {
		c = c.with(opts)
	}
	return p.publish(ctx, topic, &r, c)
}

// PublishSync publishes a record without lingering and waits for its outcome, as
// Publish and [Pending.Wait] do.
func (p *Producer) PublishSync(ctx context.Context, topic string, r Record, opts ...PublishOption) (Receipt, error) {
	c := callOptions{ack: p.opts.Ack}.with(opts)
	c.now = true
	pending, err := p.publish(ctx, topic, &r, c)
	if err != nil {
		return Receipt{}, err
	}
	return pending.Wait(ctx)
}

func (p *Producer) publish(ctx context.Context, topic string, r *Record, c callOptions) (*Pending, error) {
	cost, err := p.cost(r)
	if err != nil {
		return nil, err
	}
	if !p.room.TryAcquire(cost) {
		if err := p.waitForRoom(ctx, cost); err != nil {
			return nil, err
		}
	}
	a, err := p.routes.lane(topic, r.Key).in.add(topic, r, c, cost)
	for errors.Is(err, errMoved) { // since the lane was chosen
		a, err = p.routes.lane(topic, r.Key).in.add(topic, r, c, cost)
	}
	if err != nil {
		p.room.Release(cost)
	}
	for _, b := range a.sealed {
		if b != nil {
			b.pack(p.opts.Compression)
		}
	}
	return a.pending, err
}

// cost checks a record's size and gives what it takes of the buffer.
func (p *Producer) cost(r *Record) (int64, error) {
	if len(r.Value) > MaxValue {
		return 0, &ValueTooLargeError{Size: len(r.Value), Limit: MaxValue}
	}
	plain, encoded := r.sizes()
	if plain > p.limit || encoded > 2*p.limit {
		return 0, &RecordTooLargeError{Size: plain, Limit: p.limit}
	}
	return int64(encoded) + recordHeap, nil
}

func (p *Producer) waitForRoom(ctx context.Context, cost int64) error {
	wait, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(p.open, func() { cancel(ErrClosed) })
	defer stop()
	if err := p.room.Acquire(wait, cost); err != nil {
		if cause := context.Cause(wait); errors.Is(cause, ErrClosed) {
			return ErrClosed
		}
		return &BlockedError{Err: context.Cause(ctx)}
	}
	return nil
}
