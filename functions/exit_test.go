package functions

import (
	"context"
	"errors"
	"fmt"
	"testing"

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
	} {
		if got := ExitCode(outcome(c.err)); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}
