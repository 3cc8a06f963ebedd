package functions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

// TestLimiter: more than a burst, other limits while somebody waits, and the end.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		after := func(what string, want time.Duration, err error) {
			t.Helper()
			if took := time.Since(start); err != nil || took < want*95/100 || took > want*105/100 {
				t.Errorf("%s: after %s, want %s, %v", what, took, want, err)
			}
			start = time.Now()
		}
		never := context.Background()
		m := newLimiter(backfill.Limits{})
		if m.due(1<<40, 1<<40) {
			t.Error("without limits it wants to be asked")
		}
		after("no limit", 0, m.wait(never, never, 1<<40, 1<<40))
		m.set(backfill.Limits{Rows: 1})
		after("many rows at a low rate", 99*time.Second, m.wait(never, never, 100, 1<<40))
		m.set(backfill.Limits{Bytes: 1000})
		after("a huge value", 16*time.Second, m.wait(never, never, 1, 16_100))
		if m.due(1, 9) || !m.due(0, 10) {
			t.Error("it is asked at the wrong times")
		}

		m.set(backfill.Limits{Rows: 1})
		var g errgroup.Group
		for range 20 {
			g.Go(func() error { return m.wait(never, never, 50, 0) })
		}
		bubble.Pass(10 * time.Second)
		m.set(backfill.Limits{Rows: 1000})
		after("another limit meanwhile", 11*time.Second, g.Wait())
		g.Go(func() error { return m.wait(never, never, 1_000_000, 0) })
		bubble.Pass(time.Second)
		m.set(backfill.Limits{})
		after("no limit any more", time.Second, g.Wait())

		m.set(backfill.Limits{Rows: 1})
		ctx, cancel := context.WithTimeout(never, 5*time.Second)
		defer cancel()
		after("told to stop", 5*time.Second, m.wait(never, ctx, 1000, 0))
		dying, cancel := context.WithTimeout(never, 5*time.Second)
		defer cancel()
		if err := m.wait(dying, never, 1000, 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		after("the end", 5*time.Second, nil)
	})
}

// TestLimiterEven: at a low rate rows come one by one, by all sources together.
func TestLimiterEven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newLimiter(backfill.Limits{Rows: 5})
		var times []time.Time
		stop, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var g errgroup.Group
		got := make(chan time.Time)
		for range 8 {
			g.Go(func() error {
				for stop.Err() == nil {
					if err := m.wait(t.Context(), stop, 1, 0); err != nil {
						return err
					}
					got <- time.Now()
				}
				return nil
			})
		}
		g.Go(func() error {
			for stop.Err() == nil {
				times = append(times, <-got)
			}
			return nil
		})
		go func() { // the others, told to stop
			<-stop.Done()
			for range got { // all of them
			}
		}()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		close(got)
		for i := 2; i < len(times)-8; i++ {
			if d := times[i].Sub(times[i-1]); d < 150*time.Millisecond || d > 250*time.Millisecond {
				t.Errorf("row %d comes %s after the one before", i, d)
			}
		}
		if len(times) < 90 || len(times) > 112 {
			t.Errorf("%d rows in 20 s", len(times))
		}
	})
}

// barred are objects that are denied for a while.
type barred struct {
	ingest.Objects
	err error
}

func (b *barred) Open(context.Context, uint64, uint32) (ingest.RowReader, error) { return nil, b.err }

// TestDenied: that access is denied ends a run when it lasts, and not what passes.
func TestDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told error
		b := &barred{}
		g := &governed{Objects: b, limits: newLimiter(backfill.Limits{}), stop: t.Context(), now: time.Now, denied: func(err error) { told = err }}
		try := func(err error, pause time.Duration) {
			b.err = err
			if _, got := g.Open(t.Context(), 1, 0); !errors.Is(got, err) {
				t.Errorf("%v, want %v", got, err)
			}
			bubble.Pass(pause)
		}
		denied := fmt.Errorf("get: %w", object.ErrForbidden)
		try(denied, 40*time.Second)
		try(denied, 19*time.Second)
		if told != nil {
			t.Fatalf("told %v too soon", told)
		}
		try(errors.New("no answer"), time.Minute)
		try(denied, 50*time.Second)
		try(denied, 0)
		if told != nil {
			t.Fatalf("told %v, although it was not denied all the time", told)
		}
		bubble.Pass(11 * time.Second)
		try(object.ErrNoBucket, 0)
		if !errors.Is(told, object.ErrNoBucket) {
			t.Errorf("told %v", told)
		}
	})
}
