package verify

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
)

func startLane(t *testing.T) (jetstream.JetStream, lane.Info) {
	t.Helper()
	nc, err := nats.Connect(devtest.NATS(t).ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	info, err := lane.Ensure(t.Context(), js, laneA, lane.Settings{MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return js, info
}

// TestJetStream: a lane on a real server is seen as it is.
func TestJetStream(t *testing.T) {
	js, info := startLane(t)
	for i := range 30 {
		subject := laneA.Subject([]string{"flights", "trains", "ships"}[i%3])
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: subject, Data: []byte{byte(i)}, Header: nats.Header{lane.HeaderKey: {"k"}}}); err != nil {
			t.Fatal(err)
		}
	}
	lanes := JetStream(js)
	state, err := lanes.State(t.Context(), laneA)
	if want := (LaneState{info.Incarnation, 1, 30}); err != nil || state != want {
		t.Errorf("state %+v, %v, want %+v", state, err, want)
	}
	if _, err := lanes.State(t.Context(), laneB); !errors.Is(err, lane.ErrNoLane) {
		t.Errorf("a lane that is not there: %v", err)
	}
	if _, err := lanes.TimeOf(t.Context(), laneA, 31); !errors.Is(err, ErrNoMessage) {
		t.Errorf("a message that is not there: %v", err)
	}
	for _, c := range []struct {
		topic string
		to    uint64
		want  []uint64
	}{
		{"trains", 30, []uint64{2, 5, 8, 11, 14, 17, 20, 23, 26, 29}}, {"trains", 8, []uint64{2, 5, 8}}, {"trains", 7, []uint64{2, 5}},
		{"ships", 1, nil}, {"planes", 30, nil},
	} {
		var got []uint64
		for m, err := range lanes.Messages(t.Context(), laneA, c.topic, c.to) {
			if err != nil {
				t.Fatal(err)
			}
			at, err := lanes.TimeOf(t.Context(), laneA, m.Sequence)
			if err != nil || !at.Equal(m.Time) || m.Data[0] != byte(m.Sequence-1) || m.Header[lane.HeaderKey][0] != "k" {
				t.Errorf("message %d: %+v, %s, %v", m.Sequence, m, at, err)
			}
			got = append(got, m.Sequence)
		}
		if len(got) != len(c.want) || len(got) > 0 && (got[0] != c.want[0] || got[len(got)-1] != c.want[len(got)-1]) {
			t.Errorf("%s up to %d: %v, want %v", c.topic, c.to, got, c.want)
		}
	}
}
