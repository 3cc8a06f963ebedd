package commitlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/mutant"
)

// Append creates the entry after tail. f needs an ID; its Prev attribute is set
// here. On nil the entry is committed, and it counts. *LostError: somebody else
// has that number; everything that depends on the log's state must be computed
// again from the winner (rule 2). ErrVoid: it was won in a trimmed area and
// taken back; reload the tail. *ChainError: the log has forked. Any other error
// leaves the outcome unknown, and the uploaded blobs must not be discarded.
func (l *Log) Append(ctx context.Context, tail Entry, f filer.File) (Entry, error) {
	n := tail.Next()
	attrs := filer.Attrs{attrPrev: tail.ID}
	for k, v := range f.Attrs {
		attrs[k] = v
	}
	f.Attrs = attrs
	e, err := l.create(ctx, n, f)
	if errors.Is(err, filer.ErrExists) {
		return Entry{}, l.lost(ctx, tail, Entry{n, e}, errors.Is(err, filer.ErrStray))
	}
	if err != nil {
		return Entry{}, err
	}
	won := Entry{n, e}
	if l.Mutant.Has(mutant.TailBelowHead) {
		return won, nil
	}
	// Rule 3: a number below head can be created again after its deletion.
	head, _, err := l.Head(ctx)
	if err == nil && head <= n {
		return won, nil
	}
	if err != nil && !errors.Is(err, ErrNoLog) {
		return Entry{}, err
	}
	if err := l.remove(ctx, won); err != nil {
		return Entry{}, err
	}
	return Entry{}, fmt.Errorf("%s: %w", l.Path(n), ErrVoid)
}

func (l *Log) create(ctx context.Context, n uint64, f filer.File) (filer.Entry, error) {
	if !l.Mutant.Has(mutant.LostReplyIsLostRace) {
		return filer.Create(ctx, l.store, l.Path(n), f)
	}
	if err := l.store.Create(ctx, l.Path(n), f); err == nil {
		return filer.Entry{ID: f.ID, Attrs: f.Attrs, Blobs: f.Blobs, Content: f.Content}, nil
	}
	e, err := l.lookup(ctx, l.Path(n))
	if err != nil {
		return e, err
	}
	return e, filer.ErrExists
}

// lost checks that the winner continues the tail that was raced for (rule 5).
// Below head it need not: that is a number somebody else won in vain.
func (l *Log) lost(ctx context.Context, tail, winner Entry, stray bool) error {
	if winner.Prev() == tail.ID {
		return &LostError{winner, stray}
	}
	if head, _, err := l.Head(ctx); err != nil || head > winner.N {
		return errors.Join(err, fmt.Errorf("%s: %w", l.Path(winner.N), ErrVoid))
	}
	return &ChainError{Dir: l.dir, N: winner.N, Prev: winner.Prev(), Before: tail.ID}
}

// Confirm reads back an entry that was won earlier (rule 5). It fails with
// *LostError if another one is in its place. An entry that is gone because the
// log was trimmed past it since did count.
func (l *Log) Confirm(ctx context.Context, won Entry) error {
	e, err := l.At(ctx, won.N)
	switch {
	case err == nil && e.ID == won.ID:
		return nil
	case err == nil:
		return &LostError{Winner: e}
	case !errors.Is(err, filer.ErrNotFound):
		return err
	}
	head, _, err := l.Head(ctx)
	if err != nil {
		return err
	}
	if head > won.N {
		return nil
	}
	return fmt.Errorf("%s is gone: %w", l.Path(won.N), ErrWentBack)
}

// Tail finds the last entry of the log, galloping from known (the zero Entry:
// from head). For an empty log it returns the zero Entry.
func (l *Log) Tail(ctx context.Context, known Entry) (Entry, error) {
	for {
		head, _, err := l.Head(ctx)
		if err != nil {
			return Entry{}, err
		}
		base, err := l.base(ctx, known, head)
		if err != nil {
			return Entry{}, err
		}
		tail, err := l.gallop(ctx, base)
		if err != nil {
			return Entry{}, err
		}
		// Rule 4: what looks like the end counts only if head, read
		// afterwards, has not moved past it.
		after, _, err := l.Head(ctx)
		if err != nil {
			return Entry{}, err
		}
		if after <= tail.N || l.Mutant.Has(mutant.TailBelowHead) {
			return tail, nil
		}
		if after == head {
			return Entry{}, fmt.Errorf("%s: head is %d, but the last entry is %d: %w", l.dir, head, tail.N, ErrWentBack)
		}
	}
}

// base is where galloping starts: the known entry, or the one at head.
func (l *Log) base(ctx context.Context, known Entry, head uint64) (Entry, error) {
	at := head
	if known.ID != "" && (known.N >= head || l.Mutant.Has(mutant.TailBelowHead)) {
		at = known.N
	}
	e, err := l.At(ctx, at)
	switch {
	case err == nil && at == known.N && known.ID != "" && e.ID != known.ID:
		return Entry{}, fmt.Errorf("%s: entry %d was %s and is %s: %w", l.dir, at, known.ID, e.ID, ErrWentBack)
	case err == nil:
		return e, nil
	case !errors.Is(err, filer.ErrNotFound):
		return Entry{}, err
	case known.ID == "" && head == 0:
		return Entry{}, nil
	case l.Mutant.Has(mutant.TailBelowHead) && known.ID != "":
		return known, nil
	}
	// Absent: either head has moved on since, or the log went back.
	now, _, err := l.Head(ctx)
	if err != nil {
		return Entry{}, err
	}
	if now > at {
		return l.base(ctx, known, now)
	}
	return Entry{}, fmt.Errorf("%s: entry %d is gone: %w", l.dir, at, ErrWentBack)
}

// gallop probes at doubling distances above base, then halves the gap.
func (l *Log) gallop(ctx context.Context, base Entry) (Entry, error) {
	last := base
	start := base.Next()
	probe := func(n uint64) (bool, error) {
		e, err := l.At(ctx, n)
		if errors.Is(err, filer.ErrNotFound) {
			return false, nil
		}
		if err == nil {
			last = e
		}
		return err == nil, err
	}
	absent, step := start, uint64(1)
	for {
		found, err := probe(absent)
		if err != nil {
			return Entry{}, err
		}
		if !found {
			break
		}
		absent += step
		step *= 2
	}
	for last.Next() < absent {
		mid := last.Next() + (absent-last.Next())/2
		found, err := probe(mid)
		if err != nil {
			return Entry{}, err
		}
		if !found {
			absent = mid
		}
	}
	return last, nil
}
