package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/planner"
)

// BenchmarkDay is a day of a topic of 64 segments.
func BenchmarkDay(b *testing.B) {
	trace := curve(24*time.Hour, time.Minute, noise(30, 1))
	for b.Loop() {
		r := play(b, trace, planner.DefaultPolicy(), Options{})
		b.ReportMetric(float64(r.Most), "segments")
	}
}

// BenchmarkPlan is one run of the planner: to plan alone, and with the averages of
// all segments, when nothing is to be done and when every segment is to be split.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []int{1, 64, 4096} {
		for name, level := range map[string]float64{"keep": 0.4, "split": 3} {
			p := planner.DefaultPolicy()
			p.Cap, p.RollBytes, p.RollAge = 4096, 0, 0
			if name == "split" {
				p.Burst, p.Sustained = 1000, 1000 // not yet
			}
			s := newRun(steps(level*float64(n), time.Hour), p, Options{Roots: n}.withDefaults())
			for s.now.Before(s.Start.Add(10 * time.Minute)) {
				if err := s.step(); err != nil {
					b.Fatal(err)
				}
			}
			p.Burst, p.Sustained = 1, 0.8
			sit := planner.Situation{Topic: "bench", Layout: s.layout, Roots: n, Now: s.now}
			look := func() {
				sit.Loads = sit.Loads[:0]
				for _, l := range s.live {
					sit.Loads = append(sit.Loads, l.load(s.now, s.FlushAge, p))
				}
			}
			look()
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					planner.Plan(sit, p)
				}
			})
			b.Run(fmt.Sprintf("%s/averages/%d", name, n), func(b *testing.B) {
				for b.Loop() {
					look()
				}
			})
		}
	}
}
