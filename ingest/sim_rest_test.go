package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// silence is a long time in which nothing happens but that a planner rolls some of
// the topics, where there are planners, and lets those rest that it finds at rest.
// Then messages come again.
func (w *world) silence(ctx context.Context, s *segment.Store) error {
	if err := w.checkMarks(ctx, s); err != nil {
		return err
	}
	for _, name := range w.topics {
		if !w.edits || !w.dice.chance(600, "silent", name) {
			continue
		}
		if err := rollAll(ctx, s, name); err != nil {
			return err
		}
	}
	time.Sleep(segment.RestAfter)
	for m, err := range s.Active(ctx) {
		if err != nil {
			return err
		}
		t, err := s.Topic(ctx, m.Topic)
		if err != nil {
			return err
		}
		awake, err := isAwake(ctx, t)
		if err != nil {
			return err
		}
		if awake || !m.MayRest(time.Now()) {
			continue
		}
		if err := s.Rest(ctx, m); err != nil {
			return err
		}
		w.stats.rested.Add(1)
	}
	if err := w.checkMarks(ctx, s); err != nil {
		return err
	}
	for i := range simAfterwards {
		server := w.servers[i%len(w.servers)]
		server.publish(w.message(simMessages + i))
	}
	return nil
}

// rollAll leaves a topic with segments that hold nothing. An edit that is half done
// is left to the workers.
func rollAll(ctx context.Context, s *segment.Store, name string) error {
	t, err := s.Topic(ctx, name)
	if errors.Is(err, segment.ErrNoTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	before, err := t.Layout(ctx)
	for _, live := range before.Live {
		if err != nil || before.Pending {
			break
		}
		_, err = t.Edit(ctx, time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(live.ID) })
	}
	return err
}

// isAwake tells whether an edit of the topic is under way, or a live segment of it
// has anything.
func isAwake(ctx context.Context, t *segment.Topic) (bool, error) {
	l, err := t.Layout(ctx)
	if err != nil || l.Pending {
		return true, err
	}
	for _, live := range l.Live {
		seg, err := t.Segment(ctx, live.ID)
		if err != nil {
			return true, err
		}
		tail, err := seg.Tail(ctx)
		if err != nil || tail.Entry.ID != "" {
			return true, err
		}
	}
	return false, nil
}

// checkMarks: every topic that is not at rest has its mark, or planners would not
// look at it.
func (w *world) checkMarks(ctx context.Context, s *segment.Store) error {
	for _, name := range w.topics {
		t, err := s.Topic(ctx, name)
		if errors.Is(err, segment.ErrNoTopic) && name == topic.Unrouted {
			continue
		}
		if err != nil {
			return err
		}
		awake, err := isAwake(ctx, t)
		if err != nil {
			return err
		}
		_, err = s.MarkOf(ctx, name)
		switch {
		case err == nil && awake:
			w.stats.awake.Add(1)
		case errors.Is(err, filer.ErrNotFound) && awake:
			return fmt.Errorf("topic %s is not at rest, and no mark says so", name)
		case err != nil && !errors.Is(err, filer.ErrNotFound):
			return err
		}
	}
	return nil
}
