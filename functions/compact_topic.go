package functions

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TopicOptions of a compaction in the foreground.
type TopicOptions struct {
	CompactOptions                 // Period, Once and Deadline do not matter
	Topic          string          //
	Segment        topic.SegmentID // only this one; empty: all sealed ones
	// Waiting is told once that another compactor is at the topic; nil: nobody is.
	Waiting func()
	// Wait is how long to wait for it; 0: DefaultCompactWait.
	Wait time.Duration
}

// DefaultCompactWait is enough for the lease of a compactor that died to end.
const DefaultCompactWait = time.Minute

// heldPause is between two tries to get at a topic that another compactor is at.
const heldPause = time.Second

// foregroundGrace is how long what is under way may take when the command is to end.
const foregroundGrace = 3 * time.Second

// CompactTopic does what is due of a topic, for somebody who waits for it. When ctx ends
// what was begun is left as it is, which is safe: the report says what was done, and
// whoever comes next goes on. d.NATS is not needed. Errors have their exit code by
// [ExitCode]; that some segments are quarantined, or wait, is in the report alone.
func CompactTopic(ctx context.Context, d Deps, o TopicOptions) (r compactor.Report, err error) {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(foregroundGrace, cancel) })()
	c := NewCompactor(d, o.CompactOptions)
	look := func() (compactor.Report, error) {
		if o.Segment != "" {
			return c.Segment(hard, ctx, o.Topic, o.Segment)
		}
		return c.Topic(hard, ctx, o.Topic)
	}
	if r, err = look(); err == nil && r.Held {
		r, err = whileHeld(ctx, o, look)
	}
	switch {
	case err == nil && r.Held:
		err = &RetryError{fmt.Errorf("another compactor is at topic %q", o.Topic)}
	case isGone(err):
	case err != nil && ctx.Err() != nil:
		r.Cut, err = true, nil
	default:
		err = compactFault(err)
	}
	return r, err
}

// whileHeld looks again until the topic is free.
func whileHeld(ctx context.Context, o TopicOptions, look func() (compactor.Report, error)) (r compactor.Report, err error) {
	if o.Waiting != nil {
		o.Waiting()
	}
	if o.Wait == 0 {
		o.Wait = DefaultCompactWait
	}
	wait, cancel := context.WithTimeout(ctx, o.Wait)
	defer cancel()
	tick := time.NewTicker(heldPause)
	defer tick.Stop()
	for r.Held = true; err == nil && r.Held; {
		select {
		case <-wait.Done():
			return r, nil
		case <-tick.C:
			r, err = look()
		}
	}
	return r, err
}

// compactFault sorts an error of compacting.
func compactFault(err error) error { return outcome(CatalogOutcome(err)) }
