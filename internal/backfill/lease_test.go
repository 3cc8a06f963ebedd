package backfill_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/backfill"
)

// TestLeaseOfAClockAhead: a run whose clock is a little ahead keeps its job.
func TestLeaseOfAClockAhead(t *testing.T) {
	now := time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC)
	s := backfill.State{Phase: backfill.Open}
	if err := s.Claim(now.Add(50*time.Millisecond), "a", "ahead"); err != nil {
		t.Fatal(err)
	}
	var held *backfill.HeldError
	if err := s.Claim(now, "b", "exact"); !errors.As(err, &held) {
		t.Errorf("%v, and the job is that of %q", err, s.Runner.ID)
	}
}
