package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"reflect"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Errors about schedules.
var (
	// ErrNoSchedule says that the topic has no schedule of this name.
	ErrNoSchedule = errors.New("no such schedule")
	// ErrScheduleExists says that there is one already.
	ErrScheduleExists = errors.New("schedule exists already")
)

// Schedules are the schedules of a topic's incarnation. It holds no state; concurrent
// use, in any number of processes, is fine.
type Schedules struct {
	store *segment.Store
	topic *segment.Topic
	jobs  *Jobs
}

// SchedulesOf gives a topic's schedules. It does no I/O.
func SchedulesOf(store *segment.Store, t *segment.Topic) *Schedules {
	return &Schedules{store, t, Of(store, t)}
}

func (c *Schedules) dir() string { return path.Join(c.topic.Dir(), "schedules") }

func (c *Schedules) file(name string) cursor.File[Schedule] {
	return cursor.At[Schedule](c.store.Filer, path.Join(c.dir(), name+scheduleExt))
}

// folder is where files of the schedules of a name are, of each in one of its own.
func (c *Schedules) folder(name string) string { return path.Join(c.dir(), name) }

const scheduleExt = ".json"

// JobID is the id of a schedule's job n, from 0.
func (c *Schedules) JobID(s Schedule, n uint64) string {
	return c.jobs.DerivedID("schedule", s.ID, strconv.FormatUint(n, 10))
}

// Create makes a schedule. A [*ScheduleError] says what is wrong with it, before
// anything is written; [ErrScheduleExists] that there is one of its name.
func (c *Schedules) Create(ctx context.Context, s Schedule) error {
	if err := s.Validate(c.topic.Definition); err != nil {
		return err
	}
	_, err := c.file(s.Name).Create(ctx, s)
	if errors.Is(err, filer.ErrExists) {
		err = ErrScheduleExists
	}
	if err != nil {
		return fmt.Errorf("schedule %s of topic %q: %w", s.Name, c.topic.Name, err)
	}
	return nil
}

// Load reads a schedule. [ErrNoSchedule], and a [*ScheduleError] for one that cannot
// be worked with, are typed.
func (c *Schedules) Load(ctx context.Context, name string) (Schedule, error) {
	s, _, err := c.load(ctx, name)
	return s, err
}

func (c *Schedules) load(ctx context.Context, name string) (Schedule, cursor.Version, error) {
	if err := CheckScheduleName(name); err != nil {
		return Schedule{}, "", err
	}
	s, version, err := c.file(name).Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		err = fmt.Errorf("schedule %s of topic %q: %w", name, c.topic.Name, ErrNoSchedule)
	}
	if err != nil {
		return s, version, err
	}
	if s.Name != name {
		return s, version, &ScheduleError{name, []string{fmt.Sprintf("its file is of schedule %.100q", s.Name)}, 1}
	}
	return s, version, s.Validate(c.topic.Definition)
}

// Update changes what change changes, and returns the schedule after it. Any number
// may do so at once: change is called again, with what there is then, when somebody
// else was faster. What changes nothing writes nothing.
func (c *Schedules) Update(ctx context.Context, name string, change func(*Schedule)) (Schedule, error) {
	for {
		was, version, err := c.load(ctx, name)
		if err != nil {
			return was, err
		}
		is := was
		if change(&is); reflect.DeepEqual(was, is) {
			return was, nil
		}
		if ok, err := c.save(ctx, is, version); ok || err != nil {
			return is, err
		}
	}
}

// save replaces what was loaded. false: somebody else has changed or deleted it.
func (c *Schedules) save(ctx context.Context, s Schedule, loaded cursor.Version) (bool, error) {
	_, err := c.file(s.Name).Save(ctx, s, loaded)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
		return false, nil
	}
	return false, fmt.Errorf("schedule %s of topic %q: %w", s.Name, c.topic.Name, err)
}

// ListedSchedule is a schedule in a list.
type ListedSchedule struct {
	Schedule
	// Err says that the schedule cannot be worked with, and why only its name is known.
	Err error
}

// List lists the topic's schedules in the order of their names. Its errors end it.
func (c *Schedules) List(ctx context.Context) iter.Seq2[ListedSchedule, error] {
	return func(yield func(ListedSchedule, error) bool) {
		fail := func(err error) {
			yield(ListedSchedule{}, fmt.Errorf("list the schedules of topic %q: %w", c.topic.Name, err))
		}
		for after := ""; ; {
			page, err := c.jobs.page(ctx, c.dir(), after)
			if err != nil {
				fail(err)
				return
			}
			if len(page) == 0 {
				return
			}
			for _, e := range page {
				name, ok := strings.CutSuffix(e.Name(), scheduleExt)
				if !ok || e.IsDir {
					continue
				}
				l, err := c.listed(ctx, name)
				if errors.Is(err, ErrNoSchedule) {
					continue // deleted since
				}
				if err != nil {
					fail(err)
					return
				}
				if !yield(l, nil) {
					return
				}
			}
			after = page[len(page)-1].Name()
		}
	}
}

func (c *Schedules) listed(ctx context.Context, name string) (ListedSchedule, error) {
	s, err := c.Load(ctx, name)
	var bad *ScheduleError
	if errors.As(err, &bad) || errors.Is(err, filer.ErrCorrupt) {
		return ListedSchedule{Schedule{Name: name}, err}, nil
	}
	return ListedSchedule{Schedule: s}, err
}

// Delete deletes a schedule and what it knew of objects that were taken, and returns
// it as it was. Its jobs stay, also one that is not done; whoever is making one at
// this moment may still make it. [ErrNoSchedule]: it is gone; what an earlier call has
// left is deleted all the same. A damaged one is deleted as well.
func (c *Schedules) Delete(ctx context.Context, name string) (Schedule, error) {
	if err := CheckScheduleName(name); err != nil {
		return Schedule{}, err
	}
	was, err := c.Load(ctx, name)
	var bad *ScheduleError
	if err != nil && !errors.Is(err, ErrNoSchedule) && !errors.Is(err, filer.ErrCorrupt) && !errors.As(err, &bad) {
		return was, err
	}
	gone := errors.Is(err, ErrNoSchedule)
	del := func(ctx context.Context) error { return c.store.Filer.Delete(ctx, c.file(name).Path(), "") }
	if err := filer.Retry(ctx, del); err != nil {
		return was, fmt.Errorf("delete schedule %s of topic %q: %w", name, c.topic.Name, err)
	}
	tree := func(ctx context.Context) error { return c.store.Filer.DeleteTree(ctx, c.folder(name)) }
	if err := filer.Retry(ctx, tree); err != nil {
		return was, fmt.Errorf("delete the ledger of schedule %s of topic %q: %w", name, c.topic.Name, err)
	}
	if gone {
		return was, err
	}
	return was, nil
}
