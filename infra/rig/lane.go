package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
)

// pollEvery is how often a state is looked at that nobody announces.
const pollEvery = 20 * time.Millisecond

// Lane is the default lane as it is known after [Env.WaitLane].
type Lane struct {
	env    *Env
	id     lane.ID
	source string
}

// WaitLane waits until a worker has made the default lane.
func (e *Env) WaitLane(ctx context.Context) (*Lane, error) {
	id := lane.ID{Group: lane.Default}
	for {
		info, err := lane.Open(ctx, e.JS, id)
		if err == nil {
			return &Lane{e, id, id.Source(info.Incarnation)}, nil
		}
		if !errors.Is(err, lane.ErrNoLane) {
			return nil, err
		}
		if err := Pause(ctx, pollEvery); err != nil {
			return nil, fmt.Errorf("wait for a worker to make lane %s: %w", id, err)
		}
	}
}

// Last is the sequence of the last message in the lane.
func (l *Lane) Last(ctx context.Context) (uint64, error) {
	info, err := lane.Open(ctx, l.env.JS, l.id)
	return info.Last, err
}

// Bytes is how many bytes the lane's stream holds, headers included.
func (l *Lane) Bytes(ctx context.Context) (uint64, error) {
	s, err := l.env.JS.Stream(ctx, l.id.Stream())
	if err != nil {
		return 0, err
	}
	return s.CachedInfo().State.Bytes, nil
}

// Checkpoint is the sequence up to which everything is committed on the filer,
// as the checkpoint's file says.
func (l *Lane) Checkpoint(ctx context.Context) (uint64, error) {
	c, _, err := l.env.Store.CheckpointFile(l.source).Load(ctx)
	return c.Sequence, err
}

// WaitDrained waits until everything that is in the lane now is committed.
func (l *Lane) WaitDrained(ctx context.Context) error {
	last, err := l.Last(ctx)
	if err != nil {
		return err
	}
	for {
		at, err := l.Checkpoint(ctx)
		if err == nil && at >= last {
			return nil
		}
		if paused := Pause(ctx, pollEvery); paused != nil {
			return errors.Join(fmt.Errorf("lane %s is not drained: checkpoint %d, last message %d: %w", l.id, at, last, paused), err)
		}
	}
}

// Pause waits for a while, or until the context ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
