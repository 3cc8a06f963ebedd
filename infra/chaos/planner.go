package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/segment"
)

const (
	// By this policy, there is always something to split while records come, and
	// to merge when they do not.
	policy = `target_records: 20000
short: 1s
long: 1s
cool_down: 1s
max_ways: 2
cap: 12
`
	period   = "300ms"
	planners = 2
	// How long it takes, at least and at most, until the end of one is due.
	shortLife, longLife = 500 * time.Millisecond, 4 * time.Second
	// editWait is how long the killer then waits for an edit to be under way.
	editWait = 3 * time.Second
)

// plannerKiller kills planners again and again: half of the times one of them,
// whatever it is doing, else all at once when an edit is under way.
type plannerKiller struct {
	topic    *segment.Topic
	planners []*supervisor
	rng      *rand.Rand

	kills, halfDone int // of planners; of edits that others had to finish. Read after run
}

func newPlannerKiller(ctx context.Context, env *rig.Env, topicName string, seed uint64) (*plannerKiller, error) {
	t, err := env.Store.Topic(ctx, topicName)
	if err != nil {
		return nil, err
	}
	file, err := env.Policy("policy", policy)
	if err != nil {
		return nil, err
	}
	k := &plannerKiller{topic: t, rng: rand.New(rand.NewPCG(seed, 2))}
	for range planners {
		k.planners = append(k.planners, newSupervisor(func() (*rig.Process, error) {
			return env.StartPlanner("--policy", file, "--period", period)
		}))
	}
	return k, nil
}

// run kills until the context ends.
func (k *plannerKiller) run(ctx context.Context) error {
	for rig.Pause(ctx, shortLife+time.Duration(k.rng.Int64N(int64(longLife-shortLife)))) == nil {
		doomed, edit := k.planners, uint64(0)
		if one := k.rng.IntN(2 * planners); one < planners {
			doomed = doomed[one : one+1]
		} else {
			edit = k.awaitEdit(ctx)
		}
		k.kill(ctx, doomed)
		if edit != 0 && edit == k.pending(ctx) {
			k.halfDone++
		}
	}
	return nil
}

// kill kills planners, those of them that are running.
func (k *plannerKiller) kill(ctx context.Context, doomed []*supervisor) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	var killed atomic.Int64
	var g errgroup.Group
	for _, p := range doomed {
		pause := time.Duration(k.rng.Int64N(int64(maxPause)))
		g.Go(func() error {
			if p.kill(ctx, pause) == nil {
				killed.Add(1)
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
	k.kills += int(killed.Load())
}

// awaitEdit waits for an edit to be under way, and gives its epoch; 0: none came.
func (k *plannerKiller) awaitEdit(ctx context.Context) (epoch uint64) {
	for begin := time.Now(); epoch == 0 && time.Since(begin) < editWait; epoch = k.pending(ctx) {
		if rig.Pause(ctx, 2*time.Millisecond) != nil {
			return 0
		}
	}
	return epoch
}

// pending is the epoch of a planner's edit that is under way, 0 if there is none,
// or if the filer cannot be asked.
func (k *plannerKiller) pending(ctx context.Context) uint64 {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	l, err := k.topic.Layout(ctx)
	if _, planned := rig.Planned(l.Edit); err != nil || !l.Pending || !planned {
		return 0
	}
	return l.Epoch
}
