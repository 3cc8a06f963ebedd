package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
)

func TestRefusals(t *testing.T) {
	t.Run("another stream has the subject", func(t *testing.T) {
		w := newWorld(t, lane.Settings{})
		p := w.producer(Options{})
		if err := w.js.DeleteStream(t.Context(), w.lane.Stream); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); ; { // the server may still be at work on the old files
			_, err := w.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "thief", Subjects: []string{"spillway.>"}})
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		_, err := p.PublishSync(t.Context(), "t", Record{})
		if refused, ok := errors.AsType[*RejectedError](err); !ok || refused.Topic != "t" || !NotStored(err) {
			t.Errorf("error: %v", err)
		}
	})
	t.Run("no permission", func(t *testing.T) {
		w := newWorld(t, lane.Settings{})
		w.stop()
		w.opts.Users = []*server.User{{Username: "u", Password: "p", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"spillway.in.secret"}},
		}}}
		w.start()
		p := w.producerOn(w.connect(strings.Replace(w.srv.ClientURL(), "nats://", "nats://u:p@", 1)), Options{})
		_, err := p.PublishSync(t.Context(), "secret", Record{})
		if !isType[*RejectedError](err) || !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
			t.Errorf("error: %v", err)
		}
		if _, err := p.PublishSync(t.Context(), "open", Record{}); err != nil {
			t.Errorf("another topic: %v", err)
		}
	})
	t.Run("the server takes less", func(t *testing.T) {
		w := newWorld(t, lane.Settings{})
		w.stop()
		w.opts.MaxPayload = 32 << 10
		w.start()
		p := w.producerOn(w.connect(w.srv.ClientURL()), Options{})
		if _, err := p.Publish(t.Context(), "t", Record{Value: make([]byte, 40<<10)}); !isType[*RecordTooLargeError](err) {
			t.Errorf("error: %v", err)
		}
		for range 100 {
			if _, err := p.Publish(t.Context(), "t", Record{Value: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Run("the lane takes less", func(t *testing.T) {
		w := newWorld(t, lane.Settings{})
		p := w.producer(Options{Compression: Null})
		s, err := w.js.Stream(t.Context(), w.lane.Stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxMsgSize = 10 << 10
		if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := p.PublishSync(t.Context(), "t", Record{Value: make([]byte, 20<<10)}); !isType[*RejectedError](err) || !NotStored(err) {
			t.Errorf("error: %v", err)
		}
		if _, err := p.PublishSync(t.Context(), "t", Record{}); err != nil {
			t.Errorf("a smaller record: %v", err)
		}
		dedupe(t, w.read(defaultLane))
	})
}

func TestAConnectionThatIsClosed(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	nc := w.connect(w.srv.ClientURL())
	p := w.producerOn(nc, Options{})
	nc.Close()
	start := time.Now()
	if _, err := p.PublishSync(t.Context(), "t", Record{}); !isType[*UnavailableError](err) || time.Since(start) > DefaultRetryBudget/2 {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

func TestAConnectionThatIsClosedOnTheWay(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	px := w.proxy(nil)
	nc := w.connect(px.url())
	p := w.producerOn(nc, Options{AckTimeout: 30 * time.Second})
	px.muted.Store(true)
	pending, err := p.Publish(t.Context(), "t", Record{})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitMessages(1)
	nc.Close()
	start := time.Now()
	if _, err := pending.Wait(t.Context()); !isType[*UnknownOutcomeError](err) || time.Since(start) > 15*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}

// awaitMessages waits until the lane has n, whatever the producer knows of it.
func (w *world) awaitMessages(n uint64) {
	w.t.Helper()
	for {
		s, err := w.js.Stream(context.Background(), w.lane.Stream)
		if err != nil {
			w.t.Fatal(err)
		}
		if s.CachedInfo().State.Msgs >= n {
			return
		}
	}
}

func TestCloseFailsWhatIsNotOut(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	px := w.proxy(nil)
	p := w.producerOn(w.connect(px.url()), Options{Linger: -1})
	px.muted.Store(true)
	first, err := p.Publish(t.Context(), "a", Record{})
	if err != nil {
		t.Fatal(err)
	}
	w.awaitMessages(1)
	second, err := p.Publish(t.Context(), "b", Record{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(canceled()); !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
	if _, err := first.Wait(t.Context()); !isType[*UnknownOutcomeError](err) || !errors.Is(err, ErrClosed) || NotStored(err) {
		t.Errorf("on its way: %v", err)
	}
	if _, err := second.Wait(t.Context()); !isType[*UnavailableError](err) || !errors.Is(err, ErrClosed) || !NotStored(err) {
		t.Errorf("not on its way: %v", err)
	}
	noGoroutines(t)
}
