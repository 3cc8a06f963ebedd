package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/lane"
)

// acked takes a batch's outcome in the lane from its sender. Failures are noted
// before anybody can see them, so that a Flush after a Wait tells of them.
func (p *Producer) acked(l *laneOut, b *batch, err error) {
	b.err = err
	if err != nil {
		p.noteFailure(b.rows, err)
	} else {
		l.took(b)
	}
	close(b.acked)
	p.room.Release(b.cost)
	switch {
	case b.stored == nil:
		l.in.forget(b)
	case err != nil:
		close(b.stored)
		l.in.forget(b)
	default:
		p.watchStored(l, b)
	}
}

// watchStored waits, without a goroutine, for the batch to be stored.
func (p *Producer) watchStored(l *laneOut, b *batch) {
	done := func(err error) {
		b.storedErr = storedError(b, err)
		if err != nil {
			p.noteFailure(b.rows, b.storedErr)
		}
		close(b.stored)
		l.in.forget(b)
	}
	if l.commits == nil {
		c, err := lane.Watch(p.ctx, p.nc, p.js, l.id)
		if err != nil {
			done(err) // the next batch tries again
			return
		}
		l.commits = c
	}
	l.commits.Notify(b.receipt.Incarnation, b.receipt.Sequence, done)
}

// storedError says what it means that the watch of a batch in a lane ended so.
func storedError(b *batch, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lane.ErrIncarnation):
		return &UnknownOutcomeError{Lane: b.receipt.Lane, Producer: b.producer, Sequence: b.sequence, Err: err}
	case errors.Is(err, lane.ErrWatchClosed):
		return &UnconfirmedError{Err: ErrClosed}
	}
	return &UnconfirmedError{Err: err}
}

func (p *Producer) noteFailure(records int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed += records
	if p.firstErr == nil {
		p.firstErr = err
	}
}

// Flush sends partial batches now and waits until every record handed in before
// has its outcome, at the level that it was published with. It returns ctx's
// error if that comes first, else [*FailedError] if records have failed since
// the last Flush.
func (p *Producer) Flush(ctx context.Context) error {
	var waitFor []<-chan struct{}
	for _, l := range p.routes.all() {
		waitFor = append(waitFor, l.in.flush()...)
	}
	for _, settled := range waitFor {
		select {
		case <-settled:
		case <-ctx.Done():
			return fmt.Errorf("flush: %w", context.Cause(ctx))
		}
	}
	return p.failures()
}

// failures reports once what failed.
func (p *Producer) failures() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failed == 0 {
		return nil
	}
	err := &FailedError{Records: p.failed, First: p.firstErr}
	p.failed, p.firstErr = 0, nil
	return err
}

// Close refuses further records, flushes, and ends the producer. When ctx ends
// first, what has no outcome by then fails: with [*UnknownOutcomeError] if it
// was on its way, with [*UnavailableError] if it was not, with
// [*UnconfirmedError] if it is in a lane and was to be stored. Calls after the
// first return what that returned.
func (p *Producer) Close(ctx context.Context) error {
	p.closeOnce.Do(func() {
		p.shut()
		lanes := p.routes.close()
		for _, l := range lanes {
			l.in.close()
		}
		err := p.Flush(ctx)
		p.stop(ErrClosed)
		_ = p.group.Wait() // its functions return nil
		for _, l := range lanes {
			if l.commits != nil {
				l.commits.Close()
			}
		}
		p.js.CleanupPublisher()
		if p.ownsNC {
			p.nc.Close()
		}
		if failed := p.failures(); err == nil {
			err = failed
		}
		p.closeErr = err
	})
	return p.closeErr
}
