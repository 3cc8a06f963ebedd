package lane

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// watched is a lane with a commit stream and a watch that polls every so often.
type watched struct {
	server *server.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	info   Info
	*Commits
}

func newWatched(t *testing.T, every time.Duration) *watched {
	t.Helper()
	w := &watched{server: startServer(t, t.TempDir(), -1)}
	w.nc, w.js = connect(t, w.server)
	var err error
	if w.info, err = Ensure(t.Context(), w.js, testLane, small); err != nil {
		t.Fatal(err)
	}
	if err := EnsureCommitStream(t.Context(), w.js); err != nil {
		t.Fatal(err)
	}
	if w.Commits, err = watch(t.Context(), w.nc, w.js, testLane, every); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

func (w *watched) announce(t *testing.T, incarnation string, checkpoint uint64) {
	t.Helper()
	if err := Announce(t.Context(), w.js, Announcement{testLane.String(), incarnation, checkpoint}); err != nil {
		t.Fatal(err)
	}
}

// never is a poll period that no test lives to see.
const never = time.Hour

func TestWaitersAreSettledByAnnouncements(t *testing.T) {
	w := newWatched(t, never)
	w.announce(t, w.info.Incarnation, 10)
	if err := w.Wait(t.Context(), w.info.Incarnation, 10); err != nil {
		t.Fatal(err)
	}
	const n = 500
	var g errgroup.Group
	for _, seq := range rand.Perm(n) {
		g.Go(func() error { return w.Wait(t.Context(), w.info.Incarnation, uint64(11+seq)) })
	}
	early := make(chan error, 1)
	w.Notify(w.info.Incarnation, n+11, func(err error) { early <- err })
	for cp := uint64(20); cp < n+10; cp += 100 {
		w.announce(t, w.info.Incarnation, cp)
	}
	w.announce(t, w.info.Incarnation, n+10)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-early:
		t.Fatalf("checkpoint %d settled a waiter for %d: %v", n+10, n+11, err)
	default:
	}
	w.announce(t, w.info.Incarnation, n+11)
	if err := <-early; err != nil {
		t.Fatal(err)
	}
}

func TestAnEarlierAnnouncementIsFoundAtTheStart(t *testing.T) {
	w := newWatched(t, never)
	w.announce(t, w.info.Incarnation, 7)
	late, err := watch(t.Context(), w.nc, w.js, testLane, never)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	if err := late.Wait(t.Context(), w.info.Incarnation, 7); err != nil {
		t.Fatal(err)
	}
}

func TestPollingMakesUpForMissedAnnouncements(t *testing.T) {
	w := newWatched(t, 10*time.Millisecond)
	if err := w.sub.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	w.announce(t, w.info.Incarnation, 3)
	if err := w.Wait(t.Context(), w.info.Incarnation, 3); err != nil {
		t.Fatal(err)
	}
}

func TestAReconnectPolls(t *testing.T) {
	dir := t.TempDir()
	s := startServer(t, dir, -1)
	nc, js := connect(t, s)
	if err := EnsureCommitStream(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	c, err := watch(t.Context(), nc, js, testLane, never)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.sub.Unsubscribe(); err != nil { // deaf: only a poll can tell
		t.Fatal(err)
	}
	if err := Announce(t.Context(), js, Announcement{testLane.String(), "k3j9x2aa", 5}); err != nil {
		t.Fatal(err)
	}
	port := s.Addr().String()
	s.Shutdown()
	s.WaitForShutdown()
	startServer(t, dir, portOf(t, port))
	if err := c.Wait(t.Context(), "k3j9x2aa", 5); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheLaneSaysWhichIncarnationItHas(t *testing.T) {
	w := newWatched(t, 10*time.Millisecond)
	old := w.info.Incarnation
	waitOld := make(chan error, 1)
	w.Notify(old, 5, func(err error) { waitOld <- err })
	w.announce(t, "zombie22", 99) // an incarnation that the lane does not have
	w.announce(t, old, 5)
	if err := <-waitOld; err != nil {
		t.Fatalf("an announcement of another incarnation ended the wait: %v", err)
	}

	w.Notify(old, 6, func(err error) { waitOld <- err })
	now := again(t, w.js)
	waitNew := make(chan error, 1)
	w.Notify(now.Incarnation, 1, func(err error) { waitNew <- err })
	w.announce(t, now.Incarnation, 1)
	if err := <-waitOld; !errors.Is(err, ErrIncarnation) {
		t.Errorf("waiting for the old incarnation: %v", err)
	}
	if err := <-waitNew; err != nil {
		t.Errorf("waiting for the new incarnation: %v", err)
	}
}

func TestAResetLaneIsNoticedWithoutAnnouncements(t *testing.T) {
	w := newWatched(t, 2*time.Millisecond)
	if err := w.Wait(t.Context(), "formerly", 1); !errors.Is(err, ErrIncarnation) {
		t.Errorf("Wait: %v", err)
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	w := newWatched(t, never)
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := w.Wait(ctx, w.info.Incarnation, 1); !errors.Is(err, why) {
		t.Errorf("Wait: %v", err)
	}
	if w.book.waiting() {
		t.Error("the waiter was not removed")
	}
}

func TestClose(t *testing.T) {
	w := newWatched(t, never)
	w.announce(t, w.info.Incarnation, 4)
	if err := w.Wait(t.Context(), w.info.Incarnation, 4); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	w.Notify(w.info.Incarnation, 5, func(err error) { waiting <- err })
	w.Close()
	w.Close()
	if err := <-waiting; !errors.Is(err, ErrWatchClosed) {
		t.Errorf("who waited: %v", err)
	}
	if err := w.Wait(t.Context(), w.info.Incarnation, 5); !errors.Is(err, ErrWatchClosed) {
		t.Errorf("Wait after Close: %v", err)
	}
	if err := w.Wait(t.Context(), w.info.Incarnation, 4); err != nil {
		t.Errorf("what was known: %v", err)
	}
}

func TestGarbageOnTheCommitSubjectIsIgnored(t *testing.T) {
	w := newWatched(t, never)
	for _, s := range []string{
		"", "{", "null", `"x"`, `{"lane":"default.1","incarnation":"a","checkpoint":9}`,
		`{"lane":"default.0","checkpoint":9}`, `{"lane":"default.0","incarnation":"a","checkpoint":-1}`, "\xff\xfe",
	} {
		if err := w.nc.Publish(testLane.CommitSubject(), []byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	w.announce(t, w.info.Incarnation, 1)
	if err := w.Wait(t.Context(), w.info.Incarnation, 1); err != nil {
		t.Fatal(err)
	}
	if len(w.book.known) != 1 {
		t.Errorf("known: %v", w.book.known)
	}
}

func TestAnnounceRefusesABadLane(t *testing.T) {
	_, js := connect(t, startServer(t, t.TempDir(), -1))
	if err := Announce(t.Context(), js, Announcement{Lane: "x.*"}); err == nil {
		t.Error("no error")
	}
	if err := Announce(t.Context(), js, Announcement{Lane: "default.0"}); !errors.Is(err, jetstream.ErrNoStreamResponse) {
		t.Errorf("without a commit stream: %v", err)
	}
}

func TestTheCommitStreamHoldsTheLastOfEachLane(t *testing.T) {
	w := newWatched(t, never)
	for range 2 { // idempotent
		if err := EnsureCommitStream(t.Context(), w.js); err != nil {
			t.Fatal(err)
		}
	}
	for cp := range uint64(5) {
		w.announce(t, w.info.Incarnation, cp)
	}
	s, err := w.js.Stream(t.Context(), CommitStream)
	if err != nil {
		t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != 1 {
		t.Errorf("%d messages", n)
	}
	a, err := w.last(t.Context())
	if err != nil || a.Checkpoint != 4 {
		t.Errorf("last: %+v, %v", a, err)
	}
}
