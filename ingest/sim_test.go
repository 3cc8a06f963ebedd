package ingest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
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
func simulate(t *testing.T, w func() *world) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err = w().run(ctx)
	})
	return err
}

// TestMain lets garbage pile up: the simulations make much of it and keep little,
// and collecting it was a third of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// suite plays many seeds, and asks that together they met everything counted.
func suite(t *testing.T, seeds int, counted map[string]*atomic.Int64, build func(seed uint64) *world) {
	run := func(t *testing.T, seed uint64) bool {
		if err := simulate(t, func() *world { return build(seed) }); err != nil {
			t.Errorf("seed %d: %v\nreplay: go test ./ingest -run '^%s$' -sim.seed=%d", seed, err, strings.Split(t.Name(), "/")[0], seed)
			return false
		}
		return true
	}
	if *simSeed != 0 {
		run(t, *simSeed)
		for _, name := range slices.Sorted(maps.Keys(counted)) {
			t.Logf("%-16s %d", name, counted[name].Load())
		}
		return
	}
	parallelSeeds(t, seeds, run)
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		n := counted[name].Load()
		t.Logf("%-16s %d", name, n)
		if n == 0 && seeds >= 500 {
			t.Errorf("no simulation met %s: the suite proves less than it claims", name)
		}
	}
}

// TestSimulation: acknowledged ⊆ read ⊆ sent, each record at most once, in lane
// order per key, through faults before, in and after every call, crashes, two
// workers at once, zombies, and lanes that go back.
func TestSimulation(t *testing.T) {
	stats := &simStats{}
	suite(t, *simSeeds, stats.all(), func(seed uint64) *world { return newWorld(seed, "", stats) })
}

// TestSimulationEdits: the same, with two lanes that carry the same topics, and
// two planners that split, merge and roll, race, and die in the middle. Also:
// every layout covers the key space once, floors are right per range, and no
// live segment stays sealed.
func TestSimulationEdits(t *testing.T) {
	stats := &simStats{}
	suite(t, *simSeeds, stats.withEdits(), func(seed uint64) *world { return newWorld(seed, "", stats).withEdits() })
}

// TestSimulationBackfills: the same again, with three sources from objects beside the
// lanes, each worked on by two at once, of objects that break off or change meanwhile:
// each row once and in order, or a record says that its object could not be read. A
// quarter of the seeds, for each is a simulation of edits too.
func TestSimulationBackfills(t *testing.T) {
	stats := &simStats{}
	suite(t, *simSeeds/4, stats.withBackfills(), func(seed uint64) *world { return newWorld(seed, "", stats).withEdits().withBackfills() })
}

// TestMutants: each broken variant of the protocol is noticed.
func TestMutants(t *testing.T) {
	for _, m := range mutant.Plain {
		caught(t, m, func(seed uint64) *world { return newWorld(seed, m, &simStats{}) })
	}
	for _, m := range mutant.Backfills {
		caught(t, m, func(seed uint64) *world { return newWorld(seed, m, &simStats{}).withEdits().withBackfills() })
	}
	for _, m := range mutant.Edits {
		caught(t, m, func(seed uint64) *world { return newWorld(seed, m, &simStats{}).withEdits() })
	}
}

func caught(t *testing.T, m mutant.Variant, build func(seed uint64) *world) {
	t.Run(string(m), func(t *testing.T) {
		var caught atomic.Uint64
		parallelSeeds(t, *simSeeds, func(t *testing.T, seed uint64) bool {
			err := simulate(t, func() *world { return build(seed) })
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
