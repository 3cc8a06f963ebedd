package filer

import (
	"context"
	"errors"
	"fmt"
)

// Remover is [Objects] that can be deleted too, each as it was looked at and not
// otherwise. Methods are as those of Objects.
type Remover interface {
	Objects
	// Remove deletes an object and its bytes. ErrConflict is definite, and means
	// that it is not as it was looked up any more: overwritten, even by the same
	// bytes, deleted, or an attribute of it changed. ErrInvalid is definite too:
	// the object has versions, of which one alone is not to be deleted, or is a
	// folder. Any other error is an unknown outcome.
	Remove(ctx context.Context, o Object) error
}

// Remove is [Remover.Remove] with unknown outcomes settled: it repeats the call
// until it knows. On nil the object that was looked at is gone, whoever deleted
// it. On ErrConflict there is another one, or the same one that has changed.
func Remove(ctx context.Context, s Remover, o Object) error {
	for b := (backoff{}); ; {
		err := try(ctx, func(ctx context.Context) error { return s.Remove(ctx, o) })
		if err == nil || errors.Is(err, ErrInvalid) {
			return wrapRemove(o, err)
		}
		lookErr := try(ctx, func(ctx context.Context) error { _, err := s.Look(ctx, o.Name); return err })
		switch {
		case errors.Is(lookErr, ErrNotFound):
			return nil
		case errors.Is(err, ErrConflict):
			return wrapRemove(o, err)
		}
		if !b.wait(ctx) {
			return fmt.Errorf("remove %s: outcome unknown: %w", o.Name, errors.Join(err, ctx.Err()))
		}
	}
}

func wrapRemove(o Object, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("remove %s: %w", o.Name, err)
}
