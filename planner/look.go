package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// known is what a planner remembers of a topic between two looks. All of it can
// be read again; it only makes the next look cheaper.
type known struct {
	topic    *segment.Topic
	segments map[topic.SegmentID]*watched
	declared []segment.DeclaredLoad // those that are over, too
}

// lookParallel is how many of a topic's segments are looked at at a time.
const lookParallel = 16

// open looks the topic up anew: it may have been deleted, or made again.
func (k *known) open(ctx context.Context, store *segment.Store, name string) error {
	t, err := store.Topic(ctx, name)
	if err != nil {
		return err
	}
	if k.topic == nil || k.topic.Incarnation != t.Incarnation {
		k.segments = map[topic.SegmentID]*watched{}
	} else {
		t.Follow(k.topic)
	}
	k.topic = t
	return nil
}

// look gathers the situation for a layout in force.
func (k *known) look(ctx context.Context, l topic.Layout, p Policy, now time.Time) (Situation, error) {
	s := Situation{
		Topic: k.topic.Name, Layout: l, Roots: k.topic.Roots, Now: now,
		RollOnly: k.topic.Name == topic.Unrouted,
		Loads:    make([]Load, len(l.Live)),
	}
	live := make([]*watched, len(l.Live))
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(lookParallel)
	for i, seg := range l.Live {
		live[i] = k.segments[seg.ID]
		g.Go(func() (err error) {
			if live[i] == nil {
				if live[i], err = k.watch(each, seg.ID, p, now); err != nil {
					return err
				}
			}
			s.Loads[i], err = live[i].look(each, time.Duration(k.topic.FlushAge), p, now)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return s, fmt.Errorf("load of topic %q: %w", k.topic.Name, err)
	}
	k.segments = map[topic.SegmentID]*watched{}
	for _, w := range live {
		k.segments[w.ID] = w
	}
	var err error
	if k.declared, err = k.topic.Declared(ctx); err != nil {
		return s, err
	}
	s.Expected = expected(k.declared, now)
	return s, nil
}

// look observes a segment. Where it may be split, it also sees where its load
// falls.
func (w *watched) look(ctx context.Context, flushAge time.Duration, p Policy, now time.Time) (Load, error) {
	if err := w.observe(ctx, p, now); err != nil {
		return Load{}, err
	}
	l := w.load(now, flushAge, p)
	if max(p.level(l.Short), p.level(l.Long)) < p.Sustained {
		return l, nil
	}
	var err error
	l.Density, err = w.density(ctx, now.Add(-p.Short), p.byBytes(l.Short))
	return l, err
}

// forebears bounds how many edits back the past of a segment is looked up.
const forebears = 16

// watch opens a segment, with what it inherits: from what it was rolled, and when
// a part of its range was last split off, if that is not longer ago than the
// cool-down.
func (k *known) watch(ctx context.Context, id topic.SegmentID, p Policy, now time.Time) (*watched, error) {
	s, err := k.topic.Segment(ctx, id)
	if err != nil {
		return nil, err
	}
	w := &watched{Segment: s}
	if w.split, err = k.lastSplit(ctx, s.Segment, now.Add(-p.CoolDown), forebears); err != nil {
		return nil, err
	}
	if len(s.Parents) != 1 || now.Sub(s.Created) > needed(p) {
		return w, nil
	}
	parent, err := k.topic.Segment(ctx, s.Parents[0])
	if gone(err) || err == nil && parent.Range != s.Range {
		return w, nil
	}
	if err != nil {
		return nil, err
	}
	return w, k.inherit(ctx, w, parent, p, now)
}

// inherit gives a rolled segment its parent's series.
func (k *known) inherit(ctx context.Context, w *watched, parent *segment.Segment, p Policy, now time.Time) error {
	before := k.segments[parent.ID]
	if before == nil {
		before = &watched{Segment: parent}
	}
	err := before.observe(ctx, p, now)
	if gone(err) {
		return nil
	}
	// Without what is too old: a busy segment is rolled every few minutes, for ever.
	w.rolledFrom = before.history().after(now.Add(-needed(p)))
	return err
}

// gone tells that a segment's data, or its description, is deleted.
func gone(err error) bool {
	return errors.Is(err, filer.ErrNotFound) || errors.Is(err, commitlog.ErrNoLog)
}

// lastSplit is when a part of a segment's range last came out of a split, zero if
// not since a time.
func (k *known) lastSplit(ctx context.Context, s topic.Segment, since time.Time, depth int) (last time.Time, err error) {
	if depth == 0 || s.Created.Before(since) || len(s.Parents) == 0 {
		return time.Time{}, nil
	}
	for _, id := range s.Parents {
		parent, err := k.topic.Segment(ctx, id)
		if gone(err) {
			return s.Created, nil // not known: rather too late than too early
		}
		if err != nil {
			return last, err
		}
		if parent.Range.Size() > s.Range.Size() {
			return s.Created, nil
		}
		at, err := k.lastSplit(ctx, parent.Segment, since, depth-1)
		if err != nil {
			return last, err
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

// expected is the sum of the loads that are declared for now.
func expected(loads []segment.DeclaredLoad, now time.Time) (sum Rate) {
	for _, d := range loads {
		if !d.Over(now) {
			sum = sum.Plus(Rate{Records: float64(d.Records), Bytes: float64(d.Bytes)})
		}
	}
	return sum
}
