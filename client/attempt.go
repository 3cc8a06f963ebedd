package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What an attempt can come to. Any other error leaves doubt.
type (
	errUnsent  struct{ error } // nothing took the message; try again
	errFull    struct{ error } // the lane has no room; try again
	errRefused struct{ error } // never
)

func (e errUnsent) Unwrap() error  { return e.error }
func (e errFull) Unwrap() error    { return e.error }
func (e errRefused) Unwrap() error { return e.error }

var errClosedOnTheWay = errors.New("the connection to NATS was closed before the answer came")

// codeStoreFailed is JetStream's error code for a message that could not be
// stored, because the stream is full for instance.
const codeStoreFailed = 10077

// checkEvery is how often an attempt looks at the connection: whether it was
// closed, and whether the server complained of a missing permission, which is the
// only answer to a publish without one.
const checkEvery = 100 * time.Millisecond

// attempt sends msg once and waits for the answer, at most AckTimeout or until
// the connection breaks, both of which the library sees to.
func (s *sender) attempt(ctx context.Context, msg *nats.Msg) (*jetstream.PubAck, error) {
	before := s.link.nc.LastError()
	f, err := s.js.PublishMsgAsync(msg, jetstream.WithRetryAttempts(0))
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return nil, errRefused{err}
	case errors.Is(err, nats.ErrConnectionClosed):
		return nil, errUnsent{err}
	case err != nil:
		return nil, fmt.Errorf("publish: %w", err)
	}
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		select {
		case ack := <-f.Ok():
			if ack.Stream != s.id.Stream() || ack.Sequence == 0 {
				return nil, fmt.Errorf("publish: answered by stream %q with sequence %d", ack.Stream, ack.Sequence)
			}
			return ack, nil
		case err := <-f.Err():
			return nil, answered(err)
		case <-check.C:
			if s.link.nc.IsClosed() {
				return nil, errClosedOnTheWay
			}
			if now := s.link.nc.LastError(); !errors.Is(now, before) && denies(now, msg.Subject) {
				return nil, errRefused{now}
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("no answer yet: %w", context.Cause(ctx))
		}
	}
}

// answered sorts JetStream's errors. Bad requests stay bad. That a full stream
// stored nothing is certain; of other failures to store it is not.
func answered(err error) error {
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		return errUnsent{err}
	}
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case !ok:
		return fmt.Errorf("publish: %w", err)
	case api.ErrorCode == codeStoreFailed && strings.HasPrefix(api.Description, "maximum "):
		return errFull{err}
	case api.Code == 400:
		return errRefused{err}
	}
	return fmt.Errorf("publish: %w", err)
}

// denies tells whether err is the server's complaint about publishing to subject.
func denies(err error, subject string) bool {
	return errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), fmt.Sprintf("Publish to %q", subject))
}
