package verdict_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// TestAsked: only a look at the endpoint says anything about the endpoint.
func TestAsked(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"valid":            {nil, true},
		"another":          {&ref.MismatchError{What: "size"}, true},
		"not there":        {object.ErrNotFound, true},
		"deleted":          {object.ErrDeleted, true},
		"no rights":        {object.ErrForbidden, true},
		"too much for it":  {object.ErrInvalid, true},
		"no answer":        {&object.UnavailableError{Op: "head", Err: errors.New("refused")}, true},
		"no answer yet":    {context.DeadlineExceeded, true},
		"called off":       {context.Canceled, false},
		"no URL":           {&ref.ParseError{URL: "x", Reason: "y"}, false},
		"no name":          {&object.NameError{Part: "key", Reason: "it is empty"}, false},
		"not allowed":      {&verdict.NotAllowedError{Topic: "orders"}, false},
		"without endpoint": {verdict.ErrNoEndpoint, false},
		"another endpoint": {&verdict.ElsewhereError{Topic: "orders"}, false},
	} {
		err := c.err
		if err != nil {
			err = fmt.Errorf("about something: %w", err)
		}
		if got := verdict.Asked(err); got != c.want {
			t.Errorf("%s: asked %v", name, got)
		}
	}
}
