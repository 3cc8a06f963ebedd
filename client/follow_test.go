package client

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
)

// TestFollowingIsUnhurried: a producer whose topics are bound to no group looks
// now and then whether that has changed. Asking without a pause would cost the
// server as much as publishing does.
func TestFollowingIsUnhurried(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	asked, err := w.nc.SubscribeSync("$JS.API.STREAM.INFO.KV_" + lane.BindingsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	w.producer(Options{})
	var times []time.Time
	for range 4 { // the first two are the producer's start, and its first look
		if _, err := asked.NextMsg(30 * time.Second); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Now())
	}
	if took := times[3].Sub(times[1]); took < 2*followPause-100*time.Millisecond {
		t.Errorf("looked twice more within %s, want one look in %s", took, followPause)
	}
}
