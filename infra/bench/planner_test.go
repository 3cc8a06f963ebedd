package main

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

// TestState: a hot slot of its own is told apart, and a new segment makes it
// unknown.
func TestState(t *testing.T) {
	f := &flooded{policy: planner.DefaultPolicy()}
	load := func(level float64, observed time.Duration) planner.Load {
		return planner.Load{Short: planner.Rate{Records: level * f.policy.TargetRecords}, Observed: observed}
	}
	live := func(lo, hi uint32) topic.Live { return topic.Live{Range: topic.Range{Lo: lo, Hi: hi}} }
	s := planner.Situation{
		Layout: topic.Layout{Live: []topic.Live{live(0, 100), live(100, 101), live(101, topic.Slots)}},
		Loads:  []planner.Load{load(0.5, time.Hour), load(3, time.Hour), load(0.25, time.Hour)},
	}
	got, known := f.state(s)
	if want := (state{live: 3, widest: 0.5, spread: 0.5 / 0.375, hottest: 3}); !known || got != want {
		t.Errorf("%+v, known %v; want %+v", got, known, want)
	}
	s.Loads[2].Observed = time.Second
	if _, known := f.state(s); known {
		t.Error("known, though a segment is there for a second only")
	}
}
