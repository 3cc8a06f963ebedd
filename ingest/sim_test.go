package ingest

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/internal/mutant"
)

var (
	simSeeds = flag.Int("sim.seeds", 2000, "how many simulations to run")
	simSeed  = flag.Uint64("sim.seed", 0, "run the simulation of this seed only")
)

// simulate plays one seed in virtual time.
func simulate(t *testing.T, seed uint64, m mutant.Variant, stats *simStats) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = newWorld(seed, m, stats).run(ctx)
	})
	return err
}

// TestSimulation: acknowledged ⊆ read ⊆ sent, each record at most once, in lane
// order per key, through faults before, in and after every call, crashes, two
// workers at once, zombies, and lanes that go back.
func TestSimulation(t *testing.T) {
	stats := &simStats{}
	if *simSeed != 0 {
		if err := simulate(t, *simSeed, "", stats); err != nil {
			t.Fatalf("seed %d: %v", *simSeed, err)
		}
		return
	}
	parallelSeeds(t, *simSeeds, func(t *testing.T, seed uint64) bool {
		if err := simulate(t, seed, "", stats); err != nil {
			t.Errorf("seed %d: %v\nreplay: go test ./ingest -run TestSimulation -sim.seed=%d", seed, err, seed)
			return false
		}
		return true
	})
	for name, n := range stats.all() {
		t.Logf("%-14s %d", name, n.Load())
		if n.Load() == 0 && *simSeeds >= 500 {
			t.Errorf("no simulation met %s: the suite proves less than it claims", name)
		}
	}
}

// TestMutants: each broken variant of the protocol is noticed.
func TestMutants(t *testing.T) {
	for _, m := range mutant.All {
		t.Run(string(m), func(t *testing.T) {
			var caught atomic.Uint64
			parallelSeeds(t, *simSeeds, func(t *testing.T, seed uint64) bool {
				err := simulate(t, seed, m, &simStats{})
				if err != nil && caught.CompareAndSwap(0, seed) {
					t.Logf("caught by seed %d: %v", seed, err)
				}
				return err == nil
			})
			if caught.Load() == 0 {
				t.Errorf("%d simulations did not notice", *simSeeds)
			}
		})
	}
}

// parallelSeeds runs seeds 1..n, two at a time, until one returns false.
func parallelSeeds(t *testing.T, n int, run func(*testing.T, uint64) bool) {
	const lanes = 2
	var stop atomic.Bool
	t.Run("seeds", func(t *testing.T) {
		for l := range lanes {
			t.Run(fmt.Sprint(l), func(t *testing.T) {
				t.Parallel()
				for seed := 1 + l; seed <= n && !stop.Load(); seed += lanes {
					if !run(t, uint64(seed)) {
						stop.Store(true)
					}
				}
			})
		}
	})
}
