package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/segment"
)

// commit makes a flush count, and tells of it.
func (s *session) commit(ctx context.Context, f *flush) error {
	if err := s.appender.commit(ctx, f); err != nil {
		return err
	}
	s.announce(ctx)
	return s.trim(ctx)
}

// shows compares a committed position with the lane (rule 17). A message that
// was trimmed cannot be compared any more; trimming lags far enough behind.
func (s *session) shows(ctx context.Context, p segment.SourcePosition) error {
	t, err := s.Lane.TimeOf(ctx, p.At.Sequence)
	if err == nil && t.UnixMicro() == p.Time.UnixMicro() {
		return nil
	}
	shown := "nothing"
	switch {
	case err == nil:
		shown = "a message of " + t.UTC().Format(time.RFC3339Nano)
	case !errors.Is(err, ErrNoMessage):
		return err
	default:
		state, err := s.Lane.State(ctx)
		if err != nil || p.At.Sequence < state.First {
			return err
		}
	}
	return fmt.Errorf("%s at %s: committed %s, the lane shows %s: %w", p.Source, p.At, p.Time.Format(time.RFC3339Nano), shown, segment.ErrSourceWentBack)
}

// after is the checkpoint at the end of a flush, with the tables of producers and
// objects in the same write (rules 15 and 20).
func (s *session) after(f *flush) segment.Checkpoint {
	next := s.checkpoint.Advance(f.last, f.lastTime, f.seen).WithObjects(f.objects.Rows())
	if s.Mutant.Has(mutant.ForgetProducers) {
		next.Producers, next.Objects = s.checkpoint.Producers, s.checkpoint.Objects
	}
	next, below := next.Mark(s.Now(), s.TrimLag)
	s.trimBelow = max(s.trimBelow, below)
	return next
}

// announce tells publishers; they poll when they miss it, so a failure is only
// noted.
func (s *session) announce(ctx context.Context) {
	if err := s.Lane.Announce(ctx, s.incarnation, s.checkpoint.Sequence); err != nil {
		s.Logger.Warn("could not announce the checkpoint", "checkpoint", s.checkpoint.Sequence, "err", err)
	}
}

// trimEvery is how often a lane is looked at for trimming.
const trimEvery = time.Second

// trim deletes what was committed long enough ago, or, when the lane is more
// than half full, everything that is committed. The witness stays. A failure
// costs space only, and is tried again.
func (s *session) trim(ctx context.Context) error {
	now := s.Now()
	if now.Sub(s.sinceTrim) < trimEvery {
		return nil
	}
	s.sinceTrim = now
	state, err := s.Lane.State(ctx)
	if err != nil {
		s.Logger.Warn("could not look whether to trim", "err", err)
		return nil
	}
	s.Metrics.lane(state, s.checkpoint.Sequence)
	below := s.trimBelow
	if state.MaxBytes > 0 && state.Bytes > state.MaxBytes/2 {
		below = s.checkpoint.Sequence
	}
	if below = min(below, s.checkpoint.Sequence); below <= s.trimmed || below <= state.First {
		return nil
	}
	if err := s.Lane.Trim(ctx, below); err != nil {
		s.Logger.Warn("could not trim", "below", below, "err", err)
		return nil
	}
	s.trimmed = below
	return nil
}
