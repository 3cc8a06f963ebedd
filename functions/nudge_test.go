package functions

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/work"
)

// take waits for a nudge, and takes it.
func (b *bench) take(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	q, err := work.Open(ctx, b.js)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := q.Tokens(ctx, work.Filter(work.Plan, 1))
	if err != nil {
		t.Fatal(err)
	}
	token, err := tokens.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := token.Done(ctx); err != nil {
		t.Fatal(err)
	}
	return token.Parts()[0]
}

// TestFloodCallsForAPlanner: what comes in faster than one segment should take it
// puts a token into the work queue.
func TestFloodCallsForAPlanner(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	const messages = 200
	value := bytes.Repeat([]byte("x"), 256<<10)
	for range messages {
		if _, err := b.js.PublishAsync(laneID.Subject("flooded"), value); err != nil {
			t.Fatal(err)
		}
	}
	<-b.js.PublishAsyncComplete()
	sum, err := Ingest(t.Context(), b.Deps, IngestOptions{Once: true, AutoCreate: true})
	if err != nil || sum.Committed != messages {
		t.Fatalf("%+v, %v", sum, err)
	}
	if topic := b.take(t); topic != "flooded" {
		t.Errorf("a nudge for topic %s", topic)
	}
}

// TestNudger: the queue's stream is made when it is needed, and again when it is
// lost.
func TestNudger(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	n := &nudger{d: b.Deps, kind: work.Plan}
	nudge := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return n.Nudge(ctx, "orders")
	}
	for range 2 {
		if err := nudge(); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.js.DeleteStream(t.Context(), work.Stream); err != nil {
		t.Fatal(err)
	}
	if err := nudge(); err == nil {
		t.Error("nudged without a queue")
	}
	if err := nudge(); err != nil {
		t.Fatal(err)
	}
	if topic := b.take(t); topic != "orders" {
		t.Errorf("a nudge for topic %s", topic)
	}
}
