package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/topic"
)

// faulty is an object of n rows, before each of which next may wait or fail.
type faulty struct {
	n     int
	opens int
	next  func(ctx context.Context, open, call, row int) error
}

func (*faulty) Len() uint64        { return 1 }
func (*faulty) Name(uint64) string { return "s3://box/1" }
func (o *faulty) Open(_ context.Context, _ uint64, from uint32) (RowReader, error) {
	o.opens++
	return &faultyReader{o: o, open: o.opens, row: int(from)}, nil
}

type faultyReader struct {
	o               *faulty
	open, call, row int
}

func (*faultyReader) Close() error { return nil }
func (r *faultyReader) Next(ctx context.Context) (BackfillRow, error) {
	if r.row >= r.o.n {
		return BackfillRow{}, io.EOF
	}
	r.call++
	if err := r.o.next(ctx, r.open, r.call, r.row); err != nil {
		return BackfillRow{}, err
	}
	row := BackfillRow{N: uint32(r.row), Value: fmt.Appendf(nil, "v%d", r.row)}
	r.row++
	return row, nil
}

// TestBackfillOverBadConnections: connections that break after 100 rows, each of them,
// get on all the same.
func TestBackfillOverBadConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuarry(t, topic.KeyHeader)
		objects := &faulty{n: 1000, next: func(_ context.Context, _, call, _ int) error {
			if call > 100 {
				return errors.New("connection reset")
			}
			return nil
		}}
		stop, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		b := NewBackfill(q.options(objects))
		err := b.Run(t.Context(), stop)
		if !b.Done() {
			t.Errorf("after an hour and %d connections with 100 rows each, %d of 1000 rows are done: %v", objects.opens, q.checkpoint().Rows, err)
		}
	})
}

// TestBackfillOfSlowRows: rows that come one a second are committed in time.
func TestBackfillOfSlowRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuarry(t, topic.KeyHeader)
		objects := &faulty{n: 1000, next: func(context.Context, int, int, int) error { <-time.After(time.Second); return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var g errgroup.Group
		g.Go(func() error { return NewBackfill(q.options(objects)).Run(t.Context(), ctx) })
		bubble.Pass(100 * time.Second)
		if c := q.checkpoint(); c.Rows < 90 {
			t.Errorf("after 100 s at a row a second %d rows are committed; backfillAge is %s", c.Rows, backfillAge)
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestBackfillStopsInARead: told to stop while a read hangs, it commits what was read, at
// once.
func TestBackfillStopsInARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuarry(t, topic.KeyHeader)
		objects := &faulty{n: 1000, next: func(ctx context.Context, _, call, _ int) error {
			if call > 100 {
				<-ctx.Done() // a black hole
				return ctx.Err()
			}
			return nil
		}}
		hard, kill := context.WithCancel(t.Context())
		defer kill()
		stop, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Second, cancel)
		time.AfterFunc(30*time.Second, kill) // grace
		start := time.Now()
		err := NewBackfill(q.options(objects)).Run(hard, stop)
		if c := q.checkpoint(); err != nil || c.Rows != 100 || time.Since(start) > 11*time.Second {
			t.Errorf("%s after it was told to stop: %d of the 100 rows that were read are committed, %v", time.Since(start)-10*time.Second, c.Rows, err)
		}
	})
}

// TestBackfillStopsAndFailsNothing: what a read says that was cut off by a stop is no
// outcome of its object, even if it looks like one.
func TestBackfillStopsAndFailsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuarry(t, topic.KeyHeader)
		objects := &faulty{n: 1000, next: func(ctx context.Context, _, call, _ int) error {
			if call > 100 {
				<-ctx.Done()
				return &ObjectError{Reason: "it is cut off"}
			}
			return nil
		}}
		stop, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		err := NewBackfill(q.options(objects)).Run(t.Context(), stop)
		if c := q.checkpoint(); err != nil || c.Sequence != 0 || c.Rows != 100 || len(c.Tally.Failures) > 0 {
			t.Errorf("at %s with failures %v, %v", c.Position(), c.Tally.Failures, err)
		}
	})
}
