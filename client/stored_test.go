package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

func (w *world) commitStream() {
	w.t.Helper()
	if err := lane.EnsureCommitStream(context.Background(), w.js); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) announce(checkpoint uint64) {
	w.t.Helper()
	if err := lane.Announce(context.Background(), w.js, w.announcement(checkpoint)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) announcement(checkpoint uint64) lane.Announcement {
	return lane.Announcement{Lane: "default.0", Incarnation: w.lane.Incarnation, Checkpoint: checkpoint}
}

// announcer plays an ingest worker: it says "stored" for all that arrives.
func (w *world) announcer() {
	w.t.Helper()
	w.commitStream()
	c, err := w.js.OrderedConsumer(context.Background(), w.lane.Stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		w.t.Fatal(err)
	}
	cc, err := c.Consume(func(m jetstream.Msg) {
		if meta, err := m.Metadata(); err == nil { // the next one makes up for a lost one
			_ = lane.Announce(context.Background(), w.js, w.announcement(meta.Sequence.Stream))
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cc.Stop)
}

func TestStored(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	w.announcer()
	p := w.producer(Options{BatchBytes: minBatchBytes})
	var all []*Pending
	for i := range 2000 {
		level := Buffered
		if i%3 == 0 {
			level = Stored
		}
		pending, err := p.Publish(t.Context(), "t", Record{Value: str(i)}, WithAck(level))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
	}
	for i, pending := range all {
		r, err := pending.Wait(t.Context())
		if err != nil || (r.Level == Stored) != (i%3 == 0) {
			t.Fatalf("record %d: %v at %v, %v", i, r, r.Level, err)
		}
	}
	for _, g := range w.read(defaultLane) {
		if got := g.Header.Get(lane.HeaderAck); got != "stored" {
			t.Fatalf("%s: %q, though its batch has records that wait", lane.HeaderAck, got)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r, err := all[0].Wait(t.Context()); err != nil || r.Level != Stored {
		t.Errorf("after Close: %v, %v", r, err)
	}
	noGoroutines(t)
}

func TestStoredWaitsForTheCheckpoint(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	w.commitStream()
	p := w.producer(Options{Ack: Stored, Linger: -1})
	var all []*Pending
	for i := range 3 {
		pending, err := p.Publish(t.Context(), "t", Record{Value: str(i)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
		<-pending.batch.acked // one batch each
	}
	w.announce(2)
	for i, pending := range all[:2] {
		if r, err := pending.Wait(t.Context()); err != nil || r.Sequence != uint64(i+1) || r.Level != Stored {
			t.Errorf("record %d: %v, %v", i, r, err)
		}
	}
	r, err := all[2].Wait(canceled())
	if !isType[*UnconfirmedError](err) || !errors.Is(err, context.Canceled) || NotStored(err) || r.Sequence != 3 || r.Level != Buffered {
		t.Errorf("above the checkpoint: %v, %v", r, err)
	}
	if err := p.Flush(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
	if err := p.Close(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	r, err = all[2].Wait(t.Context())
	if !isType[*UnconfirmedError](err) || !errors.Is(err, ErrClosed) || NotStored(err) || r.Sequence != 3 {
		t.Errorf("after Close: %v, %v", r, err)
	}
}

func TestStoredWhenTheLaneIsReset(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	w.commitStream()
	p := w.producer(Options{Ack: Stored, Linger: -1})
	pending, err := p.Publish(t.Context(), "t", Record{})
	if err != nil {
		t.Fatal(err)
	}
	<-pending.batch.acked
	w.makeLane(lane.Settings{})
	w.announce(5)
	r, err := pending.Wait(t.Context())
	if !isType[*UnknownOutcomeError](err) || !errors.Is(err, ErrIncarnation) || r.Incarnation == w.lane.Incarnation {
		t.Errorf("outcome: %v, %v", r, err)
	}
}

func TestAFailedBatchIsNotStored(t *testing.T) {
	w := newWorld(t, lane.Settings{MaxBytes: 1000})
	p := w.producer(Options{Ack: Stored, RetryBudget: 50 * time.Millisecond})
	pending, err := p.Publish(t.Context(), "t", Record{Value: noise(100 << 10)}, WithAck(Stored))
	if err != nil {
		t.Fatal(err)
	}
	<-pending.Done()
	if _, err := pending.Wait(t.Context()); !isType[*LaneFullError](err) && !isType[*RejectedError](err) {
		t.Errorf("outcome: %v", err)
	}
	if err := p.Flush(t.Context()); !isType[*FailedError](err) {
		t.Errorf("Flush: %v", err)
	}
}
