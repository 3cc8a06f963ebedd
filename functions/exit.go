package functions

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Exit codes, after sysexits.h, so that scripts and schedulers can tell what to
// do.
const (
	ExitDone   = 0
	ExitBug    = 1
	ExitUsage  = 2
	ExitRetry  = 75
	ExitConfig = 78
)

// UsageError says that the call was wrong; trying it again will not help.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// ConfigError says that a setting, or the setup that it points to, is wrong.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// RetryError says that something was not available; trying again later may help.
type RetryError struct{ Err error }

func (e *RetryError) Error() string { return e.Err.Error() }
func (e *RetryError) Unwrap() error { return e.Err }

// ExitCode is the one place where an outcome becomes an exit code.
func ExitCode(err error) int {
	var usage *UsageError
	var config *ConfigError
	var retry *RetryError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &config):
		return ExitConfig
	case errors.As(err, &retry):
		return ExitRetry
	}
	return ExitBug
}

// rank orders exit codes from bad to worse: what needs a programmer, the
// operator, the caller, and what only needs time.
var rank = map[int]int{ExitDone: 0, ExitRetry: 1, ExitUsage: 2, ExitConfig: 3, ExitBug: 4}

// Worst makes one error of several, nil ones left out. It has the exit code of
// the worst, and its text goes from worst to best: a script that only has the
// code must not try again what trying again cannot mend.
func Worst(errs ...error) error {
	var all []error
	for _, err := range errs {
		if err != nil && !slices.ContainsFunc(all, func(e error) bool { return e.Error() == err.Error() }) {
			all = append(all, err)
		}
	}
	slices.SortStableFunc(all, func(a, b error) int { return rank[ExitCode(b)] - rank[ExitCode(a)] })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	texts := make([]string, len(all))
	for i, err := range all {
		texts[i] = err.Error()
	}
	return &severalError{all[0], strings.Join(texts, "\n")}
}

// severalError reads as all of several errors and is the worst of them.
type severalError struct {
	worst error
	text  string
}

func (e *severalError) Error() string { return e.text }
func (e *severalError) Unwrap() error { return e.worst }

// away are what nats.go says when the server is not there, or not just now.
var away = []error{
	nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrConnectionReconnecting, nats.ErrDisconnected,
	nats.ErrNoResponders, nats.ErrNoServers, nats.ErrReconnectBufExceeded, nats.ErrStaleConnection, nats.ErrTimeout,
	jetstream.ErrConnectionClosed, jetstream.ErrConsumerDeleted, jetstream.ErrConsumerLeadershipChanged,
	jetstream.ErrNoHeartbeat, jetstream.ErrNoStreamResponse, jetstream.ErrOrderedConsumerReset, jetstream.ErrServerShutdown,
	context.DeadlineExceeded,
}

// Unavailable tells errors of a server that did not answer, or answered that it
// cannot just now.
func Unavailable(err error) bool {
	for _, known := range away {
		if errors.Is(err, known) {
			return true
		}
	}
	var dial *net.OpError // not net.Error, which errors of files implement too
	var name *net.DNSError
	var api *jetstream.APIError
	return errors.As(err, &dial) || errors.As(err, &name) || errors.As(err, &api) && api.Code == 503 && !Unfit(err)
}

// Unfit tells errors of a NATS server that is not set up for this: without
// JetStream, or without permission for it.
func Unfit(err error) bool {
	return errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) ||
		errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrPermissionViolation)
}
