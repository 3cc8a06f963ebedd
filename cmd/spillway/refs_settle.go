package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
)

// settlePoll is how often a lane's checkpoint is read while it is waited for.
const settlePoll = 200 * time.Millisecond

// settle waits until what was published to a topic before is in files, in whichever
// lanes it is: a topic may have been moved, and S3 events come by the default one.
func (a *app) settle(ctx context.Context, e *env, name string) error {
	ids, err := lane.List(ctx, e.js, "")
	if err != nil {
		return err
	}
	for _, id := range ids {
		info, err := lane.Look(ctx, e.js, id)
		if errors.Is(err, lane.ErrNoLane) {
			continue
		}
		holds := false
		if err == nil {
			holds, err = laneHolds(ctx, e.js, id, name)
		}
		if err == nil && holds {
			err = a.settleLane(ctx, e, info)
		}
		if err != nil {
			return fmt.Errorf("lane %s: %w", id, err)
		}
	}
	return nil
}

// laneHolds tells whether a lane has any message for a topic, committed or not. It
// asks the stream's leader, which no other answer would be as recent as.
func laneHolds(ctx context.Context, js jetstream.JetStream, id lane.ID, name string) (bool, error) {
	s, err := js.Stream(ctx, id.Stream())
	if err != nil {
		return false, err
	}
	for _, subject := range []string{id.Subject(name), lane.EventSubject(name)} {
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(subject))
		if err != nil || len(info.State.Subjects) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// settleLane waits until a lane's checkpoint has passed what the lane held when it
// was looked at. It gives up when that does not move for the timeout.
func (a *app) settleLane(ctx context.Context, e *env, info lane.Info) error {
	file := e.store.CheckpointFile(info.ID.Source(info.Incarnation))
	look := time.NewTicker(settlePoll)
	defer look.Stop()
	for at, moved := uint64(0), time.Now(); ; {
		c, _, err := file.Load(ctx)
		switch {
		case err != nil && !errors.Is(err, filer.ErrNotFound):
			return err
		case c.Sequence >= info.Last:
			return nil
		case c.Sequence > at:
			at, moved = c.Sequence, time.Now()
		case time.Since(moved) > a.cfg.Timeout:
			return &functions.RetryError{Err: fmt.Errorf("%d messages are not in files yet, and may name the same objects; does a worker run (`spillway run ingest`)?", info.Last-at)}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}
