package ingest

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Nudger asks for a topic to be looked after soon: to be planned, or its pending
// references to be followed up. A nudge is a hint: one that fails is forgotten,
// since every topic is looked at now and then anyway. Nudge tries once, and is called by one goroutine of each worker.
type Nudger interface {
	Nudge(ctx context.Context, topic string) error
}

const (
	nudgeEvery = time.Second // and topic
	nudgeLimit = time.Second // for one to be sent
	nudgeQueue = 16          // topics that wait for it; more are dropped
	nudgeSpan  = time.Second // over which load is measured, at least
	// maxMeters bounds the segments of which a session measures the load.
	maxMeters = 20_000
)

// nudges finds the segments that take in more than they should, and pending
// references, from what flushes commit, and calls for whoever looks after them. Owned by commit, but for run.
type nudges struct {
	*Worker
	meters map[topic.SegmentID]*meter
	last   map[nudge]time.Time
	queue  chan nudge
}

// nudge is one call.
type nudge struct {
	topic string
	refs  bool // it is its references, and not its load
}

func (n nudge) String() string {
	if n.refs {
		return "pending references of " + n.topic
	}
	return "load of " + n.topic
}

// meter counts what a segment has taken in since a time.
type meter struct {
	since          time.Time
	bytes, records float64
}

func (w *Worker) newNudges() *nudges {
	return &nudges{Worker: w, meters: map[topic.SegmentID]*meter{}, last: map[nudge]time.Time{}, queue: make(chan nudge, nudgeQueue)}
}

// flushed looks at what a flush has brought to the segments. It never blocks.
func (n *nudges) flushed(settled []*group) {
	now := n.Now()
	for _, part := range settled {
		if n.Nudger != nil && n.over(part, now) {
			n.send(nudge{topic: part.topic}, now)
		}
		if n.FollowUp != nil && len(part.outcome.Chunk.Pending) > 0 {
			n.send(nudge{part.topic, true}, now)
		}
	}
}

// over tells whether a segment takes in too much with this group: more than a
// second's worth in less than a second, or more per second in the time since it
// was last measured. What the first flush brings has come in nobody knows since
// when, and does not count.
func (n *nudges) over(part *group, now time.Time) bool {
	m := n.meters[part.segment.ID]
	if m == nil {
		if len(n.meters) >= maxMeters {
			clear(n.meters)
		}
		n.meters[part.segment.ID] = &meter{since: now}
		return false
	}
	m.bytes += float64(part.outcome.Chunk.Bytes)
	m.records += float64(part.outcome.Chunk.Count)
	took := now.Sub(m.since)
	seconds := max(took, nudgeSpan).Seconds()
	over := m.bytes > n.NudgeBytes*seconds || m.records > n.NudgeRecords*seconds
	if over || took >= nudgeSpan {
		*m = meter{since: now}
	}
	return over
}

func (n *nudges) send(call nudge, now time.Time) {
	// Load goes on, and is seen again; a pending reference is told of once.
	if !call.refs && now.Sub(n.last[call]) < nudgeEvery {
		return
	}
	select {
	case n.queue <- call:
	default:
		return
	}
	if call.refs {
		return
	}
	if len(n.last) >= maxMeters {
		clear(n.last)
	}
	n.last[call] = now
}

// close says that no more flushes come.
func (n *nudges) close() { close(n.queue) }

// run sends nudges until close, or until ctx ends. When one fails, so would those
// that wait behind it: they are dropped.
func (n *nudges) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case call, more := <-n.queue:
			if !more {
				return
			}
			if err := n.nudge(ctx, call); err != nil {
				n.Logger.Debug("could not call somebody", "for", call, "err", err)
				n.drop()
				continue
			}
			if !call.refs {
				n.Metrics.nudges.Inc()
			}
		}
	}
}

func (n *nudges) nudge(ctx context.Context, call nudge) error {
	ctx, cancel := context.WithTimeout(ctx, nudgeLimit)
	defer cancel()
	if call.refs {
		return n.FollowUp.Nudge(ctx, call.topic)
	}
	return n.Nudger.Nudge(ctx, call.topic)
}

func (n *nudges) drop() {
	for {
		select {
		case _, more := <-n.queue:
			if !more {
				return
			}
		default:
			return
		}
	}
}
