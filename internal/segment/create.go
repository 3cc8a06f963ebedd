package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/topic"
)

// CreateTopic makes a topic with n segments of equal key range. topic.json,
// created exclusively, is what makes it exist; the rest follows from it, and is
// finished by whoever meets the topic if this call does not get that far.
// ErrTopicExists (with the topic that there is) and ErrDeleting are typed, as are
// *filer.ExpiryError and *filer.StorageError: the filer's rules would delete the
// topic's files, or it cannot store them as the definition asks.
func (s *Store) CreateTopic(ctx context.Context, def topic.Definition, n int, now time.Time) (*Topic, error) {
	def.Incarnation, def.State, def.Roots = filer.Token(8), topic.StateCreating, n
	def.Created = now.UTC().Truncate(time.Microsecond)
	if err := def.Validate(); err != nil {
		return nil, err
	}
	if err := s.fit(ctx, def); err != nil {
		return nil, fmt.Errorf("create topic %q: %w", def.Name, err)
	}
	version, err := s.definition(def.Name).Create(ctx, def)
	if errors.Is(err, filer.ErrExists) {
		old, err := s.Topic(ctx, def.Name)
		if err != nil {
			return nil, err
		}
		return old, fmt.Errorf("topic %q: %w", def.Name, ErrTopicExists)
	}
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", def.Name, err)
	}
	return s.establish(ctx, s.handle(def, version))
}

// establish makes the first layout and its segments of a topic that is being
// created, and then makes the topic live. Any number may do it at once: all
// write the same, but for the floors, of which any is right and the first counts.
func (s *Store) establish(ctx context.Context, t *Topic) (*Topic, error) {
	if err := t.Validate(); err != nil {
		return nil, fmt.Errorf("topic %q: %w: %w", t.Name, filer.ErrCorrupt, err)
	}
	floors, err := s.decided(ctx, t)
	if err == nil {
		err = t.build(ctx, floors)
	}
	if err != nil {
		return nil, fmt.Errorf("create topic %q: %w", t.Name, err)
	}
	live := t.Definition
	live.State = topic.StateLive
	version, err := s.definition(t.Name).Save(ctx, live, t.version)
	switch {
	case errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
		return s.Topic(ctx, t.Name) // somebody else did it, or deletes it
	case err != nil:
		return nil, fmt.Errorf("create topic %q: %w", t.Name, err)
	}
	t.Definition, t.version = live, version
	return t, nil
}

// decided rolls the topic for messages that name no topic, and returns how far
// every source is taken in there. A worker opens that topic before it looks
// whether the one that a message names exists, and starts again when its segment
// is sealed. So of the messages that name the new topic, those up to these
// positions were refused for good, and no later one ever will be: with the
// positions as floors, the new topic takes each of the others once (ADR 0006).
func (s *Store) decided(ctx context.Context, t *Topic) ([]topic.Floor, error) {
	none := []topic.Floor{}
	if t.Name == topic.Unrouted || s.Mutant.Has(mutant.UnroutedNotRolled) {
		return none, nil
	}
	unrouted, err := s.Topic(ctx, topic.Unrouted)
	if errors.Is(err, ErrNoTopic) || errors.Is(err, ErrDeleting) {
		return none, nil
	}
	if err != nil {
		return nil, err
	}
	l, err := unrouted.Edit(ctx, t.Created, func(l topic.Layout) (topic.Edit, error) {
		e, err := l.Roll(l.Live[0].ID)
		e.Reason = fmt.Sprintf("topic %s was created", t.Name)
		return e, err
	})
	if err != nil {
		return nil, err
	}
	child, err := unrouted.Segment(ctx, l.Live[0].ID)
	if err != nil {
		return nil, err
	}
	floors := slices.Clone(child.Floors)
	for i, f := range floors {
		floors[i].At = topic.Whole(f.At.Sequence) // a message is refused as a whole, as one record
	}
	return floors, nil
}

// build writes the first layout and its segments.
func (t *Topic) build(ctx context.Context, floors []topic.Floor) error {
	layout := topic.Layout{At: t.Created, Edit: topic.Edit{Kind: topic.EditCreate, Reason: "topic created", Parents: []topic.SegmentID{}}}
	for i, r := range topic.Divide(t.Roots) {
		id := topic.NewSegmentID(0, i, t.Incarnation)
		seg := topic.Segment{ID: id, Range: r, Parents: []topic.SegmentID{}, Floors: topic.ComposeFloors(r, floors), Created: t.Created}
		if err := t.createSegment(ctx, seg); err != nil && !errors.Is(err, ErrDiffers) {
			return err
		}
		layout.Live = append(layout.Live, topic.Live{ID: id, Range: r})
	}
	layout.Edit.Children = layout.Live
	err := t.createLayout(ctx, layout)
	var lost *commitlog.LostError
	if errors.As(err, &lost) {
		return nil
	}
	return err
}
