package segment

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
)

// SetLanes binds a topic to a lane group, in its definition, and returns the
// group that it was bound to. Any number may race; the last one counts. Telling
// producers is the caller's.
func (s *Store) SetLanes(ctx context.Context, name, group string) (was string, err error) {
	for {
		t, err := s.Topic(ctx, name)
		if err != nil {
			return "", err
		}
		next := t.Definition
		next.Lanes = group
		if err := next.Validate(); err != nil {
			return "", err
		}
		if t.Lanes == group {
			return group, nil
		}
		_, err = s.definition(name).Save(ctx, next, t.version)
		if errors.Is(err, filer.ErrConflict) {
			continue // somebody else changed it
		}
		if err != nil {
			return "", fmt.Errorf("topic %q: %w", name, err)
		}
		return t.Lanes, nil
	}
}
