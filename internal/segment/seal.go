package segment

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Seal ends the segment: it appends the entry after which there is none, and
// returns it. The seal carries what the children inherit, the composed floors
// (rule 11). Sealing a sealed segment changes nothing. Any number may race.
func (s *Segment) Seal(ctx context.Context, now time.Time) (Chunk, error) {
	tail, err := s.Tail(ctx)
	if err != nil {
		return Chunk{}, err
	}
	passed := s.topic.store.passed()
	for !tail.Sealed {
		at := later(s.notBefore(), now.UTC().Truncate(time.Microsecond))
		seal := Chunk{Base: tail.End(), ByteBase: tail.ByteEnd(), First: at, Last: at, Positions: tail.Positions, Sealed: true}
		if seal.Floors, err = s.final(ctx, passed); err != nil {
			return Chunk{}, err
		}
		e, err := s.log.Append(ctx, tail.Entry, filer.File{ID: filer.NewID(), Attrs: seal.attrs()})
		if tail, err = s.outcome(ctx, e, err); err != nil {
			return Chunk{}, err
		}
	}
	return tail, nil
}

// final is how far every source is taken in at the tail, here or in the
// ancestors, per range. What its source's checkpoint covers is left out, so that
// the list stays small however long the lineage grows (rule 10).
func (s *Segment) final(ctx context.Context, passed func(context.Context, string) (topic.Position, error)) ([]topic.Floor, error) {
	var floors []topic.Floor
	if !s.topic.store.Mutant.Has(mutant.FloorsNotComposed) {
		floors = append(floors, s.Floors...)
	}
	for _, p := range s.tail.Positions {
		floors = append(floors, topic.Floor{Range: s.Range, Source: p.Source, At: p.At, Time: p.Time})
	}
	kept := []topic.Floor{}
	for _, f := range topic.ComposeFloors(s.Range, floors) {
		below, err := passed(ctx, f.Source)
		if err != nil {
			return nil, err
		}
		if f.At.After(below) {
			kept = append(kept, f)
		}
	}
	return kept, nil
}

// passed returns a function that reads the checkpoint of a source, once for
// each. A source without a checkpoint has passed nothing.
func (s *Store) passed() func(context.Context, string) (topic.Position, error) {
	known := map[string]topic.Position{}
	return func(ctx context.Context, source string) (topic.Position, error) {
		if at, ok := known[source]; ok {
			return at, nil
		}
		c, _, err := s.CheckpointFile(source).Load(ctx)
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			return topic.Position{}, err
		}
		known[source] = c.Position()
		return known[source], nil
	}
}

// inherit is the floors of a child of sealed parents.
func inherit(child topic.Range, seals []Chunk, m mutant.Set) []topic.Floor {
	var floors []topic.Floor
	for i, seal := range seals {
		if i == 0 || !m.Has(mutant.FloorFromOneParent) {
			floors = append(floors, seal.Floors...)
		}
	}
	if m.Has(mutant.FloorIsOneNumber) {
		for i := range floors {
			floors[i].Range = child
		}
	}
	return topic.ComposeFloors(child, floors)
}
