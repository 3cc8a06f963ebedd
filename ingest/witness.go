package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// checkWitness compares a lane with the message that its checkpoint stands on
// (rule 17): *LaneBackError.
func checkWitness(ctx context.Context, l Lane, id lane.ID, state State, c segment.Checkpoint) error {
	at := c.Sequence
	if at == 0 {
		return nil
	}
	back := func(format string, a ...any) error {
		return &LaneBackError{id.String(), fmt.Sprintf(format, a...)}
	}
	if state.Last < at {
		return back("its last message is %d, but %d is committed", state.Last, at)
	}
	if c.Gap {
		return nil // there is no message that could be compared until the next one is committed
	}
	t, err := l.TimeOf(ctx, at)
	switch {
	case errors.Is(err, ErrNoMessage):
		return back("message %d, the last committed one, is gone", at)
	case err != nil:
		return fmt.Errorf("witness of lane %s: %w", id, err)
	case !t.Equal(c.Witness):
		return back("message %d was stored at %s, but what was committed under that number was stored at %s",
			at, t.UTC().Format(time.RFC3339Nano), c.Witness.Format(time.RFC3339Nano))
	}
	return nil
}
