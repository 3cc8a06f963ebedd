package devtest

import (
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack"
)

func TestMain(m *testing.M) { Main(m) }

// TestStack: all tests get the same stack, and it works.
func TestStack(t *testing.T) {
	s := Stack(t)
	if Weed(t) != s {
		t.Error("two stacks")
	}
	if info, err := devstack.Load(s.Info.Dir); err != nil || info != s.Info {
		t.Errorf("Load: %+v, %v", info, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Info.Filer+"/buckets/"+s.Info.Bucket+"/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the bucket: %s", resp.Status)
	}
	publish(t, s.Info.NATS)
}

// TestNATS: each test gets a nats-server of its own, at once.
func TestNATS(t *testing.T) {
	begin := time.Now()
	one, two := NATS(t), NATS(t)
	t.Logf("two nats-servers after %s", time.Since(begin))
	if one.ClientURL() == two.ClientURL() {
		t.Error("one nats-server for two")
	}
	publish(t, one.ClientURL())
	publish(t, two.ClientURL())
}

// TestNATSOn: a nats-server takes the place of one that was stopped, with what
// that one held.
func TestNATSOn(t *testing.T) {
	dir := t.TempDir()
	one := NATSOn(t, dir, server.RANDOM_PORT)
	publish(t, one.ClientURL())
	url := one.ClientURL()
	two := NATSOn(t, dir, StopNATS(one))
	if two.ClientURL() != url {
		t.Errorf("the next one is at %s, not %s", two.ClientURL(), url)
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "S")
	if err != nil || s.CachedInfo().State.Msgs != 1 {
		t.Errorf("what the former one held: %v", err)
	}
}

func publish(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	if ack, err := js.Publish(t.Context(), "s", nil); err != nil || ack.Sequence != 1 {
		t.Errorf("publish: %+v, %v", ack, err)
	}
}
