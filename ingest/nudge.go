package ingest

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Nudger asks for a topic to be looked after soon: to be planned, its pending
// references to be followed up, or its jobs to be worked on. A nudge is a hint: one that fails is forgotten,
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

// nudges finds the segments that take in more than they should, pending references
// and new jobs from what flushes commit, and calls for whoever looks after them. Owned by commit, but for run.
type nudges struct {
	load, refs, jobs Nudger // nil: nobody is told
	bytes, records   float64
	now              func() time.Time
	logger           *slog.Logger
	metrics          *Metrics

	meters map[topic.SegmentID]*meter
	last   map[nudge]time.Time
	queue  chan nudge
}

// nudge is one call.
type nudge struct {
	topic string
	about concern
}

// concern is what a nudge is about.
type concern string

const (
	aboutLoad concern = "load"
	aboutRefs concern = "pending references"
	aboutJobs concern = "jobs"
)

func (n nudge) String() string { return string(n.about) + " of " + n.topic }

// meter counts what a segment has taken in since a time.
type meter struct {
	since          time.Time
	bytes, records float64
}

// newNudges returns n, ready for the first flush.
func newNudges(n nudges) *nudges {
	n.meters, n.last, n.queue = map[topic.SegmentID]*meter{}, map[nudge]time.Time{}, make(chan nudge, nudgeQueue)
	return &n
}

func (w *Worker) newNudges() *nudges {
	return newNudges(nudges{
		load: w.Nudger, refs: w.FollowUp, jobs: w.Jobs, bytes: w.NudgeBytes, records: w.NudgeRecords,
		now: w.Now, logger: w.Logger, metrics: w.Metrics,
	})
}

// flushed looks at what a flush has brought to the segments. It never blocks.
func (n *nudges) flushed(settled []*group) {
	now := n.now()
	for _, part := range settled {
		if n.load != nil && n.over(part, now) {
			n.send(nudge{part.topic, aboutLoad}, now)
		}
		if n.refs != nil && len(part.outcome.Chunk.Pending) > 0 {
			n.send(nudge{part.topic, aboutRefs}, now)
		}
	}
}

// expanded tells of the jobs for references of a flush that is committed. It never
// blocks.
func (n *nudges) expanded(list []*topicRecords) {
	for _, t := range list {
		if n.jobs != nil && len(t.expand) > 0 {
			n.send(nudge{t.name, aboutJobs}, n.now())
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
	over := m.bytes > n.bytes*seconds || m.records > n.records*seconds
	if over || took >= nudgeSpan {
		*m = meter{since: now}
	}
	return over
}

func (n *nudges) send(call nudge, now time.Time) {
	// Load goes on, and is seen again; what is new is told of once.
	if call.about == aboutLoad && now.Sub(n.last[call]) < nudgeEvery {
		return
	}
	select {
	case n.queue <- call:
	default:
		return
	}
	if call.about != aboutLoad {
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
				n.logger.Debug("could not call somebody", "for", call, "err", err)
				n.drop()
				continue
			}
			if call.about == aboutLoad {
				n.metrics.nudges.Inc()
			}
		}
	}
}

func (n *nudges) nudge(ctx context.Context, call nudge) error {
	ctx, cancel := context.WithTimeout(ctx, nudgeLimit)
	defer cancel()
	switch call.about {
	case aboutRefs:
		return n.refs.Nudge(ctx, call.topic)
	case aboutJobs:
		return n.jobs.Nudge(ctx, call.topic)
	}
	return n.load.Nudge(ctx, call.topic)
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
