package client

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// manyQueues is from how many topics on those without records are forgotten.
const manyQueues = 1024

// batcher sorts the records for one lane into batches by topic and decides which
// batch goes next. It knows nothing of NATS. All methods may be called
// concurrently; one sender calls next.
//
// Batches of one topic leave in the order of their records. Topics take turns,
// batch by batch, so that a flooded one cannot hold up the others.
type batcher struct {
	linger time.Duration
	full   int // bytes that make a batch full
	limit  int // of one record, encoded

	mu          sync.Mutex
	queues      map[string]*queue
	ring        fifo[*queue] // those with a batch that may be sent
	lingering   fifo[*batch] // open batches, oldest first; some are sealed by now
	outstanding map[*batch]struct{}
	closed      bool
	wake        chan struct{} // cap 1: next should look again
}

// queue is what waits for the lane of one topic.
type queue struct {
	topic   string
	sealed  fifo[*batch]
	open    *batch
	inRing  bool
	hint    int // bytes of the last batch
	shrinks shrinkage
	moving
}

func (q *queue) sendable() bool {
	return !q.held && (q.sealed.len() > 0 || q.open != nil && q.open.due)
}

func newBatcher(linger time.Duration, full, limit int) *batcher {
	return &batcher{
		linger:      max(linger, 0),
		full:        full,
		limit:       limit,
		queues:      map[string]*queue{},
		outstanding: map[*batch]struct{}{},
		wake:        make(chan struct{}, 1),
	}
}

// added is what add made: the record's Pending, and up to two batches that it
// sealed, which the caller should pack.
type added struct {
	pending *Pending
	sealed  [2]*batch
}

// add copies a record into its topic's open batch. On an error nothing of it
// stays.
func (x *batcher) add(name string, r *Record, c callOptions, cost int64) (added, error) {
	var a added
	_, size := r.sizes()
	enc := r.internal()
	x.mu.Lock()
	defer x.mu.Unlock()
	q, err := x.queue(name)
	if err != nil {
		return a, err
	}
	if q.gone {
		return a, errMoved
	}
	defer x.tidy(q)
	if b := q.open; b != nil && len(b.raw)+size > x.full {
		a.sealed[0] = x.sealFull(q)
	}
	b := q.open
	if b == nil {
		b = x.newBatch(q, size)
	}
	raw, err := record.AppendMessage(b.raw, &enc)
	if err == nil && len(raw)-len(b.raw) > x.limit {
		err = &RecordTooLargeError{Size: len(raw) - len(b.raw), Limit: x.limit}
	}
	if err != nil {
		if q.open != b {
			putBuffer(b.raw)
		}
		return a, err
	}
	x.opened(q, b)
	b.raw = raw
	b.cost += cost
	a.pending = b.pending(c.ack)
	if len(raw)+size > x.full || b.rows == record.MaxBatchRows { // one like it would not fit
		a.sealed[1] = x.sealFull(q)
	} else if c.now && !b.due {
		x.makeDue(q)
	}
	return a, nil
}

func (x *batcher) queue(name string) (*queue, error) {
	if x.closed {
		return nil, ErrClosed
	}
	if q := x.queues[name]; q != nil {
		return q, nil
	}
	if err := topic.CheckName(name); err != nil {
		return nil, err
	}
	q := &queue{topic: name}
	x.queues[name] = q
	return q, nil
}

func (x *batcher) newBatch(q *queue, size int) *batch {
	return &batch{
		queue: q,
		topic: q.topic,
		raw:   getBuffer(max(size, min(q.hint, x.full))),
		acked: make(chan struct{}),
	}
}

// opened makes b, which has got its first record, the queue's open batch.
func (x *batcher) opened(q *queue, b *batch) {
	if q.open == b {
		return
	}
	b.born = time.Now()
	q.open = b
	x.outstanding[b] = struct{}{}
	if x.linger == 0 {
		x.makeDue(q)
		return
	}
	x.lingering.push(b)
	x.notify()
}

// seal closes the queue's open batch for records.
func (x *batcher) seal(q *queue) *batch {
	b := q.open
	q.open = nil
	q.hint = len(b.raw)
	return b
}

func (x *batcher) sealFull(q *queue) *batch {
	b := x.seal(q)
	q.sealed.push(b)
	x.enlist(q)
	return b
}

func (x *batcher) makeDue(q *queue) {
	q.open.due = true
	x.enlist(q)
}

func (x *batcher) enlist(q *queue) {
	if !q.inRing && !q.held {
		q.inRing = true
		x.ring.push(q)
	}
	x.notify()
}

func (x *batcher) notify() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// next waits for a batch that may be sent. Until it is called again an open one
// goes on filling; that is how batches grow with the load.
func (x *batcher) next(ctx context.Context) (*batch, error) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		b, wait := x.take(time.Now())
		if b != nil {
			return b, nil
		}
		timer.Reset(wait)
		select {
		case <-x.wake:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
}

// take returns the batch whose turn it is, or how long to wait for one.
func (x *batcher) take(now time.Time) (*batch, time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	wait := x.expire(now)
	if x.ring.len() == 0 {
		return nil, wait
	}
	q := x.ring.pop()
	q.inRing = false
	var b *batch
	if q.sealed.len() > 0 {
		b = q.sealed.pop()
	} else {
		b = x.seal(q)
	}
	b.after = q.after
	if q.sendable() {
		x.enlist(q)
	}
	x.tidy(q)
	return b, 0
}

// tidy forgets a topic that has nothing waiting, when there are many.
func (x *batcher) tidy(q *queue) {
	if q.open == nil && q.sealed.len() == 0 && len(x.queues) > manyQueues && q.moving == (moving{}) {
		delete(x.queues, q.topic)
	}
}

// expire makes the batches due that have lingered for long enough, and says when
// to look again.
func (x *batcher) expire(now time.Time) time.Duration {
	for x.lingering.len() > 0 {
		b := x.lingering.peek()
		if b.queue.open == b && !b.due {
			if left := x.linger - now.Sub(b.born); left > 0 {
				return left
			}
			x.makeDue(b.queue)
		}
		x.lingering.pop()
	}
	return time.Hour
}

// flush makes all open batches due and returns, for each batch without an
// outcome, the channel that is closed with the outcome of the records in it now.
func (x *batcher) flush() []<-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.queues {
		if q.open != nil {
			x.makeDue(q)
		}
	}
	wait := make([]<-chan struct{}, 0, len(x.outstanding))
	for b := range x.outstanding {
		wait = append(wait, b.settled())
	}
	return wait
}

// forget is called when a batch has its outcome.
func (x *batcher) forget(b *batch) {
	x.mu.Lock()
	delete(x.outstanding, b)
	x.mu.Unlock()
}

// close refuses all further records.
func (x *batcher) close() {
	x.mu.Lock()
	x.closed = true
	x.mu.Unlock()
}
