package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/lane"
)

// acked takes a batch's outcome in the lane from its sender.
func (p *Producer) acked(l *laneOut, b *batch, err error) {
	b.err = err
	close(b.acked)
	p.room.Release(b.cost)
	switch {
	case b.stored == nil:
		p.settled(l, b, err)
	case err != nil:
		close(b.stored)
		p.settled(l, b, err)
	default:
		p.watchStored(l, b)
	}
}

// watchStored waits, without a goroutine, for the batch to be stored.
func (p *Producer) watchStored(l *laneOut, b *batch) {
	done := func(err error) {
		switch {
		case errors.Is(err, lane.ErrIncarnation):
			b.storedErr = &UnknownOutcomeError{Lane: b.receipt.Lane, Producer: b.producer, Sequence: b.sequence, Err: err}
		case errors.Is(err, lane.ErrWatchClosed):
			b.storedErr = &UnconfirmedError{Err: ErrClosed}
		case err != nil:
			b.storedErr = &UnconfirmedError{Err: err}
		}
		close(b.stored)
		p.settled(l, b, b.storedErr)
	}
	if l.commits == nil {
		var err error
		if l.commits, err = lane.Watch(p.ctx, p.nc, p.js, l.id); err != nil {
			l.commits = nil // the next batch tries again
			done(err)
			return
		}
	}
	l.commits.Notify(b.receipt.Incarnation, b.receipt.Sequence, done)
}

func (p *Producer) settled(l *laneOut, b *batch, err error) {
	l.in.forget(b)
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed += b.rows
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
	for _, l := range p.lanes {
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
		for _, l := range p.lanes {
			l.in.close()
		}
		err := p.Flush(ctx)
		p.stop(ErrClosed)
		_ = p.group.Wait() // its functions return nil
		for _, l := range p.lanes {
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
