package doctor

import (
	"context"
	"errors"
	"time"
)

// Clock tells a server's time, as it was while it was asked.
type Clock interface {
	Clock(ctx context.Context) (time.Time, error)
}

// ErrNoClock says that a server has nothing yet that shows its time.
var ErrNoClock = errors.New("nothing there shows its time yet")

// maxSkew is how far clocks may be apart. No clock decides safety; but times of
// records are those of NATS, what is old is judged by them, and people read them.
const maxSkew = 2 * time.Second

// clockOf is nil for a server that is not there.
func clockOf[T Clock](server T) Clock {
	if any(server) == nil {
		return nil
	}
	return server
}

// clocks compares this machine's clock with those of the servers.
func clocks(ctx context.Context, now func() time.Time, filer, nats Clock) []Finding {
	const check = "clock"
	var found []Finding
	for _, c := range []struct {
		name  string
		clock Clock
	}{{"the filer", filer}, {"NATS", nats}} {
		if c.clock == nil {
			continue
		}
		before := now()
		at, err := c.clock.Clock(ctx)
		after := now()
		switch {
		case errors.Is(err, ErrNoClock):
			found = append(found, ok(check, "%s: %s", c.name, oneLine(err)))
			continue
		case err != nil:
			found = append(found, away(check, err))
			continue
		}
		// It was at some moment between the two.
		skew, by := time.Duration(0), "ahead"
		switch {
		case at.After(after):
			skew = at.Sub(after)
		case at.Before(before):
			skew, by = before.Sub(at), "behind"
		}
		if skew > maxSkew {
			found = append(found, warn(check, "let NTP set the clocks: times of records, and what counts as old, go by them",
				"%s's is %s %s of this machine's", c.name, skew.Round(time.Millisecond), by))
			continue
		}
		found = append(found, ok(check, "%s's and this machine's agree within %s", c.name, (skew+after.Sub(before)).Round(time.Millisecond)))
	}
	return found
}
