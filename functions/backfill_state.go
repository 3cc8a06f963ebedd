package functions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
)

// keepPeriod is between two signs of life of a run, with each of which it sees what
// became of the job meanwhile.
const keepPeriod = 5 * time.Second

// keep shows that the run is alive until ctx ends, and ends the run when the job is
// not to be worked on any more. That the state cannot be reached is no reason to end.
func (j *job) keep(ctx context.Context) {
	tick := time.NewTicker(keepPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		call, cancel := context.WithTimeout(ctx, backfill.RunnerLease/2)
		s, err := j.jobs.Update(call, j.ID, j.renew)
		cancel()
		var held *backfill.HeldError
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, &held):
			j.end(err)
		case errors.Is(err, backfill.ErrNoJob):
			j.end(j.gone(ctx, err))
		case err != nil:
			j.log.Warn("the state of a backfill job cannot be reached; the work goes on", "err", err)
		case s.Phase != backfill.Open:
			j.end(&JobEndedError{j.Topic, j.ID, s.Phase, s.Reason})
		default:
			j.adopt(s)
		}
	}
}

// gone is why there is no job any more.
func (j *job) gone(ctx context.Context, err error) error {
	switch t, fault := j.deps.Store.Topic(ctx, j.Topic); {
	case isGone(fault):
		return fault
	case fault == nil && t.Incarnation != j.Incarnation:
		return fmt.Errorf("topic %q was made again: %w", j.Topic, ingest.ErrTopicGone)
	}
	return err
}

// renew is a sign of life, or takes a job back of which it was forgotten that this run
// has it.
func (j *job) renew(s *backfill.State) error {
	err := s.Renew(j.now(), j.runID)
	if !errors.Is(err, backfill.ErrNoRunner) {
		return err
	}
	if s.Phase != backfill.Open {
		return nil
	}
	return s.Claim(j.now(), j.runID, j.host)
}

// adopt goes on under the limits that are in force now.
func (j *job) adopt(s backfill.State) {
	j.mu.Lock()
	j.state = s
	j.mu.Unlock()
	j.limits.set(s.Limits)
}

// settle notes how the run has ended, and gives the job back. cause is why it ended
// before its sources did.
func (j *job) settle(ctx context.Context, cause error) (backfill.Summary, error) {
	p, err := j.jobs.Progress(ctx, j.Job)
	if err != nil {
		p = j.progress()
	} else if p.Done() {
		cause = nil
	}
	change, ended := j.ending(p, cause)
	s, fault := j.jobs.Update(ctx, j.ID, change)
	switch {
	case fault == nil && ended == nil && s.Phase == backfill.Cancelled: // at the same time
		ended = &JobEndedError{j.Topic, j.ID, s.Phase, s.Reason}
	case fault != nil && ended == nil:
		ended = &RetryError{fmt.Errorf("all of job %s is done, and that could not be noted: %w", j.ID, fault)}
	case fault != nil:
		j.log.Warn("how a run ended could not be noted", "err", fault)
	}
	if j.o.Progress != nil {
		j.o.Progress(j.first.until(j.now(), p))
	}
	return summaryOf(s, p), ended
}

// summaryOf is the summary of a job, also of one that has not ended.
func summaryOf(s backfill.State, p backfill.Progress) backfill.Summary {
	if s.Summary != nil {
		return *s.Summary
	}
	return p.Summary(time.Duration(s.Worked))
}

// ending is what becomes of the state of a job, and of its run.
func (j *job) ending(p backfill.Progress, cause error) (change func(*backfill.State) error, ended error) {
	var rejects *tooManyRejects
	release := func(s *backfill.State) {
		s.Release(j.now(), j.runID)
		s.Summarise(p)
	}
	switch {
	case cause == nil && p.Done():
		return func(s *backfill.State) error {
			if s.Phase == backfill.Cancelled { // which stays; the caller sees it
				release(s)
				return nil
			}
			return s.Finish(j.now(), j.runID, p)
		}, nil
	case errors.As(cause, &rejects), errors.Is(cause, ingest.ErrTooManyFailures):
		stopped := &JobStoppedError{j.Topic, j.ID, cause}
		return func(s *backfill.State) error {
			s.Stop(j.now(), j.runID, stopped.reason(), p)
			return nil
		}, stopped
	case cause == nil, errors.Is(cause, context.Canceled):
		cause = &RetryError{errors.Join(errStaysOpen, faultOf(cause))}
	}
	return func(s *backfill.State) error { release(s); return nil }, cause
}

// errStaysOpen says that a run was told to end.
var errStaysOpen = errors.New("the job stays open: what was read is committed, and the next run goes on from there")

// faultOf is what kept a run that was told to end, if anything did.
func faultOf(cause error) error {
	if cause == context.Canceled { //nolint:errorlint // alone it says nothing
		return nil
	}
	return cause
}

// tooManyRejects says that more rows were rejected than the job's limit allows.
type tooManyRejects struct {
	rejected, rows uint64
	most           uint32 // millionths
}

func (e *tooManyRejects) Error() string {
	return fmt.Sprintf("%.3g %% of rows rejected (%d of %d), more than %.3g %%",
		100*float64(e.rejected)/float64(max(e.rows, 1)), e.rejected, e.rows, float64(e.most)/10_000)
}

// JobStoppedError says that a run has stopped its job, since somebody has to look at
// it. The job is to be resumed, or cancelled.
type JobStoppedError struct {
	Topic, Job string
	Err        error // why
}

func (e *JobStoppedError) reason() string { return e.Err.Error() }

func (e *JobStoppedError) Error() string {
	var rejects *tooManyRejects
	if errors.As(e.Err, &rejects) {
		return fmt.Sprintf("stopped: %v: look at them with `spillway read %s --rejected`, and go on with `spillway backfill resume %s %s --max-rejects …`, or cancel the job",
			e.Err, e.Topic, e.Topic, e.Job)
	}
	return fmt.Sprintf("stopped: %v: look at them with `spillway backfill describe %s %s`, and cancel the job", e.Err, e.Topic, e.Job)
}

func (e *JobStoppedError) Unwrap() error { return e.Err }

// JobEndedError says that a job is not open, so that nobody works on it.
type JobEndedError struct {
	Topic, Job string
	Phase      backfill.Phase
	Reason     string
}

func (e *JobEndedError) Error() string {
	text := fmt.Sprintf("job %s is %s", e.Job, e.Phase)
	if e.Reason != "" {
		text += ": " + e.Reason
	}
	switch e.Phase {
	case backfill.Paused, backfill.Stopped:
		text += fmt.Sprintf("; `spillway backfill resume %s %s` goes on", e.Topic, e.Job)
	case backfill.Cancelled:
		text += "; what was committed stays"
	}
	return text
}

// DeniedError says that access to objects was denied for long.
type DeniedError struct{ Err error }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("the objects cannot be read, and the job stays open: %v", e.Err)
}

func (e *DeniedError) Unwrap() error { return e.Err }

// jobOutcome sorts an error of a run into who can do something about it.
func jobOutcome(err error) error {
	var ended *JobEndedError
	var stopped *JobStoppedError
	var denied *DeniedError
	var elsewhere *ElsewhereError
	var held *backfill.HeldError
	var id *backfill.IDError
	switch {
	case err == nil, ExitCode(err) != ExitBug:
		return err
	case errors.As(err, &ended), errors.As(err, &stopped), errors.As(err, &denied), errors.As(err, &elsewhere),
		errors.Is(err, backfill.ErrNoJob), errors.Is(err, backfill.ErrNoCheckpoint), errors.Is(err, ingest.ErrTopicGone),
		errors.Is(err, segment.ErrNoTopic), errors.Is(err, segment.ErrDeleting):
		return &ConfigError{err}
	case errors.As(err, &id):
		return &UsageError{err}
	case errors.As(err, &held):
		return &RetryError{err}
	}
	return outcome(err)
}
