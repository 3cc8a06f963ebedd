package devstack

import (
	"context"
	"fmt"
)

// KillWeed ends weed with SIGKILL. What SeaweedFS acknowledged is still there
// after [Stack.RestartWeed]; the last minute of its log of metadata events is
// not. Killing it twice does nothing.
func (s *Stack) KillWeed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.weed == nil {
		return nil
	}
	return s.weed.kill()
}

// RestartWeed starts weed, after stopping it if it runs, and returns when it can
// be written to.
func (s *Stack) RestartWeed(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.weed == nil {
		return fmt.Errorf("restart weed: the stack has none")
	}
	if err := s.stopWeed(ctx); err != nil {
		return err
	}
	w, err := s.startWeed(ctx)
	if err != nil {
		return err
	}
	s.weed = w
	return nil
}

// KillNATS ends the nats-server with SIGKILL. It must be a child
// ([Config.NATSChild]), else this is [ErrInProcess].
func (s *Stack) KillNATS() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return nil
	}
	return s.nats.kill()
}

// RestartNATS starts the nats-server, after stopping it if it runs, and returns
// when JetStream answers.
func (s *Stack) RestartNATS(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nats == nil {
		return fmt.Errorf("restart the nats-server: the stack has none")
	}
	if err := s.stopNATS(ctx); err != nil {
		return err
	}
	n, err := s.startNATS(ctx)
	if err != nil {
		return err
	}
	s.nats = n
	return nil
}

// stopWeed stops weed if it runs. The caller holds mu.
func (s *Stack) stopWeed(ctx context.Context) error {
	if s.weed == nil || !s.weed.running() {
		return nil
	}
	clean, err := s.weed.stop(ctx, weedGrace)
	if !clean {
		s.log.Warn("weed did not stop in time and was killed")
	}
	return err
}

// stopNATS stops the nats-server if it runs. The caller holds mu.
func (s *Stack) stopNATS(ctx context.Context) error {
	if s.nats == nil || !s.nats.running() {
		return nil
	}
	clean, err := s.nats.stop(ctx, natsGrace)
	if !clean {
		s.log.Warn("the nats-server did not stop in time and was killed")
	}
	return err
}
