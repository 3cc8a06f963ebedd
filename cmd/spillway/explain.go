package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// explain gives the error of a command its exit code: 2 when the call was
// wrong, 78 when the setup is, 75 when something was not available. What is left
// is a fault of the data or of the program.
func explain(err error) error {
	switch {
	case err == nil, functions.ExitCode(err) != functions.ExitBug:
		return err
	case callersFault(err):
		return &functions.UsageError{Err: err}
	case errors.Is(err, filer.ErrCorrupt), errors.Is(err, filer.ErrNotFound):
		return err
	case setupsFault(err):
		return &functions.ConfigError{Err: err}
	case errors.Is(err, context.Canceled):
		return &functions.RetryError{Err: fmt.Errorf("interrupted: %w", err)}
	case errors.Is(err, lane.ErrNoLane):
		return &functions.RetryError{Err: fmt.Errorf("%w; a worker makes it: start `spillway run ingest`", err)}
	case passes(err):
		return &functions.RetryError{Err: err}
	}
	return err
}

func callersFault(err error) bool {
	return is[*topic.NameError](err) || is[*client.ValueTooLargeError](err) || is[*client.RecordTooLargeError](err) ||
		is[*client.RecordError](err) || is[*client.ReferenceError](err) || wrongObject(err) || errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrTopicExists) ||
		errors.Is(err, segment.ErrForeignPosition)
}

func setupsFault(err error) bool {
	return is[*client.MismatchError](err) || is[*lane.IncompleteError](err) || is[*client.RejectedError](err) || is[*client.OptionsError](err) ||
		is[*client.ObjectsError](err) && !passes(err) || errors.Is(err, object.ErrForbidden) ||
		is[*filer.ExpiryError](err) || is[*filer.StorageError](err) || errors.Is(err, filer.ErrInvalid) || functions.Unfit(err)
}

func passes(err error) bool {
	return is[*awayError](err) || is[*stalledError](err) || is[*client.LaneFullError](err) || is[*client.UnavailableError](err) ||
		is[*client.UnknownOutcomeError](err) || is[*client.UnconfirmedError](err) || is[*client.BlockedError](err) ||
		passingObject(err) || errors.Is(err, segment.ErrDeleting) || errors.Is(err, filer.ErrReadOnly) || errors.Is(err, filer.ErrConflict) ||
		functions.Unavailable(err)
}

// wrongObject tells whether an object that the caller named is none. The bucket
// for large values is a setting.
func wrongObject(err error) bool {
	return !is[*client.ObjectsError](err) && (errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrInvalid))
}

func passingObject(err error) bool {
	e, ok := errors.AsType[*client.ObjectsError](err)
	return ok && e.Passes || is[*object.UnavailableError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
