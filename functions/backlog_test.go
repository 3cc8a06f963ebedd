package functions

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/planner"
)

// lags is what a planner would hear of a group.
func (b *bench) lags(t *testing.T, group string) []planner.Backlog {
	t.Helper()
	list, err := NewLanes(b.js, b.Store).Backlogs(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestBacklogs: what of lanes is not committed, whatever state they are in.
func TestBacklogs(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	if list := b.lags(t, lane.Default); len(list) != 0 {
		t.Errorf("an empty lane: %+v", list)
	}
	if list := b.lags(t, "nobody"); len(list) != 0 {
		t.Errorf("no group: %+v", list)
	}
	b.publish(t, 10)
	if list := b.lags(t, lane.Default); len(list) != 1 || list[0].Messages != 10 || list[0].Lane != "default.0" || list[0].Lag <= 0 {
		t.Errorf("no worker has come: %+v", list)
	}
	if _, err := b.once(t, 0); err != nil {
		t.Fatal(err)
	}
	if list := b.lags(t, lane.Default); len(list) != 0 {
		t.Errorf("a drained lane: %+v", list)
	}
	b.publish(t, 7)
	if err := b.lane.Trim(t.Context(), 14); err != nil {
		t.Fatal(err)
	}
	if list := b.lags(t, lane.Default); len(list) != 1 || list[0].Messages != 4 {
		t.Errorf("7 new messages, of which 3 were trimmed: %+v", list)
	}

	b.group(t, "big", 4)
	for range 3 {
		if _, err := b.js.Publish(t.Context(), lane.ID{Group: "big", N: 2}.Subject("t"), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if list := b.lags(t, "big"); len(list) != 1 || list[0].Lane != "big.2" || list[0].Messages != 3 {
		t.Errorf("one of four lanes: %+v", list)
	}
	for n := range 4 {
		if err := b.js.DeleteStream(t.Context(), lane.ID{Group: "big", N: n}.Stream()); err != nil {
			t.Fatal(err)
		}
	}
	if list := b.lags(t, "big"); len(list) != 0 {
		t.Errorf("a group that was deleted: %+v", list)
	}
}

// TestBacklogsAreAskedOnce: many topics of a group ask its lanes once in a while,
// and one group does not wait for another.
func TestBacklogsAreAskedOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	lanes := NewLanes(b.js, b.Store)
	b.publish(t, 1)
	before := b.NATS.Stats().OutMsgs
	for range 100 {
		if list, err := lanes.Backlogs(t.Context(), lane.Default); err != nil || len(list) != 1 {
			t.Fatalf("%v, %v", list, err)
		}
	}
	if asked := b.NATS.Stats().OutMsgs - before; asked > 12 {
		t.Errorf("100 topics made %d requests", asked)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lanes.Backlogs(ended, "other"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up: %v", err)
	}
	if _, err := lanes.Backlogs(t.Context(), "other"); err != nil {
		t.Errorf("another one after it: %v", err)
	}
}

// TestNothingIsMergedWhileMessagesWait: a worker that is down looks like silence.
func TestNothingIsMergedWhileMessagesWait(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.aged(t, "t", 4)
	b.publish(t, 5)
	until(t, "the oldest message has waited for longer than the short window", func() bool {
		list := b.lags(t, lane.Default)
		return len(list) == 1 && list[0].Lag > quick().Default.Short
	})
	sum, err := b.planOnce(t, PlanOptions{})
	if err != nil || sum.Topics != 1 || sum.Merges != 0 || len(b.layout(t, "t").Live) != 4 {
		t.Errorf("%+v, %v", sum, err)
	}
	if _, err := b.once(t, 0); err != nil {
		t.Fatal(err)
	}
	until(t, "with the messages in segments, those are merged", func() bool {
		_, err := b.planOnce(t, PlanOptions{})
		return err == nil && len(b.layout(t, "t").Live) == 1
	})
}

// TestBacklogBehindAGap: a worker stops at a gap, and what is behind it waits.
func TestBacklogBehindAGap(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	id := lane.ID{Group: "holed"}
	s, err := b.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: id.Stream(), Subjects: []string{id.Subject("*")}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := b.js.Publish(t.Context(), id.Subject("t"), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	source := id.Source("")
	if err := b.Store.CreateCheckpoint(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	c, version, err := b.Store.CheckpointFile(source).Load(t.Context())
	if err == nil {
		_, err = b.Store.CheckpointFile(source).Save(t.Context(), c.Advance(1, time.Now(), nil), version)
	}
	if err == nil {
		err = s.DeleteMsg(t.Context(), 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	if list := b.lags(t, "holed"); len(list) != 1 || list[0].Messages != 2 {
		t.Errorf("%+v", list)
	}
}
