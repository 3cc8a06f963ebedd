package backfill

import (
	"errors"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// The transitions of a state. They are pure; [Jobs.Update] makes them happen. Those
// that somebody asks for are no error if they have happened already.

// ErrNoRunner says that no run has the job.
var ErrNoRunner = errors.New("no run works on the job")

// Pause has nobody work on the job until it is resumed.
func (s *State) Pause(reason string) error {
	switch s.Phase {
	case Open:
		s.Phase, s.Reason = Paused, reason
		return nil
	case Paused:
		return nil
	}
	return &PhaseError{"pause", s.Phase}
}

// Resume lets the job be worked on again, after a pause or after it has stopped
// itself.
func (s *State) Resume() error {
	switch s.Phase {
	case Paused, Stopped:
		s.Phase, s.Reason, s.Summary = Open, "", nil
		return nil
	case Open:
		return nil
	}
	return &PhaseError{"resume", s.Phase}
}

// Cancel ends the job for good, where it is. What was committed stays.
func (s *State) Cancel(now time.Time, reason string) error {
	switch s.Phase {
	case Cancelled:
		return nil
	case Done:
		return &PhaseError{"cancel", s.Phase}
	}
	s.Phase, s.Reason, s.Ended = Cancelled, reason, stamp(now)
	return nil
}

// Claim makes a run of a host the one that works on the job. A [*PhaseError] says
// that the job is not open, a [*HeldError] that another run is at it. A run that has
// the job already keeps it.
func (s *State) Claim(now time.Time, id, host string) error {
	now = stamp(now)
	switch {
	case s.Phase != Open:
		return &PhaseError{"work on", s.Phase}
	case s.Runner != nil && s.Runner.ID == id:
		return s.Renew(now, id)
	case s.Runner != nil && now.Before(s.Runner.Until) && s.Runner.Until.Sub(now) <= 2*RunnerLease: // as clocks may differ
		return &HeldError{*s.Runner}
	}
	// What a run ended with that has gone without a word counts up to where it was
	// last seen, and is counted already.
	s.Runner = &Runner{ID: id, Host: host, Since: now, Seen: now, Until: now.Add(RunnerLease)}
	s.Runs++
	if s.Started.IsZero() {
		s.Started = now
	}
	return nil
}

// Renew is a sign of life of the run that has the job: every 10 s or so. A
// [*HeldError] says that another one has it by now, [ErrNoRunner] that none has, as it
// is at its end; no harm is done until the run notices.
// That the job is not open any more is no error here: the run looks at the state
// that it gets, and ends.
func (s *State) Renew(now time.Time, id string) error {
	if s.Runner == nil {
		return ErrNoRunner
	}
	if s.Runner.ID != id {
		return &HeldError{*s.Runner}
	}
	now = stamp(now)
	r := *s.Runner
	s.Worked += topic.Duration(max(now.Sub(r.Seen), 0))
	r.Seen, r.Until = now, now.Add(RunnerLease)
	s.Runner = &r
	return nil
}

// Release says that a run has ended, for whatever reason, and the job is open to
// others. It is nothing for a run that has not got the job.
func (s *State) Release(now time.Time, id string) {
	if s.Renew(now, id) == nil {
		s.Runner = nil
	}
}

// Finish ends the job, as all of its sources are at their ends. Any run may say so
// that has seen it; a job that was cancelled meanwhile stays so.
func (s *State) Finish(now time.Time, id string, p Progress) error {
	switch s.Phase {
	case Cancelled:
		return &PhaseError{"finish", s.Phase}
	case Done:
		return nil
	}
	s.Release(now, id)
	s.Phase, s.Reason, s.Ended, s.Runner = Done, "", stamp(now), nil
	s.summarise(p)
	return nil
}

// Stop is called by a run that stops the job, and says why. The run ends with it.
// It is nothing for a job that is not open any more.
func (s *State) Stop(now time.Time, id, reason string, p Progress) {
	if s.Phase == Open {
		s.Release(now, id)
		s.Phase, s.Reason = Stopped, reason
		s.summarise(p)
	}
}

// Summarise notes what was done of a job that was cancelled, which a run may still
// have gone on with for a moment.
func (s *State) Summarise(p Progress) {
	if s.Phase == Cancelled {
		s.summarise(p)
	}
}

func (s *State) summarise(p Progress) {
	sum := p.Summary(time.Duration(s.Worked))
	s.Summary = &sum
}

// stamp is a time as states keep it.
func stamp(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// clone shares nothing with s that transitions change.
func (s State) clone() State {
	if s.Runner != nil {
		r := *s.Runner
		s.Runner = &r
	}
	if s.Limits.MaxRejects != nil {
		m := *s.Limits.MaxRejects
		s.Limits.MaxRejects = &m
	}
	return s
}

// fewRows is below how many rows a share of rejects is taken of so many: of the
// first two rows one alone says nothing.
const fewRows = 1000

// TooMany tells whether more rows were rejected than the limit allows, of all that
// were looked at. Of fewer than 1,000 rows a share is taken as of 1,000.
func (l Limits) TooMany(rejected, rows uint64) bool {
	const million = 1_000_000
	return l.MaxRejects != nil && float64(rejected)*million > float64(*l.MaxRejects)*float64(max(rows, fewRows))
}
