package functions

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
)

// schedules has the schedules of a topic do what is due. elsewhere: some are of another
// endpoint, and left alone. Errors are about all of them.
func (f *filler) schedules(stop context.Context, t *segment.Topic) (elsewhere bool, err error) {
	all := backfill.SchedulesOf(f.deps.Store, t)
	ticker := &backfill.Ticker{Schedules: all, Lister: f.lister, Logger: f.deps.Logger}
	for s, err := range all.List(stop) {
		if err != nil {
			return elsewhere, err
		}
		var other *ElsewhereError
		if s.Err == nil {
			_, s.Err = f.objects(s.Spec.Endpoint)
		}
		if errors.As(s.Err, &other) {
			f.count(func(sum *BackfillSummary) { sum.Elsewhere++ })
			elsewhere = true
			continue
		}
		if s.Err == nil {
			s.Err = f.tick(stop, ticker, s.Name)
		}
		f.fault(stop, s.Err, "topic", t.Name, "schedule", s.Name)
	}
	return elsewhere, nil
}

// tick has one schedule do what is due, one at a time: a list of new objects may be
// long.
func (f *filler) tick(stop context.Context, ticker *backfill.Ticker, name string) error {
	select {
	case <-stop.Done():
		return stop.Err()
	case f.ticks <- struct{}{}:
		defer func() { <-f.ticks }()
	}
	did, err := ticker.Tick(stop, name, f.now())
	if errors.Is(err, backfill.ErrNoSchedule) {
		return nil // deleted since
	}
	f.count(func(sum *BackfillSummary) {
		sum.Schedules++
		if did.Job != "" && !did.Found {
			sum.Made++
		}
	})
	return err
}

// lister lists the objects of an endpoint.
func (f *filler) lister(_ context.Context, endpoint string) (backfill.Lister, error) {
	return f.objects(endpoint)
}
