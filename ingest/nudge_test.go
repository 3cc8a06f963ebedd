package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// nudgerFunc is a Nudger of a test.
type nudgerFunc func(ctx context.Context, topic string) error

func (f nudgerFunc) Nudge(ctx context.Context, topic string) error { return f(ctx, topic) }

// pour is what comes in for a topic: so many records of so many bytes, so often.
type pour struct {
	topic   string
	records int
	bytes   int
	every   time.Duration
	times   int
}

// nudging runs a worker in virtual time on what pours in, one after the other, with
// a nudger, and returns how many nudges the metric has counted.
func nudging(t *testing.T, o ingest.Options, pours ...pour) (counted int) {
	t.Helper()
	fs, l := memfs.New(), newQuietLane()
	hook := func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: time.Millisecond} }
	store := segment.NewStore(fs.Client("worker", hook), "test")
	if err := store.CreateCheckpoint(t.Context(), laneID.Source("i")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"orders", "clicks"} {
		def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(100 * time.Millisecond), Lanes: laneID.Group}
		if _, err := store.CreateTopic(t.Context(), def, 1, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	reg := prometheus.NewRegistry()
	o.Lane, o.ID, o.Store, o.Metrics = l, laneID, store, ingest.NewMetrics(reg, laneID.String())
	stop, end := context.WithCancel(t.Context())
	w := ingest.NewWorker(o)
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context(), stop) }()
	sent := uint64(0)
	for _, p := range pours {
		for range p.times {
			for range p.records {
				l.publish(p.topic, bytes.Repeat([]byte("x"), p.bytes))
			}
			sent += uint64(p.records)
			<-time.After(p.every)
		}
	}
	end()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := w.Counts().Committed; n != sent {
		t.Errorf("%d records are committed, %d were sent", n, sent)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_ingest_nudges_total" {
			counted = int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return counted
}

// TestNudges: a planner is called for when a segment takes in more than its target,
// within a second of the onset, and once a second and topic at most.
func TestNudges(t *testing.T) {
	const target = 10_000 // bytes a second; and 100 records
	tenth := 100 * time.Millisecond
	for _, c := range []struct {
		name     string
		pours    []pour
		min, max map[string]int
	}{
		{"below the target", []pour{{"orders", 1, 800, tenth, 100}}, nil, nil},
		{"twice the target", []pour{{"orders", 2, 950, tenth, 100}}, map[string]int{"orders": 8}, map[string]int{"orders": 10}},
		{"ten times the target", []pour{{"orders", 10, 950, tenth, 100}}, map[string]int{"orders": 8}, map[string]int{"orders": 10}},
		{"many small records", []pour{{"orders", 20, 10, tenth, 50}}, map[string]int{"orders": 4}, map[string]int{"orders": 5}},
		{"a burst after silence", []pour{
			{"orders", 1, 10, 10 * time.Second, 2}, {"orders", 1, 30_000, 10 * time.Second, 1}, {"orders", 1, 10, time.Second, 1},
		}, nil, nil},
		{"a second of a flood", []pour{
			{"orders", 1, 10, 10 * time.Second, 2}, {"orders", 5, 1000, tenth, 10}, {"orders", 1, 10, time.Second, 5},
		}, map[string]int{"orders": 1}, map[string]int{"orders": 2}},
		{"only the busy topic", []pour{
			{"clicks", 1, 10, tenth, 10}, {"orders", 5, 1000, tenth, 30}, {"clicks", 1, 10, tenth, 10},
		}, map[string]int{"orders": 2}, map[string]int{"orders": 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, last := map[string]int{}, map[string]time.Time{}
				nudger := nudgerFunc(func(_ context.Context, topic string) error {
					if since := time.Since(last[topic]); since < time.Second {
						t.Errorf("topic %s was nudged again after %s", topic, since)
					}
					got[topic]++
					last[topic] = time.Now()
					return nil
				})
				counted := nudging(t, ingest.Options{Nudger: nudger, NudgeBytes: target, NudgeRecords: 100}, c.pours...)
				for _, name := range []string{"orders", "clicks"} {
					if got[name] < c.min[name] || got[name] > c.max[name] {
						t.Errorf("%d nudges for %s, want %d to %d", got[name], name, c.min[name], c.max[name])
					}
				}
				if want := got["orders"] + got["clicks"]; counted != want {
					t.Errorf("the metric counts %d nudges of %d", counted, want)
				}
			})
		})
	}
}

// TestNudgesInVain: a nudger that fails, or never answers, neither stops nor slows
// down what it is told of, and does not keep the worker from ending.
func TestNudgesInVain(t *testing.T) {
	flood := pour{"orders", 50, 1000, 100 * time.Millisecond, 100}
	for name, nudger := range map[string]nudgerFunc{
		"fails":   func(context.Context, string) error { return errors.New("no responders") },
		"is mute": func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries, start := 0, time.Now()
				counted := nudging(t, ingest.Options{
					Nudger:     nudgerFunc(func(ctx context.Context, topic string) error { tries++; return nudger(ctx, topic) }),
					NudgeBytes: 10_000,
				}, flood)
				if counted != 0 || tries < 4 || tries > 11 {
					t.Errorf("%d tries, %d counted", tries, counted)
				}
				if took := time.Since(start); took > 12*time.Second {
					t.Errorf("it took %s, 10 s of which it poured", took)
				}
			})
		})
	}
}
