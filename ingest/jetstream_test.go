package ingest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

var laneID = lane.ID{Group: lane.Default}

// dial connects to a nats-server, again and again.
func dial(t *testing.T, s *server.Server, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	quiet := func(*nats.Conn, *nats.Subscription, error) {}
	nc, err := nats.Connect(s.ClientURL(), append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(5 * time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.ErrorHandler(quiet)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

func openLane(t *testing.T, nc *nats.Conn, store *segment.Store, maxBytes int64) *ingest.JetStream {
	t.Helper()
	l, err := ingest.OpenLane(t.Context(), nc, store, laneID, lane.Settings{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func publish(t *testing.T, js jetstream.JetStream, n int) {
	t.Helper()
	for i := range n {
		if _, err := js.Publish(t.Context(), laneID.Subject("t"), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOpenLaneRace: of many that make a lane at once one wins, all get that
// one's incarnation, and no checkpoint but its own is left.
func TestOpenLaneRace(t *testing.T) {
	t.Parallel()
	const racers = 8
	srv, fs := devtest.NATS(t), memfs.New()
	lanes := make([]*ingest.JetStream, racers)
	var g errgroup.Group
	for i := range racers {
		nc, _ := dial(t, srv)
		store := segment.NewStore(fs.Client("racer", nil), "bench")
		g.Go(func() (err error) {
			lanes[i], err = ingest.OpenLane(t.Context(), nc, store, laneID, lane.Settings{})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, l := range lanes {
		state, err := l.State(t.Context())
		if err != nil || l.Incarnation != lanes[0].Incarnation || state.Incarnation != l.Incarnation {
			t.Errorf("opened %q, the lane says %+v, %v; another racer has %q", l.Incarnation, state, err, lanes[0].Incarnation)
		}
	}
	store := segment.NewStore(fs.Client("reader", nil), "bench")
	want := store.CheckpointFile(laneID.Source(lanes[0].Incarnation)).Path()
	if got := fs.Paths(); !slices.Equal(got, []string{want}) {
		t.Errorf("files %q, want only %q", got, want)
	}
}

// TestLaneTrim: State, TimeOf and Trim tell and do what they say, and a trim
// leaves the message that it is told to.
func TestLaneTrim(t *testing.T) {
	t.Parallel()
	nc, js := dial(t, devtest.NATS(t))
	store := segment.NewStore(memfs.New().Client("worker", nil), "bench")
	l := openLane(t, nc, store, 8<<20)
	if s, err := l.State(t.Context()); err != nil || s.Last != 0 || s.Bytes != 0 || s.MaxBytes != 8<<20 {
		t.Errorf("an empty lane: %+v, %v", s, err)
	}
	before := time.Now()
	publish(t, js, 10)
	full, err := l.State(t.Context())
	if err != nil || full.First != 1 || full.Last != 10 || full.Bytes == 0 || full.Incarnation != l.Incarnation {
		t.Errorf("ten messages: %+v, %v", full, err)
	}
	at, err := l.TimeOf(t.Context(), 7)
	if err != nil || at.Before(before.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
		t.Errorf("message 7 is of %s, %v", at, err)
	}
	if err := l.Trim(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	s, err := l.State(t.Context())
	if err != nil || s.First != 7 || s.Last != 10 || s.Bytes >= full.Bytes {
		t.Errorf("trimmed below 7: %+v, %v", s, err)
	}
	if again, err := l.TimeOf(t.Context(), 7); err != nil || !again.Equal(at) {
		t.Errorf("message 7 is now of %s, %v; it was of %s", again, err, at)
	}
	for _, gone := range []uint64{6, 11} {
		if _, err := l.TimeOf(t.Context(), gone); !errors.Is(err, ingest.ErrNoMessage) {
			t.Errorf("message %d: %v", gone, err)
		}
	}
}

// TestReadEndsAtReconnect: what a reader delivers after its connection was lost
// may be another lane's, so it delivers nothing more.
func TestReadEndsAtReconnect(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := devtest.NATSOn(t, dir, server.RANDOM_PORT)
	back := make(chan struct{}, 1)
	nc, _ := dial(t, srv, nats.ReconnectHandler(func(*nats.Conn) { back <- struct{}{} }))
	_, js := dial(t, srv)
	l := openLane(t, nc, segment.NewStore(memfs.New().Client("worker", nil), "bench"), 8<<20)
	publish(t, js, 3)
	r, err := l.Read(t.Context(), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for want := uint64(2); want <= 3; want++ {
		m, err := r.Next(t.Context())
		if err != nil || m.Sequence != want || m.Topic != "t" || len(m.Data) != 1 || m.Data[0] != byte(want-1) {
			t.Fatalf("message %d: %+v, %v", want, m, err)
		}
		if at, err := l.TimeOf(t.Context(), want); err != nil || !at.Equal(m.Time) {
			t.Errorf("message %d was delivered with %s, the lane has %s, %v", want, m.Time, at, err)
		}
	}
	devtest.NATSOn(t, dir, devtest.StopNATS(srv))
	<-back
	next := make(chan error, 1)
	go func() {
		_, err := r.Next(t.Context())
		next <- err
	}()
	publish(t, js, 1)
	if err := <-next; !errors.Is(err, ingest.ErrReconnected) {
		t.Errorf("after the connection was made again: %v", err)
	}
}

// worked runs a worker until the lane is drained.
func worked(t *testing.T, l *ingest.JetStream, store *segment.Store, change func(*ingest.Options)) *ingest.Worker {
	t.Helper()
	o := ingest.Options{Lane: l, ID: laneID, Store: store, AutoCreate: true, Once: true}
	change(&o)
	w := ingest.NewWorker(o)
	if err := w.Run(t.Context(), context.Background()); err != nil {
		t.Fatal(err)
	}
	if !w.Drained() {
		t.Fatal("the lane is not drained")
	}
	return w
}

// TestTrimming: a worker trims to a mark that is old enough and no farther; the
// last committed message stays, whatever the lag.
func TestTrimming(t *testing.T) {
	t.Parallel()
	nc, js := dial(t, devtest.NATS(t))
	store := segment.NewStore(memfs.New().Client("worker", nil), "bench")
	l := openLane(t, nc, store, 64<<20)
	ahead := time.Duration(0) // of the real time
	drain := func() ingest.State {
		t.Helper()
		worked(t, l, store, func(o *ingest.Options) {
			o.TrimLag = time.Hour
			o.Now = func() time.Time { return time.Now().Add(ahead) }
		})
		s, err := l.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for _, step := range []struct {
		later time.Duration
		first uint64 // after ten more messages
	}{
		{0, 1},                 // a mark at 10
		{30 * time.Minute, 1},  // a mark at 20; the first is not old enough
		{31 * time.Minute, 10}, // the mark at 10 is
		{2 * time.Hour, 30},    // the newest mark of those that are
	} {
		ahead += step.later
		publish(t, js, 10)
		s := drain()
		if s.First != step.first {
			t.Errorf("%s later the lane begins at %d, want %d (last %d)", step.later, s.First, step.first, s.Last)
		}
	}
}

// TestTrimmingAtOnce: even with hardly any lag the witness stays.
func TestTrimmingAtOnce(t *testing.T) {
	t.Parallel()
	nc, js := dial(t, devtest.NATS(t))
	store := segment.NewStore(memfs.New().Client("worker", nil), "bench")
	l := openLane(t, nc, store, 64<<20)
	for round := uint64(1); round <= 3; round++ {
		publish(t, js, 10)
		w := worked(t, l, store, func(o *ingest.Options) { o.TrimLag = time.Nanosecond })
		s, err := l.State(t.Context())
		if err != nil || s.Last != 10*round || s.First > s.Last || w.Counts().Checkpoint != s.Last {
			t.Fatalf("round %d: %+v, %v, checkpoint %d", round, s, err, w.Counts().Checkpoint)
		}
		if _, err := l.TimeOf(t.Context(), s.Last); err != nil {
			t.Errorf("round %d: the witness: %v", round, err)
		}
		if round > 1 && s.First == 1 {
			t.Errorf("round %d: nothing was trimmed", round)
		}
	}
}

// TestTrimmingWhenHalfFull: a lane that is over half full is trimmed to the
// checkpoint, whatever the lag.
func TestTrimmingWhenHalfFull(t *testing.T) {
	t.Parallel()
	nc, js := dial(t, devtest.NATS(t))
	store := segment.NewStore(memfs.New().Client("worker", nil), "bench")
	l := openLane(t, nc, store, 1<<20)
	value := []byte(strings.Repeat("x", 64<<10))
	drain := func(n int) ingest.State {
		t.Helper()
		for range n {
			if _, err := js.Publish(t.Context(), laneID.Subject("t"), value); err != nil {
				t.Fatal(err)
			}
		}
		worked(t, l, store, func(o *ingest.Options) { o.TrimLag = time.Hour })
		s, err := l.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := drain(6); s.First != 1 {
		t.Errorf("less than half full: %+v", s)
	}
	if s := drain(6); s.First != s.Last {
		t.Errorf("over half full: %+v, want only the witness", s)
	}
	if s := drain(6); s.First != 12 {
		t.Errorf("less than half full again: %+v", s)
	}
}
