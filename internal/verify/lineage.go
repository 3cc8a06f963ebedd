package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// segmentFile is a segment.json with what the layout and the parents' seals say
// of the segment.
type segmentFile struct {
	child
	path      string
	got       topic.Segment
	err       error
	floors    levels // of got; nil if floorsErr says why not
	floorsErr error
	parents   []ending // nil: not all seals are known
	// refused is how far each source is taken in by the topic for messages that
	// name none; nil: not known.
	refused map[string]topic.Position
}

// ending is what a sealed segment hands down to its children.
type ending struct {
	topic.Live
	floors levels
	last   time.Time
}

// checkSegmentFile: the description is there and says what the layout says.
func checkSegmentFile(s segmentFile) string {
	switch {
	case s.err != nil:
		return s.err.Error()
	case s.got.ID != s.ID:
		return fmt.Sprintf("it describes segment %q", s.got.ID)
	case s.got.Range != s.Range:
		return fmt.Sprintf("its range is %s, the layout says %s", s.got.Range, s.Range)
	}
	return ""
}

func (s segmentFile) readable() bool { return checkSegmentFile(s) == "" }

// checkBirth: its epoch is that of the layout that made it live.
func checkBirth(s segmentFile) string {
	if !s.readable() || s.got.Epoch == s.by.Epoch {
		return ""
	}
	return fmt.Sprintf("it says that epoch %d made it, the layout says %d", s.got.Epoch, s.by.Epoch)
}

// checkParents: its parents are those of the edit that made it.
func checkParents(s segmentFile) string {
	if !s.readable() || slices.Equal(s.got.Parents, s.by.Edit.Parents) {
		return ""
	}
	return fmt.Sprintf("its parents are %q, those of the edit are %q", s.got.Parents, s.by.Edit.Parents)
}

// checkCreated: it is as old as the edit that made it, and no older than the last
// record of any parent (rule 39).
func checkCreated(s segmentFile) string {
	if !s.readable() || s.parents == nil || s.got.Created.Equal(s.created()) {
		return ""
	}
	return fmt.Sprintf("it was created at %s, by the edit and the seals of its parents it is %s", stamp(s.got.Created), stamp(s.created()))
}

func (s segmentFile) created() time.Time {
	at := s.by.At
	for _, p := range s.parents {
		if p.last.After(at) {
			at = p.last
		}
	}
	return at
}

// checkFloors: its floors are exactly what its parents' seals hand down, slot by
// slot (rule 11).
func checkFloors(s segmentFile) string {
	switch {
	case !s.readable():
		return ""
	case s.floorsErr != nil:
		return s.floorsErr.Error()
	case s.parents == nil:
		return ""
	}
	if detail := s.floors.outside(s.Range); detail != "" {
		return detail
	}
	if len(s.parents) == 0 {
		return s.checkRootFloors()
	}
	due := s.due()
	for _, source := range sourcesOf(due, s.floors) {
		for x := range stretches(s.Range, due[source], s.floors[source]) {
			if x.a.same(x.b) {
				continue
			}
			return fmt.Sprintf("for source %s in the slots %s it has %s, but %s hands down %s: %s",
				source, x.Range, x.b, s.parentOf(x.Lo), x.a, consequence(x.b, x.a))
		}
	}
	return ""
}

// checkRootFloors: a topic's first segments have floors only for messages that
// were refused because the topic did not exist. They are refused as a whole, and
// whatever their keys are.
func (s segmentFile) checkRootFloors() string {
	for _, source := range sourcesOf(s.floors) {
		list := s.floors[source]
		at := list[0].at
		switch {
		case len(list) > 1 || list[0].Range != s.Range:
			return fmt.Sprintf("its floors of source %s differ from slot to slot, though it has no parents", source)
		case at != topic.Whole(at.Sequence):
			return fmt.Sprintf("its floor of source %s is %s, within a message, though it has no parents", source, at)
		case s.refused != nil && at.Sequence > s.refused[source].Sequence:
			return fmt.Sprintf("its floor of source %s is %s, but messages were refused up to %s only: records may be lost",
				source, at, s.refused[source])
		}
	}
	return ""
}

// due are the floors that the parents hand down.
func (s segmentFile) due() levels {
	var from []levels
	for _, p := range s.parents {
		from = append(from, p.floors)
	}
	return inherit(s.Range, from)
}

func (s segmentFile) parentOf(slot uint32) string {
	for _, p := range s.parents {
		if p.Range.Contains(topic.Slot(slot)) {
			return "its parent " + string(p.ID)
		}
	}
	return "no parent"
}

// consequence is what comes of a floor that is not the one it must be.
func consequence(got, want level) string {
	switch got.at.Compare(want.at) {
	case -1:
		return "records may come twice"
	case 1:
		return "records may be lost"
	}
	return "a source that went back would not be noticed"
}

// loadParallel is how many descriptions are read at a time, and loadAhead how
// many before they are looked at.
const (
	loadParallel = 16
	loadAhead    = 128
)

// load reads segments' descriptions. What is wrong with one is in its err.
func (v *verifier) load(ctx context.Context, list []child) ([]segmentFile, error) {
	files := make([]segmentFile, len(list))
	g, loading := errgroup.WithContext(ctx)
	g.SetLimit(loadParallel)
	for i, c := range list {
		g.Go(func() error {
			s := segmentFile{child: c, path: path.Join(v.segmentDir(c.ID), "segment.json")}
			s.got, s.err = v.description(loading, s.path)
			if s.err == nil {
				s.floors, s.floorsErr = levelsOf(s.got.Floors)
				s.got.Floors = nil
			}
			files[i] = s
			return ifUnknown(s.err)
		})
	}
	err := g.Wait()
	for i, s := range files {
		if err == nil && len(s.floors) > 0 && len(s.by.Edit.Parents) == 0 {
			files[i].refused, err = v.refusals(ctx)
		}
	}
	return files, err
}

func (v *verifier) description(ctx context.Context, path string) (seg topic.Segment, err error) {
	var e filer.Entry
	err = filer.Retry(ctx, func(ctx context.Context) error { e, err = v.store.Filer.Lookup(ctx, path); return err })
	if err != nil {
		return seg, err
	}
	data, err := v.content(ctx, e)
	if err != nil {
		return seg, err
	}
	if err := json.Unmarshal(data, &seg); err != nil {
		return seg, fmt.Errorf("%w: %w", filer.ErrCorrupt, err)
	}
	return seg, nil
}

// refusals is how far each source was taken in by the topic for messages that
// name none, which is older than this one; nil if there is no such.
func (v *verifier) refusals(ctx context.Context) (map[string]topic.Position, error) {
	if v.topic.Name == topic.Unrouted {
		return map[string]topic.Position{}, nil
	}
	if v.refused != nil {
		return v.refused, nil
	}
	t, err := v.store.Topic(ctx, topic.Unrouted)
	if errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting) || err == nil && t.Created.After(v.topic.Created) {
		return nil, nil
	}
	if err != nil {
		return nil, ifUnknown(err)
	}
	segments, err := t.Segments(ctx)
	if err != nil {
		return nil, ifUnknown(err)
	}
	found := map[string]topic.Position{}
	for _, s := range segments {
		tail, err := s.Tail(ctx)
		if err != nil {
			return nil, ifUnknown(err)
		}
		for _, p := range tail.Positions {
			found[p.Source] = found[p.Source].Max(p.At)
		}
	}
	v.refused = found
	return found, nil
}

// describe checks a description. Where it is wrong, what the layout and the seals
// say is gone on with.
func (v *verifier) describe(s segmentFile) *segmentState {
	s.parents = v.endings(s.by.Edit.Parents)
	run(v, v.checks.segment, place{path: s.path, segment: s.ID}, s)
	state := &segmentState{
		Live: s.Live, key: v.topic.Key, prev: &segment.Chunk{}, taken: map[string]topic.Position{},
		child: len(s.by.Edit.Parents) > 0, created: s.got.Created, floors: s.floors,
	}
	if !s.readable() && s.parents != nil {
		state.created, state.floors = s.created(), s.due()
	}
	return state
}

// endings are what segments handed down, nil if that of one is not known.
func (v *verifier) endings(ids []topic.SegmentID) []ending {
	list := make([]ending, 0, len(ids))
	for _, id := range ids {
		e, ok := v.ended[id]
		if !ok {
			return nil
		}
		list = append(list, e)
	}
	return list
}

func (v *verifier) segmentDir(id topic.SegmentID) string {
	return path.Join(v.topic.Dir(), "segments", string(id))
}
