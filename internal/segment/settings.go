package segment

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Definition reads a topic's definition as it is, and writes nothing: one whose
// creation or deletion is under way is not finished. Errors are those of
// [Store.Topic], but for ErrDeleting.
func (s *Store) Definition(ctx context.Context, name string) (topic.Definition, error) {
	t, err := s.lookup(ctx, name)
	if err != nil {
		return topic.Definition{}, err
	}
	return t.Definition, nil
}

// ChangeTopic changes what change changes in a topic's definition, and returns the
// definition before and after. Any number may do so at once, and all changes land:
// change is called again, with what there is then, when somebody else was faster.
// Its error ends the call, and nothing is changed. A change that is the same again
// writes nothing.
//
// What makes a topic this one (name, incarnation, state, roots, time of creation)
// stays as it is. A topic whose creation was interrupted is finished first.
// ErrNoTopic and ErrDeleting are typed; a definition that is none after the change
// is an [*InvalidError].
func (s *Store) ChangeTopic(ctx context.Context, name string, change func(*topic.Definition) error) (was, is topic.Definition, err error) {
	for {
		t, err := s.Topic(ctx, name)
		if err != nil {
			return was, is, err
		}
		was, is = t.Definition, t.Definition
		is.Buckets = slices.Clone(is.Buckets)
		if err := change(&is); err != nil {
			return was, was, err
		}
		is.Name, is.Incarnation, is.State, is.Roots, is.Created = was.Name, was.Incarnation, was.State, was.Roots, was.Created
		if err := is.Validate(); err != nil {
			return was, was, &InvalidError{name, err}
		}
		if reflect.DeepEqual(was, is) {
			return was, is, nil
		}
		_, err = s.definition(name).Save(ctx, is, t.version)
		switch {
		case errors.Is(err, filer.ErrConflict), errors.Is(err, filer.ErrNotFound):
			continue // somebody else changed it, or deleted it
		case err != nil:
			return was, was, fmt.Errorf("topic %q: %w", name, err)
		}
		return was, is, nil
	}
}

// InvalidError tells what is wrong with the definition that a topic would have.
type InvalidError struct {
	Topic string
	Err   error
}

func (e *InvalidError) Error() string { return fmt.Sprintf("topic %q: %v", e.Topic, e.Err) }

// Unwrap gives what is wrong.
func (e *InvalidError) Unwrap() error { return e.Err }

// SetLanes binds a topic to a lane group, in its definition, and returns the
// group that it was bound to. Any number may race; the last one counts. Telling
// producers is the caller's.
func (s *Store) SetLanes(ctx context.Context, name, group string) (was string, err error) {
	before, _, err := s.ChangeTopic(ctx, name, func(d *topic.Definition) error {
		d.Lanes = group
		return nil
	})
	return before.Lanes, err
}
