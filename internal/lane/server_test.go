package lane

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// startServer runs a nats-server on dir until the test ends.
func startServer(t *testing.T, dir string, port int) *server.Server {
	t.Helper()
	return devtest.NATSOn(t, dir, port)
}

func connect(t *testing.T, s *server.Server) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := nats.Connect(s.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
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

var testLane = ID{Default, 0}

// small keeps test servers from setting much storage aside.
var small = Settings{MaxBytes: 8 << 20}

// again deletes the test lane and makes it anew.
func again(t *testing.T, js jetstream.JetStream) Info {
	t.Helper()
	if err := js.DeleteStream(t.Context(), testLane.Stream()); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; { // the server may still be at work on the old files
		info, err := Ensure(t.Context(), js, testLane, small)
		if err == nil {
			return info
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}
