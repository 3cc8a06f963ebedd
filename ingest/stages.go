package ingest

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// stages are what a flush goes through, side by side, each with one flush.
type stages struct {
	gather          func(ctx context.Context, out chan<- *flush) error
	prepare, commit func(context.Context, *flush) error
}

// run has flushes gathered, prepared and committed until gather ends, and all that it
// gave is committed. What fails ends all three stages.
func (a *appender) run(ctx context.Context, s stages) error {
	outer := ctx
	g, ctx := errgroup.WithContext(ctx)
	gathered, prepared := make(chan *flush), make(chan *flush)
	var faults [3]error
	g.Go(func() error {
		defer close(gathered)
		faults[0] = s.gather(ctx, gathered)
		return faults[0]
	})
	g.Go(func() error {
		defer close(prepared)
		faults[1] = each(ctx, gathered, func(f *flush) error {
			if err := s.prepare(ctx, f); err != nil {
				return err
			}
			return send(ctx, prepared, f)
		})
		return faults[1]
	})
	g.Go(func() error {
		a.nudges.run(ctx)
		return nil
	})
	g.Go(func() error {
		defer a.nudges.close()
		faults[2] = each(ctx, prepared, func(f *flush) error { return s.commit(ctx, f) })
		return faults[2]
	})
	first := g.Wait()
	if first == nil || outer.Err() == nil {
		return first
	}
	// Told to end: the stage that was first to do so knows less of what kept it
	// up than one that had asked the filer.
	return errors.Join(faults[:]...)
}

func each(ctx context.Context, in <-chan *flush, do func(*flush) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case f, ok := <-in:
			if !ok {
				return nil
			}
			if err := do(f); err != nil {
				return err
			}
		}
	}
}

func send(ctx context.Context, out chan<- *flush, f *flush) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case out <- f:
		return nil
	}
}
