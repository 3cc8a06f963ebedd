package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/ref"
)

// looks is how many objects are looked at at a time.
const looks = 16

// seen is an object that was looked at. Beside an error it is as it was listed.
type seen struct {
	listed
	modified time.Time
}

// checked are objects in the order of their list. Those with an error may be
// passed over, unless they have no URL: then the list has ended.
type checked iter.Seq2[seen, error]

// look is a look at an object that is under way.
type look struct {
	done chan struct{}
	seen seen
	err  error
}

// lookAt looks at several objects at a time.
func lookAt(ctx context.Context, objects *client.Objects, src source) checked {
	return func(yield func(seen, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		started := make(chan *look, looks)
		var work, workers errgroup.Group
		workers.SetLimit(looks)
		defer func() { stop(); _ = work.Wait() }() // always nil
		work.Go(func() error {
			defer close(started)
			defer workers.Wait() //nolint:errcheck // always nil
			for l, err := range src {
				k := &look{done: make(chan struct{}), seen: seen{listed: l}, err: err}
				select {
				case started <- k:
				case <-ctx.Done():
					return nil
				}
				if err != nil {
					close(k.done)
					return nil
				}
				workers.Go(func() error { k.at(ctx, objects); return nil })
			}
			return nil
		})
		for k := range started {
			<-k.done
			if !yield(k.seen, k.err) {
				return
			}
		}
		if err := context.Cause(ctx); err != nil {
			yield(seen{}, err)
		}
	}
}

// at looks at one object.
func (k *look) at(ctx context.Context, objects *client.Objects) {
	defer close(k.done)
	o, err := objects.Check(ctx, k.seen.Reference)
	if err == nil && k.seen.empty && o.Size != 0 {
		err = &client.ReferenceError{URL: o.URL, State: string(ref.Changed), Err: fmt.Errorf("size is %d, want 0", o.Size)}
	}
	switch {
	case err == nil:
		k.seen.Reference, k.seen.modified = o.Reference, o.Modified
	case k.seen.where != "":
		k.err = fmt.Errorf("%s: %w", k.seen.where, err)
	default:
		k.err = err
	}
}

// tally counts errors by exit code, and keeps the first of each.
type tally map[int]*failures

func (t *tally) add(err error) {
	if *t == nil {
		*t = tally{}
	}
	code := functions.ExitCode(err)
	if (*t)[code] == nil {
		(*t)[code] = &failures{first: err}
	}
	(*t)[code].count++
}

// err says how many there were of each kind, the worst one first.
func (t *tally) err(what string) error {
	var errs []error
	for _, code := range slices.Sorted(maps.Keys(*t)) {
		f := (*t)[code]
		errs = append(errs, fmt.Errorf("%d %s, the first: %w", f.count, what, f.first))
	}
	return functions.Worst(errs...)
}

// stateOf is the state of a reference of which an error tells.
func stateOf(err error) string {
	if e, ok := errors.AsType[*client.ReferenceError](err); ok {
		return e.State
	}
	return string(ref.StateOf(err))
}
