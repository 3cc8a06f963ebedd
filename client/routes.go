package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

// Times of following the bindings of topics. The watch is started anew now and
// then, so that a change is noticed within followFor even if the watch misses it.
const (
	followFor   = 15 * time.Second
	followPause = time.Second
)

// laneSet is the lanes of a group.
type laneSet struct {
	group string
	lanes []*laneOut
}

// routes says which topic goes to which lanes. Looking up takes no lock; changes
// are made by one goroutine.
type routes struct {
	base   *laneSet // for topics that are bound to no group
	spread atomic.Uint64
	topics atomic.Pointer[map[string]*laneSet] // copied to be changed

	mu     sync.Mutex
	groups map[string]*laneSet
	every  []*laneOut // that were ever opened
	closed bool

	past map[string][]lane.After // what a topic's moves waited for last; the follower's
}

// lane chooses by key, in contiguous parts of the key space, so that each lane's
// records touch few segments. Records without a key take turns, in runs that
// make good batches.
func (r *routes) lane(topic string, key []byte) *laneOut {
	lanes := r.of(topic).lanes
	n := len(lanes)
	switch {
	case n == 1:
		return lanes[0]
	case key == nil:
		const run = 256
		return lanes[r.spread.Add(1)/run%uint64(n)]
	}
	return lanes[lane.Choose(key, n)]
}

func (r *routes) of(topic string) *laneSet {
	if set := (*r.topics.Load())[topic]; set != nil {
		return set
	}
	return r.base
}

func (r *routes) set(topic string, to *laneSet) {
	next := maps.Clone(*r.topics.Load())
	if to == r.base {
		delete(next, topic)
	} else {
		next[topic] = to
	}
	r.topics.Store(&next)
}

// all is every lane that was ever used.
func (r *routes) all() []*laneOut {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.every)
}

// close lets no more groups be opened.
func (r *routes) close() []*laneOut {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.all()
}

// route binds topics before the first record, then follows their bindings.
func (p *Producer) route(ctx context.Context, bound map[string]lane.Binding) error {
	for name, b := range bound {
		set, err := p.lanesOf(ctx, b)
		if err != nil {
			return fmt.Errorf("topic %s is bound to lane group %s: %w", name, b.Group, err)
		}
		p.routes.set(name, set)
	}
	if p.opts.Group == "" {
		p.group.Go(func() error { p.follow(p.ctx); return nil })
	}
	return nil
}

// lanesOf opens the lanes of a group, once.
func (p *Producer) lanesOf(ctx context.Context, b lane.Binding) (*laneSet, error) {
	r := &p.routes
	r.mu.Lock()
	set := r.groups[b.Group]
	r.mu.Unlock()
	if set != nil && len(set.lanes) == b.Lanes {
		return set, nil
	}
	generation := p.link.generation()
	infos, err := lane.OpenGroup(ctx, p.js, b.Group)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	set = p.newLanes(infos, generation)
	r.groups[b.Group] = set
	r.every = append(r.every, set.lanes...)
	return set, nil
}

// follow moves topics as their bindings change, until ctx ends. What cannot be
// done yet, because a group is not complete for instance, is tried again when
// the bindings are next told.
func (p *Producer) follow(ctx context.Context) {
	for ctx.Err() == nil {
		watch, cancel := context.WithTimeout(ctx, followFor)
		err := lane.FollowBindings(watch, p.js, func(c lane.BindingChange) {
			if err := p.rebind(ctx, c); err != nil && ctx.Err() == nil {
				p.opts.Logger.Warn("a topic stays with its lanes", "topic", c.Topic, "group", c.Group, "error", err)
			}
		})
		anew := watch.Err() != nil // it is time to, and nothing is wrong
		cancel()
		if anew {
			continue
		}
		if !errors.Is(err, jetstream.ErrBucketNotFound) {
			p.opts.Logger.Warn("following the lane groups of topics was interrupted", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(followPause):
		}
	}
}

// rebind moves a topic to where it is bound now, if it is elsewhere.
func (p *Producer) rebind(ctx context.Context, c lane.BindingChange) error {
	from, to := p.routes.of(c.Topic), p.routes.base
	switch {
	case c.Topic == "":
		return nil
	case c.Err != nil:
		return c.Err
	case c.Bound:
		var err error
		if to, err = p.lanesOf(ctx, c.Binding); err != nil {
			return err
		}
	}
	if from == to {
		return nil
	}
	p.opts.Logger.Info("a topic moves to other lanes", "topic", c.Topic, "from", from.group, "to", to.group)
	p.move(ctx, c.Topic, from, to)
	return nil
}

// move makes a topic's records go to other lanes, and keeps the order of each
// key: nothing goes to the new lanes before the old ones have answered for
// everything, and the first batches there name what they must come after, for
// the workers ([lane.After]). A batch of which it stays unknown whether the old
// lane has it is not waited for.
func (p *Producer) move(ctx context.Context, topic string, from, to *laneSet) {
	for _, l := range to.lanes {
		l.in.hold(topic)
	}
	p.routes.set(topic, to)
	for _, l := range from.lanes {
		for _, acked := range l.in.leave(topic) {
			select {
			case <-acked:
			case <-ctx.Done():
				return // the senders end as well
			}
		}
	}
	after := lane.FormatAfters(p.afters(topic, from))
	for _, l := range to.lanes {
		l.in.release(topic, after)
	}
}

// afters is what must be committed before a topic's records in new lanes: the
// last message in each of the old lanes. If nothing of the topic has arrived in
// those since it moved there, it is what it had to come after there.
func (p *Producer) afters(topic string, from *laneSet) []lane.After {
	r := &p.routes
	arrived := func(l *laneOut) bool { return l.in.hasArrived(topic) }
	afters := r.past[topic]
	if len(afters) == 0 || slices.ContainsFunc(from.lanes, arrived) {
		afters = nil
		for _, l := range from.lanes {
			if last := l.last.Load(); last != nil {
				afters = append(afters, *last)
			}
		}
	}
	if r.past == nil {
		r.past = map[string][]lane.After{}
	}
	r.past[topic] = afters
	return afters
}
