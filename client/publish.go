package client

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/topic"
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
	a, err := p.lane(r.Key).in.add(topic, r, c, cost)
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

// lane chooses by key, in contiguous parts of the key space, so that each lane's
// records touch few segments. Records without a key take turns, in runs that
// make good batches.
func (p *Producer) lane(key []byte) *laneOut {
	n := uint64(len(p.lanes))
	if n == 1 {
		return p.lanes[0]
	}
	if key == nil {
		const run = 256
		return p.lanes[p.spread.Add(1)/run%n]
	}
	return p.lanes[uint64(topic.SlotOf(key))*n/topic.Slots]
}
