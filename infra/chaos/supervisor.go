package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/infra/rig"
)

// restartAfter is how long the supervisor waits before it starts a worker again
// that ended by itself, as one does that finds nothing to talk to.
const restartAfter = 300 * time.Millisecond

// supervisor keeps one ingest worker running.
type supervisor struct {
	env      *rig.Env
	kills    chan kill
	restarts atomic.Int64 // of workers that ended by themselves
}

// kill asks for the worker to be killed, and for another after a pause.
type kill struct {
	pause time.Duration
	done  chan<- struct{} // closed once the worker is gone
}

func newSupervisor(env *rig.Env) *supervisor { return &supervisor{env: env, kills: make(chan kill)} }

// run keeps a worker running until the context ends; then it stops it with
// SIGTERM. A worker that ends otherwise than by asking for another try is an
// error.
func (s *supervisor) run(ctx context.Context) error {
	for ctx.Err() == nil {
		w, err := s.env.StartWorker()
		if err != nil {
			return err
		}
		var pause time.Duration
		select {
		case <-ctx.Done():
			return w.Stop()
		case k := <-s.kills:
			w.Kill()
			close(k.done)
			pause = k.pause
		case <-w.Done():
			if !w.Retry() {
				return w.Err()
			}
			s.restarts.Add(1)
			pause = restartAfter
		}
		if rig.Pause(ctx, pause) != nil {
			return nil //nolint:nilerr // told to end
		}
	}
	return nil
}

// kill ends the worker with SIGKILL and returns when it is gone. Another is
// started after the pause.
func (s *supervisor) kill(ctx context.Context, pause time.Duration) error {
	done := make(chan struct{})
	select {
	case s.kills <- kill{pause, done}:
	case <-ctx.Done():
		return errors.Join(errors.New("there was no worker to kill"), context.Cause(ctx))
	}
	<-done
	return nil
}
