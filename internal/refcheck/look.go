package refcheck

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verdict"
)

const (
	// parallel is how many objects are looked at at a time, and ahead how many
	// references wait for the one before them.
	parallel = 32
	ahead    = 8 * parallel
	// maxLooks is how many different references are remembered, so that each is
	// looked at once: some 50 MiB.
	maxLooks = 1 << 16
	// maxSilent is how many looks in a row may get no answer before the endpoint is
	// given up: each takes a minute or more where nothing comes at all.
	maxSilent = 2 * parallel
)

// task is a record with its look, or without one if it is rejected.
type task struct {
	segment.Item
	look  *look
	first bool // of those with this reference
	err   error
}

// look is what was found out about a reference.
type look struct {
	done  chan struct{}
	asked bool // the endpoint was
	name  object.Name
	info  object.Info
	err   error // what ref.StateOf tells of
	fatal error // of the filer
	pins  pinState
}

type pinState byte

// What is known of the pin of a valid object.
const (
	unknown pinState = iota
	pinned
	unpinned
	elsewhere
)

// looks looks at the objects of records, several at a time, each reference once,
// and yields the records in their order.
func (c *Checker) looks(ctx context.Context, items iter.Seq2[segment.Item, error]) iter.Seq[task] {
	return func(yield func(task) bool) {
		ctx, stop := context.WithCancel(ctx)
		started := make(chan task, ahead)
		var work, workers errgroup.Group
		workers.SetLimit(parallel)
		defer func() { stop(); _ = work.Wait() }() // always nil
		work.Go(func() error {
			defer close(started)
			defer workers.Wait() //nolint:errcheck // always nil
			known := map[id]*look{}
			for item, err := range items {
				t := task{Item: item, err: err}
				if err == nil && item.Rejected == "" {
					t.look, t.first = knownLook(known, *item.Ref)
				}
				select {
				case started <- t:
				case <-ctx.Done():
					return nil
				}
				if t.first {
					workers.Go(func() error { c.look(ctx, t.look, *item.Ref); return nil })
				}
			}
			return nil
		})
		for t := range started {
			if t.look != nil {
				<-t.look.done
			}
			if !yield(t) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(task{err: err})
		}
	}
}

func knownLook(known map[id]*look, f record.Ref) (l *look, first bool) {
	key := idOf("%s\x00%s\x00%d\x00%s\x00%x", f.URL, f.Version, f.Size, f.ETag, f.SHA256)
	l = known[key]
	if l != nil {
		return l, false
	}
	if len(known) == maxLooks {
		clear(known)
	}
	l = &look{done: make(chan struct{})}
	known[key] = l
	return l, true
}

// look finds out about one reference.
func (c *Checker) look(ctx context.Context, l *look, f record.Ref) {
	defer close(l.done)
	if l.name, l.err = verdict.Allowed(c.Topic.Definition, f); l.err != nil {
		return
	}
	l.asked = true
	l.info, l.err = c.Objects.Head(ctx, l.name.Bucket, l.name.Key, l.name.Version)
	if !verdict.Silent(l.err) {
		c.silent.Store(0)
	} else if n := c.silent.Add(1); n >= maxSilent {
		l.fatal = fmt.Errorf("the last %d looks at objects had no answer: %w", n, l.err)
	}
	if l.err != nil {
		return
	}
	l.info.Pins = nil // they are asked for at the filer
	if l.err = ref.Compare(f, l.info); l.err != nil || c.Pins == nil {
		return
	}
	if l.name.Version == "" {
		l.name.Version = l.info.Version
	}
	l.pins, l.fatal = c.pinned(ctx, l.name, l.info)
}

// pinned finds out about the pin of a valid object.
func (c *Checker) pinned(ctx context.Context, n object.Name, info object.Info) (pinState, error) {
	marks, here, err := c.marks(ctx, n)
	switch {
	case err != nil:
		return unknown, err
	case !here:
		return elsewhere, nil
	case c.has(marks):
		return pinned, nil
	}
	// A bucket of that name may be at two endpoints.
	o, err := c.find(ctx, n)
	switch {
	case errors.Is(err, filer.ErrNotFound), err == nil && (o.Size != info.Size || info.ETag != "" && o.ETag != info.ETag):
		return elsewhere, nil
	case err != nil:
		return unknown, err
	}
	return unpinned, nil
}

// find looks an object up on the filer.
func (c *Checker) find(ctx context.Context, n object.Name) (o filer.Object, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		o, err = c.Filer.Look(ctx, filer.ObjectName{Bucket: n.Bucket, Key: n.Key, Version: n.Version})
		return err
	})
	return o, err
}

// marks are the pins of an object, if our filer has it.
func (c *Checker) marks(ctx context.Context, n object.Name) (marks []pin.Mark, here bool, err error) {
	marks, err = c.Pins.Held(ctx, n)
	switch {
	case err == nil:
		return marks, true, nil
	case errors.Is(err, pin.ErrElsewhere), errors.Is(err, object.ErrNotFound), errors.Is(err, filer.ErrInvalid):
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("pins of %s: %w", n, err)
}

// has tells whether a mark is of this topic in its present life.
func (c *Checker) has(marks []pin.Mark) bool {
	for _, m := range marks {
		if m.Holder.Incarnation == c.Topic.Incarnation {
			return true
		}
	}
	return false
}

// finding is what a look says of a record; false: all is well.
func (t task) finding() (Finding, bool) {
	l := t.look
	f := Finding{
		State: ref.StateOf(l.err), Segment: t.Segment, Offset: &t.Offset, Unverified: t.Pending,
		URL: t.Ref.URL, Version: t.Ref.Version, Size: t.Ref.Size, Err: l.err, name: l.name, info: l.info,
	}
	if t.Key != nil {
		key := Key(t.Key)
		f.Key = &key
	}
	if !l.info.Modified.IsZero() {
		f.Size, f.Modified = l.info.Size, l.info.Modified.UTC()
	}
	switch {
	case f.State == ref.Pending:
		f.Kind, f.Reason = Pending, l.err.Error()
	case f.State != ref.Valid:
		f.Kind, f.Reason = Dangling, l.err.Error()
	case l.pins == unpinned && t.first:
		f.Kind = Unpinned
	default:
		return f, false
	}
	return f, true
}
