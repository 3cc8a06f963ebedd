package client

import (
	"errors"
	"time"
)

// errMoved tells that a topic was moved to other lanes; choose again.
var errMoved = errors.New("the topic is bound to other lanes now")

// moving is what a move does to a topic's queue in a lane that it leaves or
// enters. The order of a move, which [Producer.move] keeps: the new lanes hold,
// the old ones are left, what the old ones still have gets its outcome, the new
// ones are released.
type moving struct {
	gone    bool   // takes no records
	held    bool   // takes records, sends none
	after   string // what its batches must come after, until one has arrived
	arrived bool   // one has
}

// hold makes a topic's queue take records and send none until it is released.
func (x *batcher) hold(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.queues[name]
	if q == nil {
		q = &queue{topic: name}
		x.queues[name] = q
	}
	q.moving = moving{held: true}
}

// release lets a held queue send.
func (x *batcher) release(name, after string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.queues[name]
	if q == nil || !q.held {
		return
	}
	q.after = after
	x.unhold(q)
}

func (x *batcher) unhold(q *queue) {
	q.held = false
	now := time.Now() // their budget starts here
	for _, b := range q.sealed.items[q.sealed.head:] {
		b.ready = now
	}
	if q.open != nil {
		q.open.ready = now
	}
	if q.sendable() {
		x.enlist(q)
	}
}

// releaseAll is for the end of a lane's sender.
func (x *batcher) releaseAll() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, q := range x.queues {
		if q.held {
			x.unhold(q)
		}
	}
}

// leave makes the lane take no more records of a topic, sends what it has, and
// returns the channels that are closed when the lane has answered it all.
func (x *batcher) leave(name string) []<-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.queues[name]
	if q == nil {
		q = &queue{topic: name}
		x.queues[name] = q
	}
	q.gone = true
	if q.open != nil {
		x.makeDue(q)
	}
	var wait []<-chan struct{}
	for b := range x.outstanding {
		if b.topic == name {
			wait = append(wait, b.acked)
		}
	}
	return wait
}

// arrived notes that a batch that comes after others is in the lane: what
// follows it there comes after them too.
func (x *batcher) arrived(b *batch) {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := b.queue
	q.arrived = true
	if q.after == b.after {
		q.after = ""
	}
}

// hasArrived tells whether the topic's first batch since the last move is in the
// lane.
func (x *batcher) hasArrived(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.queues[name]
	return q != nil && q.arrived
}
