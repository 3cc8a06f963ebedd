package doctor

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
)

var errOff = jetstream.ErrJetStreamNotEnabled

func connect(t *testing.T, url string) *JetStream {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &JetStream{Conn: nc, JS: js}
}

// TestJetStream asks a real nats-server.
func TestJetStream(t *testing.T) {
	srv := devtest.NATS(t)
	j := connect(t, srv.ClientURL())
	if err := j.JetStream(t.Context()); err != nil {
		t.Error(err)
	}
	if j.Version() == "" {
		t.Error("no version")
	}
	if lanes, err := j.Lanes(t.Context()); err != nil || len(lanes) > 0 {
		t.Errorf("lanes %+v, error %v", lanes, err)
	}
	if _, err := j.Clock(t.Context()); !errors.Is(err, ErrNoClock) {
		t.Errorf("clock: error %v", err)
	}
	if got := j.Sync(t.Context()); got != (Sync{}) {
		t.Errorf("an ordinary account sees %+v", got)
	}
	if _, err := lane.Ensure(t.Context(), j.JS, defaults, lane.Settings{MaxBytes: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	_, err := j.JS.CreateStream(t.Context(), jetstream.StreamConfig{Name: lane.ID{Group: "bad"}.Stream(), Subjects: []string{"x"}, MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ack, err := j.JS.Publish(t.Context(), defaults.Subject("t"), []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	lanes, err := j.Lanes(t.Context())
	var unfit *lane.MismatchError
	if err != nil || len(lanes) != 2 || !errors.As(lanes[0].Err, &unfit) || lanes[1].Err != nil ||
		lanes[1].Last != 1 || lanes[1].Replicas != 1 || lanes[1].ID != defaults {
		t.Errorf("lanes %+v, error %v", lanes, err)
	}
	if err := lane.EnsureCommitStream(t.Context(), j.JS); err != nil {
		t.Fatal(err)
	}
	if others, err := j.Others(t.Context()); err != nil || len(others) != 1 || others[0] != (Stream{lane.CommitStream, 1}) {
		t.Errorf("others %+v, error %v", others, err)
	}
	if _, err := lane.Close(t.Context(), j.JS, defaults); err != nil {
		t.Fatal(err)
	}
	if lanes, err := j.Lanes(t.Context()); err != nil || !lanes[1].Closed || lanes[0].Closed {
		t.Errorf("after the lane was closed: %+v, error %v", lanes, err)
	}
	at, err := j.TimeOf(t.Context(), defaults, ack.Sequence)
	if err != nil || time.Since(at) > time.Minute {
		t.Errorf("the message is of %s, error %v", at, err)
	}
	if _, err := j.TimeOf(t.Context(), defaults, 7); !errors.Is(err, ErrNoMessage) {
		t.Errorf("no message: error %v", err)
	}
	before := time.Now()
	if at, err := j.Clock(t.Context()); err != nil || at.Before(before.Add(-time.Millisecond)) || at.After(time.Now()) {
		t.Errorf("the clock shows %s, error %v; it is between %s and %s", at, err, before, time.Now())
	}
	srv.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := j.JetStream(ctx); err == nil {
		t.Error("JetStream of a server that is gone")
	}
}

// TestMonitor reads the sync interval off a monitoring port.
func TestMonitor(t *testing.T) {
	for body, want := range map[string]Sync{
		`{"config":{"max_memory":1,"sync_interval":120000000000}}`:                {Known: true, Interval: 2 * time.Minute},
		`{"config":{"sync_interval":120000000000,"sync_always":true}}`:            {Known: true, Always: true, Interval: 2 * time.Minute},
		`{"server":{"name":"x"},"data":{"config":{"sync_interval":10000000000}}}`: {Known: true, Interval: 10 * time.Second},
		`{"disabled":true,"config":{"max_memory":0}}`:                             {},
		`{"config":{"sync_interval":"2m"}}`:                                       {},
		`<html>`:                                                                  {}, ``: {}, `[]`: {}, `{"config":null}`: {}, `{"config":{"sync_interval":-1}}`: {},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.String() != "/jsz?config=true" {
				t.Errorf("asked for %s", r.URL)
			}
			_, _ = w.Write([]byte(body))
		}))
		j := &JetStream{Monitor: srv.URL + "/"}
		if got := j.Sync(t.Context()); got != want {
			t.Errorf("%s: got %+v, want %+v", body, got, want)
		}
		srv.Close()
		if got := j.Sync(t.Context()); got != (Sync{}) {
			t.Errorf("a port that is closed: got %+v", got)
		}
	}
}
