package client

import (
	"context"
	"fmt"
)

// Pending is a record on its way. Its methods may be called concurrently.
type Pending struct {
	batch *batch
	row   uint32
	level Level
}

// Done is closed when the record's outcome is known, at the level that it was
// published with.
func (p *Pending) Done() <-chan struct{} {
	if p.level == Stored {
		return p.batch.stored
	}
	return p.batch.acked
}

// Wait returns the record's outcome, or ctx's error if that comes first; the
// record goes on its way all the same, and Wait may be called again.
//
// For a record published with [Stored] the receipt is valid, at level
// [Buffered], beside an error if the lane has taken the record.
func (p *Pending) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-p.Done():
		return p.outcome()
	default:
	}
	select {
	case <-p.Done():
		return p.outcome()
	case <-ctx.Done():
	}
	err := fmt.Errorf("wait for a record of topic %s to be %v: %w", p.batch.topic, p.level, context.Cause(ctx))
	select {
	case <-p.batch.acked:
		if p.batch.err != nil {
			return Receipt{}, p.batch.err
		}
		return p.receipt(Buffered), &UnconfirmedError{Err: err}
	default:
		return Receipt{}, err
	}
}

func (p *Pending) outcome() (Receipt, error) {
	switch {
	case p.batch.err != nil:
		return Receipt{}, p.batch.err
	case p.level == Stored && p.batch.storedErr != nil:
		return p.receipt(Buffered), p.batch.storedErr
	}
	return p.receipt(p.level), nil
}

func (p *Pending) receipt(l Level) Receipt {
	r := p.batch.receipt
	r.Row, r.Level = p.row, l
	return r
}
