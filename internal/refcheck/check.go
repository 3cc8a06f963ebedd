package refcheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// Check goes through all retained records with a reference and looks at their
// objects, then lists the uploads that no record names. Records may come
// meanwhile. It changes nothing.
//
// It holds one chunk in memory, what maxLooks and maxOrphans say, and 16 bytes for
// each different upload that records name.
//
// The error tells that the check could not be done. What it finds is no error, and
// neither is an endpoint that does not answer about single objects: those are
// pending. *verdict.ElsewhereError: the topic's objects are at another endpoint.
func (c *Checker) Check(ctx context.Context) (Report, error) { return c.check(ctx, true) }

// errEnough ends a check at its limit.
var errEnough = errors.New("enough")

const notAll = "not all records were read"

func (c *Checker) check(ctx context.Context, look bool) (Report, error) {
	r := newReport(c.Topic.Name)
	if !c.Topic.ServedBy(c.Endpoint) {
		return r, fmt.Errorf("check references: %w", &verdict.ElsewhereError{Topic: c.Topic.Name, Wants: c.Topic.Endpoint, Has: c.Endpoint})
	}
	first := newWalk(c.Topic, func(_ topic.SegmentID, chunk segment.Chunk) bool { return c.Rejected || chunk.Refs > 0 })
	first.since = c.Since
	in := &named{}
	err := c.records(ctx, first, in, look, &r)
	r.Chunks, r.Rejected.Complete = first.chunks, c.Rejected && err == nil
	switch r.Limited = errors.Is(err, errEnough); {
	case r.Limited:
		r.Uploads.Why = notAll
	case err == nil:
		err = c.uploads(ctx, first, in, &r)
	}
	if err != nil && !r.Limited {
		return r, fmt.Errorf("check references of topic %q: %w", c.Topic.Name, err)
	}
	r.OK = r.Dangling()+r.States[ref.Pending]+r.Unpinned+r.Uploads.Orphaned == 0
	return r, nil
}

// records goes through the records.
func (c *Checker) records(ctx context.Context, w *walk, in *named, look bool, r *Report) error {
	if !look {
		for item, err := range w.items(ctx) {
			if err != nil {
				return err
			}
			c.note(item, in)
		}
		return nil
	}
	seen := uint64(0)
	for t := range c.looks(ctx, w.items(ctx)) {
		if t.err != nil {
			return t.err
		}
		c.note(t.Item, in)
		if err := c.count(t, r); err != nil {
			return err
		}
		if c.Progress != nil {
			c.Progress(r.References)
		}
		if seen++; seen == c.Limit {
			return errEnough
		}
	}
	return nil
}

// count adds a record to the report.
func (c *Checker) count(t task, r *Report) error {
	if t.look == nil {
		r.Rejected.Records++
		r.Rejected.Kinds[kindOf(t.Rejected)]++
		return nil
	}
	if t.look.fatal != nil {
		return t.look.fatal
	}
	r.References++
	r.States[ref.StateOf(t.look.err)]++
	if t.Pending {
		r.Unverified++
	}
	if t.first && t.look.asked {
		r.Objects++
		switch t.look.pins {
		case unpinned:
			r.Unpinned++
		case elsewhere:
			r.Elsewhere++
		}
	}
	f, is := t.finding()
	if !is {
		return nil
	}
	return c.found(f)
}

func (c *Checker) found(f Finding) error {
	if c.Found == nil {
		return nil
	}
	return c.Found(f)
}

// uploads finds the uploads that no record names.
func (c *Checker) uploads(ctx context.Context, first *walk, in *named, r *Report) error {
	if !c.Since.IsZero() {
		r.Uploads.Why = notAll
		return nil
	}
	if in.accepted.full || in.rejected.full {
		r.Uploads.Why = fmt.Sprintf("records name more than %d different ones", maxNames)
		return nil
	}
	orphans, err := c.unnamed(ctx, in, &r.Uploads)
	if err != nil {
		return err
	}
	r.Uploads.Judged = true
	if len(orphans) == 0 {
		return nil
	}
	if orphans, err = c.recheck(ctx, first, in, orphans, &r.Uploads); err != nil {
		return err
	}
	if err := c.sort(ctx, orphans, &r.Uploads); err != nil {
		return err
	}
	for _, f := range orphans {
		if err := c.found(f); err != nil {
			return err
		}
	}
	return nil
}
