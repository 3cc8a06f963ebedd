package functions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
)

func TestOnceDrains(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	sum, err := b.once(t, 20*time.Second)
	if err != nil || !sum.Drained || sum.Messages != 0 {
		t.Fatalf("an empty lane: %+v, %v", sum, err)
	}
	for round := 1; round <= 2; round++ {
		b.publish(t, 100)
		sum, err := b.once(t, 20*time.Second)
		if err != nil || !sum.Drained || sum.Committed != 100 || sum.Checkpoint != uint64(100*round) {
			t.Fatalf("round %d: %+v, %v", round, sum, err)
		}
	}
	top, err := b.Store.Topic(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	end, err := top.Latest(t.Context())
	if err != nil || len(end) != 1 {
		t.Fatalf("%v, %v", end, err)
	}
	for _, offset := range end {
		if offset != 200 {
			t.Errorf("%d records, want 200", offset)
		}
	}
}

// TestTakeover: a lease that nobody renews any more is taken over in at most 10 s.
func TestTakeover(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.publish(t, 10)
	_, _, err := ingest.Acquire(t.Context(), b.js, laneID, "dead", b.Logger)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	sum, err := b.once(t, 40*time.Second)
	if err != nil || sum.Committed != 10 {
		t.Fatalf("%+v, %v", sum, err)
	}
	t.Logf("took over and drained after %.1f s", time.Since(start).Seconds())
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("the takeover took %s", took)
	}
}

// TestLeaseLost: a holder that slept too long notices that it was replaced.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	sleeper, _, err := ingest.Acquire(t.Context(), b.js, laneID, "sleeper", b.Logger)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ingest.Acquire(t.Context(), b.js, laneID, "heir", b.Logger); err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Hold(t.Context()); !errors.Is(err, ingest.ErrLeaseLost) {
		t.Errorf("got %v", err)
	}
}

// TestHeld: another worker reads the lane. A Once run waits for it as long as it
// is told, not until its deadline, and does not claim that the lane is drained.
func TestHeld(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	lease, _, err := ingest.Acquire(t.Context(), b.js, laneID, "other", b.Logger)
	if err != nil {
		t.Fatal(err)
	}
	held, release := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- lease.Hold(held) }()
	for _, deadline := range []time.Duration{0, time.Hour} {
		start := time.Now()
		deps := b.Deps
		deps.Metrics = nil // two runs cannot register the same
		sum, err := Ingest(t.Context(), deps, IngestOptions{Once: true, Deadline: deadline, Wait: 2 * time.Second})
		var why *HeldError
		if !errors.As(err, &why) || why.Holder != "other" || ExitCode(err) != ExitRetry {
			t.Errorf("deadline %s: %v, exit code %d", deadline, err, ExitCode(err))
		}
		if sum.HeldBy != "other" || sum.Messages != 0 || sum.Drained {
			t.Errorf("deadline %s: %+v", deadline, sum)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("deadline %s: waited %s", deadline, took)
		}
	}
	release()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStopWaiting: being told to stop while waiting for the lease is no failure.
func TestStopWaiting(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	if _, _, err := ingest.Acquire(t.Context(), b.js, laneID, "other", b.Logger); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, stop)
	if sum, err := Ingest(ctx, b.Deps, IngestOptions{}); err != nil || sum.Messages != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
}

// TestStored: a publisher that asks for it hears when its record is in a file,
// and SIGTERM finishes what was read.
func TestStored(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := Ingest(ctx, b.Deps, IngestOptions{AutoCreate: true})
		done <- err
	}()
	p, err := client.NewProducer(b.NATS, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		r, err := p.PublishSync(t.Context(), "t", client.Record{Value: []byte{byte(i)}}, client.WithAck(client.Stored))
		if err != nil || r.Level != client.Stored {
			t.Fatalf("%v, %v", r, err)
		}
		if n := b.count(t); n != i+1 {
			t.Fatalf("%d records can be read after %d were stored", n, i+1)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

// TestFullLane: a lane that is full pushes back, loses nothing, and takes more
// once a worker has drained it.
func TestFullLane(t *testing.T) {
	t.Parallel()
	b := newBench(t, 1<<20)
	big := make([]byte, 100<<10)
	var full error
	accepted := 0
	for ; full == nil && accepted < 100; accepted++ {
		_, full = b.js.Publish(t.Context(), laneID.Subject("t"), big)
	}
	var api *jetstream.APIError
	if !errors.As(full, &api) || api.ErrorCode != 10077 {
		t.Fatalf("a full lane answers %v", full)
	}
	sum, err := b.once(t, 20*time.Second)
	if err != nil || sum.Committed != uint64(accepted-1) {
		t.Fatalf("%d accepted: %+v, %v", accepted-1, sum, err)
	}
	// Trimming is looked at once a second; the next drain finds the lane more
	// than half full and all of it committed.
	if _, err := b.js.Publish(t.Context(), laneID.Subject("t"), big[:10]); err != nil {
		t.Fatalf("the lane was not trimmed: %v", err)
	}
}

// TestPurged: somebody removed messages before they were committed.
func TestPurged(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.publish(t, 3)
	if _, err := b.once(t, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	b.publish(t, 5)
	s, err := b.js.Stream(t.Context(), laneID.Stream())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(7)); err != nil {
		t.Fatal(err)
	}
	_, err = b.once(t, 20*time.Second)
	var back *ingest.LaneBackError
	if !errors.As(err, &back) || ExitCode(err) != ExitConfig {
		t.Errorf("got %v, exit code %d", err, ExitCode(err))
	}
}

// TestLostCheckpoint: without its checkpoint a lane is not read from the start.
func TestLostCheckpoint(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	info, err := lane.Open(t.Context(), b.js, laneID)
	if err != nil {
		t.Fatal(err)
	}
	file := b.Store.CheckpointFile(laneID.Source(info.Incarnation))
	if err := b.Store.Filer.Delete(t.Context(), file.Path(), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.once(t, 20*time.Second); !errors.Is(err, ingest.ErrNoCheckpoint) || ExitCode(err) != ExitConfig {
		t.Errorf("got %v, exit code %d", err, ExitCode(err))
	}
}
