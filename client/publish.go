package client

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/record"
)

// Publish hands a record in, to be sent with others of its topic. It blocks while
// MaxBuffered bytes have no answer, until ctx ends ([*BlockedError]). An error of
// Publish means that the record was not handed in: it is a [*NameError],
// [*ValueTooLargeError], [*RecordTooLargeError], [*RecordError],
// [*BlockedError], [*ObjectsError] or [ErrClosed].
//
// A value over [MaxValue] is uploaded first, if Options have Objects with a
// bucket, and the record refers to the object. Publish blocks for the upload, so
// that no later record of the key overtakes it, and reads the value where it is.
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
	if len(r.Value) > MaxValue && p.opts.Objects.takes(r.Value) {
		small, err := p.outsource(ctx, topic, *r)
		if err != nil {
			return nil, err
		}
		r = &small
	}
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
		return 0, &ValueTooLargeError{Size: int64(len(r.Value)), Limit: p.opts.Objects.limit()}
	}
	plain, encoded := r.sizes()
	if plain > p.limit || encoded > 2*p.limit {
		return 0, &RecordTooLargeError{Size: plain, Limit: p.limit}
	}
	return int64(encoded) + recordHeap, nil
}

// outsource uploads a record's value and returns the record with a reference in
// its place. It uploads nothing for a record that could not be published.
func (p *Producer) outsource(ctx context.Context, topic string, r Record) (Record, error) {
	if p.open.Err() != nil {
		return r, ErrClosed
	}
	value := r.Value
	r.Value = nil
	if _, err := p.cost(&r); err != nil {
		return r, err
	}
	enc := r.internal()
	if _, err := record.AppendMessage(nil, &enc); err != nil {
		return r, err
	}
	ctx, stop := p.whileOpen(ctx)
	defer stop()
	f, err := p.opts.Objects.upload(ctx, topic, payloadOf(value))
	if err != nil && errors.Is(context.Cause(ctx), ErrClosed) {
		err = ErrClosed
	}
	r.ref = &f
	return r, err
}

func (p *Producer) waitForRoom(ctx context.Context, cost int64) error {
	wait, stop := p.whileOpen(ctx)
	defer stop()
	if err := p.room.Acquire(wait, cost); err != nil {
		if cause := context.Cause(wait); errors.Is(cause, ErrClosed) {
			return ErrClosed
		}
		return &BlockedError{Err: context.Cause(ctx)}
	}
	return nil
}

// whileOpen is ctx until the producer is closed, which ends it with ErrClosed.
func (p *Producer) whileOpen(ctx context.Context) (open context.Context, done func()) {
	open, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.open, func() { cancel(ErrClosed) })
	return open, func() { stop(); cancel(nil) }
}
