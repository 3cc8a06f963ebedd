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
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/expand"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// looks is how many objects are looked at at a time.
const looks = 16

// seen is an object that was looked at. Beside an error it is as it was listed.
type seen struct {
	listed
	modified time.Time
	count    expand.Count // of what its rows are, if they were counted
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

// looker looks at objects that their topic allows.
type looker struct {
	objects *client.Objects
	allowed allowance
	topic   string
	options batchOptions
	dry     bool                // nothing is uploaded
	store   *object.Store       // for what is to be counted
	heavy   *semaphore.Weighted // held by what is
}

// lookAt looks at several objects at a time.
func (l *looker) lookAt(ctx context.Context, src source) checked {
	return func(yield func(seen, error) bool) {
		ctx, stop := context.WithCancel(ctx)
		started := make(chan *look, looks)
		var work, workers errgroup.Group
		workers.SetLimit(looks)
		defer func() { stop(); _ = work.Wait() }() // always nil
		work.Go(func() error {
			defer close(started)
			defer workers.Wait() //nolint:errcheck // always nil
			for o, err := range src {
				k := &look{done: make(chan struct{}), seen: seen{listed: o}, err: err}
				select {
				case started <- k:
				case <-ctx.Done():
					return nil
				}
				if err != nil {
					close(k.done)
					return nil
				}
				workers.Go(func() error { l.at(ctx, k); return nil })
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
func (l *looker) at(ctx context.Context, k *look) {
	defer close(k.done)
	err := l.see(ctx, &k.seen)
	switch {
	case err == nil:
	case k.seen.where != "":
		k.err = fmt.Errorf("%s: %w", k.seen.where, err)
	default:
		k.err = err
	}
}

// see finds out what an object is.
func (l *looker) see(ctx context.Context, s *seen) error {
	if s.file != "" {
		return l.file(ctx, s)
	}
	var err error
	if s.Batch, err = l.options.of(s.listed, objectKey(s.URL)); err != nil {
		return err
	}
	o, err := l.check(ctx, s.listed)
	if err != nil {
		return err
	}
	s.Reference, s.modified = o.Reference, o.Modified
	return l.count(ctx, s)
}

func (l *looker) check(ctx context.Context, is listed) (client.Object, error) {
	if err := l.allowed.object(is.URL); err != nil {
		return client.Object{}, err
	}
	o, err := l.objects.Check(ctx, is.Reference)
	if err == nil && is.empty && o.Size != 0 {
		err = &client.ReferenceError{URL: o.URL, State: string(ref.Changed), Err: fmt.Errorf("size is %d, want 0", o.Size)}
	}
	return o, err
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

// stateOf is the state of a reference of which an error tells, or what would
// become of it.
func stateOf(err error) string {
	switch {
	case is[*verdict.NotAllowedError](err), is[*client.BatchError](err):
		return "rejected"
	case is[*rows.FileError](err), is[*expand.CountError](err):
		return string(ref.Changed)
	}
	if e, ok := errors.AsType[*client.ReferenceError](err); ok {
		return e.State
	}
	return string(ref.StateOf(err))
}
