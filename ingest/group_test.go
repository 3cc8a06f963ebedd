package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// site is a NATS server and a filer in memory.
type site struct {
	*testing.T
	nc    *nats.Conn
	js    jetstream.JetStream
	store *segment.Store
}

func newSite(t *testing.T) *site {
	t.Helper()
	nc, js := dial(t, devtest.NATS(t))
	return &site{t, nc, js, segment.NewStore(memfs.New().Client("site", nil), "site")}
}

var smallLanes = lane.Settings{MaxBytes: 4 << 20}

func (s *site) group(name string, n int) []*ingest.JetStream {
	s.Helper()
	settings := smallLanes
	settings.Lanes = n
	lanes, err := ingest.CreateGroup(s.Context(), s.nc, s.store, name, settings)
	if err != nil {
		s.Fatal(err)
	}
	return lanes
}

func (s *site) publish(id lane.ID, topic, value string, after ...lane.After) uint64 {
	s.Helper()
	m := &nats.Msg{Subject: id.Subject(topic), Header: nats.Header{lane.HeaderKey: {"k"}}, Data: []byte(value)}
	if after != nil {
		m.Header.Set(lane.HeaderAfter, lane.FormatAfters(after))
	}
	ack, err := s.js.PublishMsg(s.Context(), m)
	if err != nil {
		s.Fatal(err)
	}
	return ack.Sequence
}

func (s *site) topic(name string) *segment.Topic {
	s.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default}
	t, err := s.store.CreateTopic(s.Context(), def, 1, time.Now())
	if err != nil {
		s.Fatal(err)
	}
	return t
}

func (s *site) worker(l *ingest.JetStream, once bool) *ingest.Worker {
	return ingest.NewWorker(ingest.Options{Lane: l, ID: l.ID, Store: s.store, Once: once})
}

// drain runs a worker until the lane is drained.
func (s *site) drain(l *ingest.JetStream) error {
	ctx, cancel := context.WithTimeout(s.Context(), 30*time.Second)
	defer cancel()
	return s.worker(l, true).Run(ctx, ctx)
}

// start runs a resident worker until the returned function is called.
func (s *site) start(l *ingest.JetStream) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var g errgroup.Group
	g.Go(func() error { return s.worker(l, false).Run(ctx, ctx) })
	var once atomic.Bool
	stop = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		gone := func(err error) bool {
			return errors.Is(err, lane.ErrNoLane) || errors.Is(err, jetstream.ErrStreamNotFound)
		}
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) && !gone(err) {
			s.Errorf("worker of lane %s: %v", l.ID, err)
		}
	}
	s.Cleanup(stop)
	return stop
}

func (s *site) values(name string) []string {
	s.Helper()
	t, err := s.store.Topic(s.Context(), name)
	if errors.Is(err, segment.ErrNoTopic) {
		return nil
	}
	if err != nil {
		s.Fatal(err)
	}
	r, err := t.Read(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	values := []string{}
	for item, err := range r.Next(s.Context()) {
		if err != nil {
			s.Fatal(err)
		}
		values = append(values, string(item.Value))
	}
	return values
}

func (s *site) checkpoint(l *ingest.JetStream) segment.Checkpoint {
	s.Helper()
	state, err := l.State(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	c, _, err := s.store.CheckpointFile(l.ID.Source(state.Incarnation)).Load(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	return c
}

// eventually waits for something that others do.
func (s *site) eventually(what string, ok func() bool) {
	s.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); {
		if time.Now().After(end) {
			s.Fatalf("never: %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func after(l *ingest.JetStream, seq uint64) lane.After {
	return lane.After{Lane: l.ID, Incarnation: l.Incarnation, Sequence: seq}
}

func TestCreateGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, n := range map[string]int{"big": 0, "bigger": 1000, "a.b": 2, "": 2, "Ü": 2, lane.Default: 2, "less": -1} {
		if _, err := ingest.CreateGroup(t.Context(), s.nc, s.store, name, lane.Settings{Lanes: n}); err == nil {
			t.Errorf("group %q of %d lanes was made", name, n)
		}
	}
	first := s.group("big", 3)
	if err := lane.Remove(t.Context(), s.js, first[1].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := ingest.OpenGroup(t.Context(), s.nc, "big"); !is[*lane.IncompleteError](err) {
		t.Errorf("a group that lacks a lane: %v", err)
	}
	again := s.group("big", 3) // completes it
	for i := range first {
		if (first[i].Incarnation == again[i].Incarnation) != (i != 1) {
			t.Errorf("lane %d: incarnation %s, was %s", i, again[i].Incarnation, first[i].Incarnation)
		}
		if c := s.checkpoint(again[i]); c.Sequence != 0 {
			t.Errorf("lane %d: %+v", i, c)
		}
	}
	_, err := ingest.CreateGroup(t.Context(), s.nc, s.store, "big", lane.Settings{Lanes: 4})
	if size, ok := errors.AsType[*lane.SizeError](err); !ok || size.Has != 3 {
		t.Errorf("four lanes of three: %v", err)
	}
}

func is[E error](err error) bool { _, ok := errors.AsType[E](err); return ok }

// TestCreateGroupRace: of callers with different ideas one decides, and each lane
// has the one checkpoint of its incarnation.
func TestCreateGroupRace(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for round := range 5 {
		name := fmt.Sprintf("race%d", round)
		var made [5]atomic.Int64
		var g errgroup.Group
		for i := range 8 {
			n := 3 + i%2
			g.Go(func() error {
				_, err := ingest.CreateGroup(t.Context(), s.nc, s.store, name, lane.Settings{MaxBytes: 1 << 20, Lanes: n})
				if err == nil {
					made[n].Add(1)
				}
				if is[*lane.SizeError](err) {
					return nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if (made[3].Load() == 4) == (made[4].Load() == 4) || made[3].Load()+made[4].Load() != 4 {
			t.Errorf("made with 3 lanes %d times, with 4 %d times", made[3].Load(), made[4].Load())
		}
		lanes, err := ingest.OpenGroup(t.Context(), s.nc, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lanes {
			incs, err := ingest.Incarnations(t.Context(), s.store, l.ID)
			if err != nil || !slices.Equal(incs, []string{l.Incarnation}) {
				t.Errorf("lane %s: checkpoints of %q, %v; its incarnation is %s", l.ID, incs, err, l.Incarnation)
			}
		}
	}
}

func TestALaneThatWasThereBeforeIsWarnedOf(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var log bytes.Buffer
	s.store.Logger = slog.New(slog.NewTextHandler(&log, nil))
	was := s.group("big", 1)[0]
	if log.Len() > 0 {
		t.Errorf("a first start: %s", log.String())
	}
	if err := lane.Remove(t.Context(), s.js, was.ID); err != nil {
		t.Fatal(err)
	}
	s.group("big", 1)
	if !strings.Contains(log.String(), was.Incarnation) {
		t.Errorf("logged %q, want the incarnation %s", log.String(), was.Incarnation)
	}
	for range 2 { // one that was deleted in earnest is nothing to warn of
		if err := ingest.DeleteGroup(t.Context(), s.js, s.store, "big", "me"); err != nil {
			t.Fatal(err)
		}
		log.Reset()
		s.group("big", 1)
	}
	if strings.Count(log.String(), "lane=big.0") != 1 || strings.Contains(log.String(), s.group("big", 1)[0].Incarnation) {
		t.Errorf("logged %q: only the first one was lost", log.String())
	}
}

func TestDeleteGroup(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	del := func(name string) error { return ingest.DeleteGroup(t.Context(), s.js, s.store, name, "me") }
	if err := del(lane.Default); !errors.Is(err, ingest.ErrDefaultGroup) {
		t.Errorf("default: %v", err)
	}
	if err := del("big"); !errors.Is(err, lane.ErrNoLane) {
		t.Errorf("no such group: %v", err)
	}
	lanes := s.group("big", 2)
	s.group(lane.Default, 1)
	s.topic("t")
	if _, err := s.store.SetLanes(t.Context(), "t", "big"); err != nil {
		t.Fatal(err)
	}
	if used, ok := errors.AsType[*ingest.GroupInUseError](del("big")); !ok || !slices.Equal(used.Topics, []string{"t"}) {
		t.Errorf("a topic's definition names it: %v", used)
	}
	if _, err := s.store.SetLanes(t.Context(), "t", lane.Default); err != nil {
		t.Fatal(err)
	}
	bind := func(name string) {
		if err := lane.Bind(t.Context(), s.js, name, lane.Binding{Group: "big", Lanes: 2}); err != nil {
			t.Fatal(err)
		}
	}
	bind("t")
	if err := del("big"); !is[*ingest.GroupInUseError](err) {
		t.Errorf("producers are told to use it: %v", err)
	}
	if err := lane.Unbind(t.Context(), s.js, "t"); err != nil {
		t.Fatal(err)
	}
	bind("a-topic-that-was-deleted")
	s.publish(lanes[1].ID, "t", "v")
	for range 2 {
		if left, ok := errors.AsType[*ingest.UncommittedError](del("big")); !ok || left.Lane != "big.1" || left.Messages != 1 {
			t.Errorf("a message is not committed: %v", left)
		}
	}
	s.publish(lanes[1].ID, "t", "w") // it still takes messages
	if err := s.drain(lanes[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := lane.Close(t.Context(), s.js, lanes[0].ID); err != nil { // as an interrupted call leaves it
		t.Fatal(err)
	}
	if err := del("big"); err != nil {
		t.Fatal(err)
	}
	if ids, err := lane.List(t.Context(), s.js, "big"); err != nil || len(ids) != 0 {
		t.Errorf("left: %v, %v", ids, err)
	}
	if got := s.values("t"); !slices.Equal(got, []string{"v", "w"}) {
		t.Errorf("the topic holds %q", got)
	}
	trail, err := ingest.Audit(t.Context(), s.store, lanes[1].ID.Source(lanes[1].Incarnation))
	if err != nil || len(trail.Events) != 1 || trail.Events[0].What != ingest.EventDeleted || trail.Events[0].By != "me" {
		t.Errorf("%+v, %v", trail, err)
	}
}

// TestDeleteGroupLosesNothing: what was acknowledged while a group was being
// deleted is committed, or the group is still there.
func TestDeleteGroupLosesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.topic("t")
	for round := range 5 {
		l := s.group("big", 1)[0]
		stop := s.start(l)
		var acked atomic.Int64
		var g errgroup.Group
		g.Go(func() error {
			for {
				_, err := s.js.Publish(t.Context(), l.ID.Subject("t"), []byte("v"), jetstream.WithRetryAttempts(0))
				if errors.Is(err, jetstream.ErrNoStreamResponse) {
					return nil
				}
				if err != nil {
					return err
				}
				acked.Add(1)
			}
		})
		s.eventually("the group is deleted", func() bool {
			err := ingest.DeleteGroup(t.Context(), s.js, s.store, "big", "me")
			if err != nil && !is[*ingest.UncommittedError](err) {
				t.Fatal(err)
			}
			return err == nil
		})
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		stop()
		c, _, err := s.store.CheckpointFile(l.ID.Source(l.Incarnation)).Load(t.Context())
		if err != nil || c.Sequence != uint64(acked.Load()) {
			t.Errorf("round %d: %d messages were acknowledged, the checkpoint is %d, %v", round, acked.Load(), c.Sequence, err)
		}
	}
}
