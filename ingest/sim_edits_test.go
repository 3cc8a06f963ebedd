package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// planner is where one planner after another makes random edits, and is killed
// in the middle of some.
func (w *world) planner(ctx context.Context, place int) {
	for life := 0; ctx.Err() == nil; life++ {
		name := fmt.Sprintf("p%d.%d", place, life)
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.dice.span(900*time.Millisecond, name, "rests")):
		}
		mine, kill := context.WithTimeout(ctx, 20*time.Millisecond+w.dice.span(2*time.Second, name, "lives"))
		client := w.fs.Client(name, w.hook(func() time.Duration { return 0 }, w.dice.span(40*time.Millisecond, name, "slow")))
		stop := context.AfterFunc(mine, client.Kill)
		w.plan(mine, w.store(client), name)
		stop()
		kill()
	}
}

func (w *world) plan(ctx context.Context, s *segment.Store, name string) {
	for round := 0; ctx.Err() == nil; round++ {
		t, err := s.Topic(ctx, w.topics[w.dice.roll(name, "topic", round)%uint64(len(w.topics))])
		if err != nil {
			continue
		}
		asked := 0
		_, err = t.Edit(ctx, time.Now(), func(l topic.Layout) (topic.Edit, error) {
			if asked++; asked > 1 {
				w.stats.races.Add(1)
			}
			return w.randomEdit(l, name, round)
		})
		var bad *topic.EditError
		switch {
		case err == nil:
			w.stats.edits.Add(1)
		case errors.As(err, &bad):
		default:
			return
		}
		time.Sleep(w.dice.span(300*time.Millisecond, name, "pause", round))
	}
}

// randomEdit splits, merges or rolls, around four live segments.
func (w *world) randomEdit(l topic.Layout, name string, round int) (topic.Edit, error) {
	roll := func(n int, what string) int { return int(w.dice.roll(name, round, l.Epoch, what) % uint64(n)) }
	at := roll(len(l.Live), "which")
	kind := roll(10, "kind")
	switch {
	case kind < 2:
		return l.Roll(l.Live[at].ID)
	case kind < 6 && len(l.Live) < 6:
		return l.SplitWays(l.Live[at].ID, 2+roll(2, "ways"))
	}
	n := min(2+roll(2, "parents"), len(l.Live)-at)
	var ids []topic.SegmentID
	for _, live := range l.Live[at : at+n] {
		ids = append(ids, live.ID)
	}
	return l.Merge(ids...)
}

// checkEdits looks at the layouts and what the edits made, when all is over.
func (w *world) checkEdits(ctx context.Context, s *segment.Store) error {
	for _, name := range w.topics {
		t, err := s.Topic(ctx, name)
		if errors.Is(err, segment.ErrNoTopic) && name == topic.Unrouted {
			continue
		}
		if err != nil {
			return err
		}
		if l, err := t.Layout(ctx); err != nil {
			return err
		} else if l.Pending {
			w.stats.halfDone.Add(1)
		}
		l, err := t.Finish(ctx)
		if err != nil {
			return err
		}
		segments, err := t.Segments(ctx)
		if err != nil {
			return err
		}
		if err := checkLayouts(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, seg := range segments {
			if err := w.checkSegment(ctx, seg, segments, l); err != nil {
				return fmt.Errorf("%s: segment %s: %w", name, seg.ID, err)
			}
		}
	}
	return nil
}

// checkLayouts: every layout covers the key space once (that is checked when it
// is read), intent and completion take turns, and each changes what it says.
func checkLayouts(ctx context.Context, t *segment.Topic) error {
	layouts, err := t.Layouts(ctx)
	if err != nil {
		return err
	}
	for i, l := range layouts {
		switch {
		case l.Pending != (i%2 == 1):
			return fmt.Errorf("layout %d: pending is %v", i, l.Pending)
		case l.Pending && !slices.Equal(l.Live, layouts[i-1].Live):
			return fmt.Errorf("layout %d is an intent and changes what is live", i)
		case !l.Pending && i > 0 && !slices.Equal(l.Live, layouts[i-1].Complete().Live):
			return fmt.Errorf("layout %d does not complete the one before", i)
		}
	}
	return nil
}

// checkSegment: what is live is not sealed, what is not live is, and floors are
// what the parents had, slot by slot, or are passed by the checkpoint.
func (w *world) checkSegment(ctx context.Context, seg *segment.Segment, all []*segment.Segment, l topic.Layout) error {
	tail, err := seg.Tail(ctx)
	if err != nil {
		return err
	}
	live := slices.ContainsFunc(l.Live, func(s topic.Live) bool { return s.ID == seg.ID })
	if live == tail.Sealed {
		return fmt.Errorf("live is %v, sealed is %v", live, tail.Sealed)
	}
	if tail.Sealed {
		w.stats.seals.Add(1)
	}
	w.stats.floors.Add(int64(len(seg.Floors)))
	for _, id := range seg.Parents {
		i := slices.IndexFunc(all, func(s *segment.Segment) bool { return s.ID == id })
		parent := all[i]
		end, err := parent.Tail(ctx)
		if err != nil {
			return err
		}
		if err := w.checkFloors(ctx, seg, parent, end); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) checkFloors(ctx context.Context, seg, parent *segment.Segment, end segment.Chunk) error {
	for source := range w.sources(parent, end) {
		c, _, err := w.store(w.fs.Client("look", nil)).CheckpointFile(source).Load(ctx)
		if err != nil {
			return err
		}
		for slot := max(seg.Range.Lo, parent.Range.Lo); slot < min(seg.Range.Hi, parent.Range.Hi); slot += 997 {
			have := seg.FloorOf(source, topic.Slot(slot))
			want := end.PositionOf(source).At.Max(parent.FloorOf(source, topic.Slot(slot)))
			if have == want {
				continue
			}
			if have.After(want) || want.After(c.Position()) {
				return fmt.Errorf("floor of %s at slot %d is %s, its parent %s had %s, checkpoint %d", source, slot, have, parent.ID, want, c.Sequence)
			}
			w.stats.leftOut.Add(1)
		}
	}
	return nil
}

func (w *world) sources(parent *segment.Segment, end segment.Chunk) map[string]bool {
	sources := map[string]bool{}
	for _, p := range end.Positions {
		sources[p.Source] = true
	}
	for _, f := range parent.Floors {
		sources[f.Source] = true
	}
	return sources
}
