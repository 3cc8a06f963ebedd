package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/infra/rig"
)

// restartAfter is how long a supervisor waits before it starts a process again
// that ended by itself, as one does that finds nothing to talk to.
const restartAfter = 300 * time.Millisecond

// supervisor keeps one process running: a worker, a planner, a backfill.
type supervisor struct {
	start    func() (*rig.Process, error)
	kills    chan kill
	over     func(context.Context) bool // asked about a process that ended: was it the last? Nil: never
	restarts atomic.Int64               // of processes that ended by themselves
}

// kill asks for the process to be killed, and for another after a pause.
type kill struct {
	pause time.Duration
	done  chan<- struct{} // closed once the process is gone
}

func newSupervisor(start func() (*rig.Process, error)) *supervisor {
	return &supervisor{start: start, kills: make(chan kill)}
}

// run keeps a process running until the context ends; then it stops it with
// SIGTERM. One that ends otherwise than by asking for another try is an error.
func (s *supervisor) run(ctx context.Context) error {
	for ctx.Err() == nil {
		p, err := s.start()
		if err != nil {
			return err
		}
		var pause time.Duration
		select {
		case <-ctx.Done():
			return p.Stop()
		case k := <-s.kills:
			p.Kill()
			close(k.done)
			pause = k.pause
		case <-p.Done():
			if s.over != nil && s.over(ctx) {
				return nil
			}
			if !p.Retry() {
				return p.Err()
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

// kill ends the process with SIGKILL and returns when it is gone. Another is
// started after the pause.
func (s *supervisor) kill(ctx context.Context, pause time.Duration) error {
	done := make(chan struct{})
	select {
	case s.kills <- kill{pause, done}:
	case <-ctx.Done():
		return errors.Join(errors.New("there was no process to kill"), context.Cause(ctx))
	}
	<-done
	return nil
}
