package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

// RestAfter is how old a mark must be before it may go. It has to be longer than
// anybody takes from writing a mark to making the change that the mark is about,
// so that whoever looks at a topic later than that sees the change. The clocks
// that it is measured with decide how late a planner looks at a topic, and
// nothing else (ADR 0013).
const RestAfter = 10 * time.Minute

// markFor is how long a handle on a topic counts on the mark that it has written.
// What is left of RestAfter is for the change that follows, and for clocks that
// differ.
const markFor = time.Minute

// ActiveMark says that a topic may need a planner. Every topic that is not at
// rest has one: a live segment of it holds records, an edit is under way, or it
// has more live segments than it needs. The reverse does not hold: a mark may
// stay on a topic at rest, or name a topic that is gone.
type ActiveMark struct {
	Topic string
	// ID is another one each time that the mark is written. Empty: something else
	// lies where the mark would, which counts as a mark that never goes.
	ID string
	At time.Time // by the clock of whoever wrote it
}

// MayRest tells whether the mark is old enough to go, if the topic was seen at
// rest after the mark was read.
func (m ActiveMark) MayRest(now time.Time) bool { return m.ID != "" && now.Sub(m.At) >= RestAfter }

func (s *Store) activeDir() string           { return path.Join(s.Root(), "active") }
func (s *Store) markPath(name string) string { return path.Join(s.activeDir(), name) }

// MarkActive writes a topic's mark anew, whether it has one or not, and whether
// there is such a topic or not. On nil the mark is as durable as the filer makes
// it. Faults of the filer are retried until ctx ends. Any number may race.
func (s *Store) MarkActive(ctx context.Context, name string, now time.Time) error {
	for {
		err := s.writeMark(ctx, name, now)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, filer.ErrExists), errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
			// Somebody else wrote or removed it in between.
		default:
			return fmt.Errorf("mark topic %q active: %w", name, err)
		}
	}
}

func (s *Store) writeMark(ctx context.Context, name string, now time.Time) error {
	f := filer.File{ID: filer.NewID(), MTime: now.UTC()}
	old, err := s.MarkOf(ctx, name)
	switch {
	case errors.Is(err, filer.ErrNotFound):
		_, err = filer.Create(ctx, s.Filer, s.markPath(name), f)
	case err == nil && old.ID != "":
		err = filer.Replace(ctx, s.Filer, s.markPath(name), old.ID, f)
	}
	return err
}

// MarkOf reads a topic's mark; filer.ErrNotFound if it has none.
func (s *Store) MarkOf(ctx context.Context, name string) (ActiveMark, error) {
	if err := topic.CheckName(name); err != nil {
		return ActiveMark{}, err
	}
	var e filer.Entry
	err := filer.Retry(ctx, func(ctx context.Context) (err error) {
		e, err = s.Filer.Lookup(ctx, s.markPath(name))
		return err
	})
	return markOf(e), err
}

// Active lists the marks of all topics, by name, a page of the filer at a time.
// Marks that are written or removed meanwhile may or may not be among them.
func (s *Store) Active(ctx context.Context) iter.Seq2[ActiveMark, error] {
	return func(yield func(ActiveMark, error) bool) {
		for after := ""; ; {
			var page []filer.Entry
			err := filer.Retry(ctx, func(ctx context.Context) (err error) {
				page, err = s.Filer.List(ctx, s.activeDir(), after, 0)
				return err
			})
			if err != nil {
				yield(ActiveMark{}, fmt.Errorf("list active topics: %w", err))
				return
			}
			for _, e := range page {
				if m := markOf(e); topic.CheckName(m.Topic) == nil && !yield(m, nil) {
					return
				}
			}
			if len(page) == 0 {
				return
			}
			after = page[len(page)-1].Name()
		}
	}
}

func markOf(e filer.Entry) ActiveMark { return ActiveMark{Topic: e.Name(), ID: e.ID, At: e.MTime} }

// Rest removes a mark if it has not been written again since it was read, and
// gives filer.ErrConflict if it has, which is no fault: the topic is wanted
// again. The caller has seen that the topic is at rest, or gone, after it read
// the mark, and that the mark [ActiveMark.MayRest]. A mark that is gone is no error.
func (s *Store) Rest(ctx context.Context, m ActiveMark) error {
	err := topic.CheckName(m.Topic)
	if err == nil && m.ID == "" {
		err = fmt.Errorf("%s is not ours: %w", s.markPath(m.Topic), filer.ErrConflict)
	}
	if err == nil {
		err = filer.Retry(ctx, func(ctx context.Context) error { return s.Filer.Delete(ctx, s.markPath(m.Topic), m.ID) })
	}
	if err != nil {
		return fmt.Errorf("remove the mark of topic %q: %w", m.Topic, err)
	}
	return nil
}

// restGone removes the mark of a topic that is being deleted. Should it stay, or
// be written again by a worker that does not know yet, a planner finds that there
// is no such topic, and removes it.
func (s *Store) restGone(ctx context.Context, name string) {
	m, err := s.MarkOf(ctx, name)
	if err == nil {
		err = s.Rest(ctx, m)
	}
	if err != nil && !errors.Is(err, filer.ErrNotFound) {
		s.Logger.Info("the mark of a deleted topic is left to planners", "topic", name, "err", err)
	}
}

// wake sees to it that the topic has a mark that will not go before what the
// caller is about to do can be seen. A handle writes one mark a minute at most,
// however many segments ask for one. Safe for concurrent use; one writes, the
// others wait for it.
func (t *Topic) wake(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case last := <-t.woken:
		now := t.store.Now()
		if now.Sub(last) < markFor {
			t.woken <- last
			return nil
		}
		err := t.store.MarkActive(ctx, t.Name, now)
		if err == nil {
			last = now
		}
		t.woken <- last
		return err
	}
}

// waking makes an append to the segment. The first one ends the rest of its topic,
// which therefore gets its mark before. Should the append have taken so long that
// the mark may have gone meanwhile, it gets another one.
func (s *Segment) waking(ctx context.Context, add func() (commitlog.Entry, error)) (commitlog.Entry, error) {
	if s.tail.Entry.ID != "" {
		return add()
	}
	if err := s.topic.wake(ctx); err != nil {
		return commitlog.Entry{}, err
	}
	e, err := add()
	if err == nil {
		err = s.topic.wake(ctx)
	}
	return e, err
}
