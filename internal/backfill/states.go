package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// State reads a job's state. If it is missing, because whoever made the job did not
// get that far, it is made. [ErrNoJob]: there is no job.
func (b *Jobs) State(ctx context.Context, id string) (State, error) {
	s, _, err := b.state(ctx, id)
	return s, err
}

func (b *Jobs) state(ctx context.Context, id string) (State, cursor.Version, error) {
	if err := CheckID(id); err != nil {
		return State{}, "", err
	}
	file := b.stateFile(id)
	for {
		s, v, err := file.Load(ctx)
		if !errors.Is(err, filer.ErrNotFound) {
			return s, v, err
		}
		j, err := b.Load(ctx, id)
		if err != nil {
			return s, v, err
		}
		s = NewState(j)
		if s.Phase == Waiting {
			if s.Phase, err = b.begun(ctx, j); err != nil {
				return s, v, err
			}
		}
		if v, err = file.Create(ctx, s); !errors.Is(err, filer.ErrExists) {
			return s, v, err
		}
	}
}

// Update changes what change changes in a job's state, and returns the state after
// it. Any number may do so at once, and all changes land: change is called again,
// with what there is then, when somebody else was faster. Its error ends the call,
// comes as it is, and nothing is changed; what changes nothing writes nothing.
func (b *Jobs) Update(ctx context.Context, id string, change func(*State) error) (State, error) {
	for {
		was, version, err := b.state(ctx, id)
		if err != nil {
			return was, err
		}
		is := was.clone()
		if err := change(&is); err != nil {
			return was, err
		}
		if reflect.DeepEqual(was, is) {
			return was, nil
		}
		_, err = b.stateFile(id).Save(ctx, is, version)
		switch {
		case errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
			continue // somebody else changed it, or deleted it
		case err != nil:
			return was, fmt.Errorf("state of job %s: %w", id, err)
		}
		return is, nil
	}
}

// Listed is a job in a list.
type Listed struct {
	ID    string
	State State
	// Err says that the job cannot be worked on, and why its State is empty: its
	// file or its state is gone or damaged.
	Err error
}

// List lists the topic's jobs in the order of their ids. It reads their states, and
// no job's file, unless a state is missing. Its errors end it.
func (b *Jobs) List(ctx context.Context) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		for after := ""; ; {
			page, err := b.page(ctx, b.dir(), after)
			if err != nil || len(page) == 0 {
				if err != nil {
					yield(Listed{}, fmt.Errorf("list the jobs of topic %q: %w", b.topic.Name, err))
				}
				return
			}
			after = page[len(page)-1].Name()
			listed, err := b.listed(ctx, page)
			if err != nil {
				yield(Listed{}, fmt.Errorf("list the jobs of topic %q: %w", b.topic.Name, err))
				return
			}
			for _, l := range listed {
				if !yield(l, nil) {
					return
				}
			}
		}
	}
}

func (b *Jobs) page(ctx context.Context, dir, after string) (page []filer.Entry, err error) {
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		page, err = b.store.Filer.List(ctx, dir, after, 0)
		return err
	})
	return page, err
}

// listed looks at the jobs of a page, a few at a time.
func (b *Jobs) listed(ctx context.Context, page []filer.Entry) ([]Listed, error) {
	all := make([]Listed, len(page))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, e := range page {
		g.Go(func() (err error) {
			all[i].ID = e.Name()
			all[i].State, err = b.look(ctx, e.Name())
			if errors.Is(err, ErrNoJob) || errors.Is(err, filer.ErrCorrupt) || errors.As(err, new(*IDError)) {
				all[i].State, all[i].Err, err = State{}, err, nil
			}
			return err
		})
	}
	return all, g.Wait()
}

// look reads a job's state, if there is a job.
func (b *Jobs) look(ctx context.Context, id string) (State, error) {
	if err := CheckID(id); err != nil {
		return State{}, err
	}
	err := filer.Retry(ctx, func(ctx context.Context) error {
		_, err := b.store.Filer.Lookup(ctx, b.jobPath(id))
		return err
	})
	if errors.Is(err, filer.ErrNotFound) {
		err = fmt.Errorf("job %s of topic %q: %w", id, b.topic.Name, ErrNoJob)
	}
	if err != nil {
		return State{}, err
	}
	return b.State(ctx, id)
}
