package verdict

import (
	"context"
	"errors"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
)

// Asked tells whether the endpoint was asked for what [Judge.Judge] returned, nil
// included. False: it was decided by the reference, its topic or the settings alone,
// or the look was called off, and says nothing about the endpoint. Of an endpoint that
// was asked, [Silent] tells whether it answered.
func Asked(err error) bool {
	var text *ref.ParseError
	var name *object.NameError
	var not *NotAllowedError
	decided := errors.As(err, &text) || errors.As(err, &name) || errors.As(err, &not)
	return !decided && !Foreign(err) && !errors.Is(err, context.Canceled)
}

// Foreign tells that a judge cannot look at the objects of a topic at all: it has no
// endpoint, or another one.
func Foreign(err error) bool {
	var elsewhere *ElsewhereError
	return errors.As(err, &elsewhere) || errors.Is(err, ErrNoEndpoint)
}
