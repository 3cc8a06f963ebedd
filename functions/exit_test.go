package functions

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

func TestExitCodes(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("wrapped: %w", err) }
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, ExitDone},
		{errors.New("filer: connection refused"), ExitRetry},
		{context.DeadlineExceeded, ExitRetry},
		{wrap(&ingest.LaneBackError{}), ExitConfig},
		{wrap(&ingest.GapError{}), ExitConfig},
		{wrap(ingest.ErrNoCheckpoint), ExitConfig},
		{wrap(&lane.MismatchError{}), ExitConfig},
		{wrap(&commitlog.ChainError{}), ExitBug},
		{wrap(commitlog.ErrWentBack), ExitBug},
		{wrap(segment.ErrSourceWentBack), ExitBug},
		{wrap(&UsageError{errors.New("x")}), ExitUsage},
		{wrap(jetstream.ErrJetStreamNotEnabled), ExitConfig},
		{wrap(jetstream.ErrJetStreamNotEnabledForAccount), ExitConfig},
	} {
		if got := ExitCode(outcome(c.err)); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

func TestUnavailable(t *testing.T) {
	for _, err := range []error{
		nats.ErrNoServers, nats.ErrConnectionClosed, nats.ErrTimeout, nats.ErrNoResponders, jetstream.ErrNoHeartbeat,
		context.DeadlineExceeded, &net.OpError{Op: "dial", Err: errors.New("connection refused")}, &jetstream.APIError{Code: 503, ErrorCode: 10008},
	} {
		if !Unavailable(fmt.Errorf("wrapped: %w", err)) {
			t.Errorf("%v: not taken as unavailable", err)
		}
	}
	for _, err := range []error{
		errors.New("x"), context.Canceled, lane.ErrNoLane, &jetstream.APIError{Code: 404, ErrorCode: 10059},
		jetstream.ErrJetStreamNotEnabled, nats.ErrAuthorization, &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC},
	} {
		if Unavailable(err) {
			t.Errorf("%v: taken as unavailable", err)
		}
	}
}

// TestWorst: what needs a programmer, then the operator, then the caller, then
// time; and nothing that happened is left out of the text.
func TestWorst(t *testing.T) {
	bug, config := errors.New("bug"), &ConfigError{errors.New("config")}
	usage, retry := &UsageError{errors.New("usage")}, &RetryError{errors.New("retry")}
	for _, c := range []struct {
		errs []error
		code int
		text string
	}{
		{nil, ExitDone, ""},
		{[]error{nil, nil}, ExitDone, ""},
		{[]error{nil, retry}, ExitRetry, "retry"},
		{[]error{retry, retry}, ExitRetry, "retry"},
		{[]error{retry, usage}, ExitUsage, "usage\nretry"},
		{[]error{usage, config, retry}, ExitConfig, "config\nusage\nretry"},
		{[]error{retry, config, bug, usage}, ExitBug, "bug\nconfig\nusage\nretry"},
		{[]error{fmt.Errorf("2 records: %w", usage), retry}, ExitUsage, "2 records: usage\nretry"},
	} {
		err := Worst(c.errs...)
		if got := ExitCode(err); got != c.code {
			t.Errorf("%v: exit code %d, want %d", c.errs, got, c.code)
		}
		if err != nil && err.Error() != c.text {
			t.Errorf("%v: %q, want %q", c.errs, err, c.text)
		}
	}
}
