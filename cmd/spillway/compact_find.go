package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// memberNamed finds the segment that a person means, live or not: by its id, its short
// name, or the beginning of its id if only one begins so.
func memberNamed(ctx context.Context, t *inspect.Topic, name string) (segment.Member, error) {
	l, err := t.Lineage(ctx)
	if err != nil {
		return segment.Member{}, err
	}
	var found []segment.Member
	for _, m := range l.Members {
		if string(m.ID) == name || inspect.Short(m.ID) == name {
			return m, nil
		}
		if name != "" && strings.HasPrefix(string(m.ID), name) {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return segment.Member{}, &functions.UsageError{Err: fmt.Errorf("topic %q has no segment %.80q; `spillway segments %s --all` lists them", t.Name, name, t.Name)}
	case 1:
		return found[0], nil
	}
	return segment.Member{}, &functions.UsageError{Err: fmt.Errorf("segment %.80q: both %s and %s begin so", name, found[0].ID, found[1].ID)}
}

// sealedNamed is a memberNamed that must be sealed.
func sealedNamed(ctx context.Context, t *inspect.Topic, name string) (segment.Member, error) {
	m, err := memberNamed(ctx, t, name)
	if err == nil && len(m.Children) == 0 {
		err = &functions.UsageError{Err: fmt.Errorf("segment %s still takes records, and only sealed ones are compacted; --roll seals it", m.ID)}
	}
	return m, err
}

// rollable lists the live segments that hold records; with a name, the one of that name
// if it is among them.
func rollable(ctx context.Context, t *inspect.Topic, name string) (ids []topic.SegmentID, err error) {
	var only topic.SegmentID
	if name != "" {
		m, err := memberNamed(ctx, t, name)
		if err != nil {
			return nil, err
		}
		only = m.ID
	}
	r, err := t.Segments(ctx, inspect.Options{Live: true, Window: time.Minute, Now: time.Now()})
	if err != nil {
		return nil, err
	}
	for _, s := range r.Segments {
		if s.Records > 0 && (only == "" || s.ID == only) {
			ids = append(ids, s.ID)
		}
	}
	return ids, nil
}
