package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	// How often each is killed: at most, and the jobs at least for the round to be a
	// test; weed of the sample's round once, since to start again takes it a while.
	sampleKills, fullKills, leastKills = 2, 6, 2
	// killWait is how long a process to kill is waited for.
	killWait = 2 * time.Second
	// weedUp and workerUp are how long they are left alone after a kill, at least; as
	// long again at most. A worker waits for the lease of one that was killed, 10 s.
	weedUp, workerUp = 3 * time.Second, 6 * time.Second
	moveEvery        = 50 * time.Millisecond
	moveLimit        = 3 * time.Minute
)

// disturbed has the jobs worked on while everything is killed, until each was killed
// often enough or the jobs are done.
func (b *backfills) disturbed(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	stop, stopped := context.WithCancel(gctx)
	defer stopped()
	g.Go(func() error { return b.editor.Run(stop) })
	g.Go(func() error { return b.killer.run(stop) })
	g.Go(func() error { return b.killWorkers(stop, b.moments()) })
	g.Go(func() error { return b.killWeeds(stop, b.moments()) })
	var jobs errgroup.Group // their kills
	for _, j := range b.jobs {
		pause := time.Duration(b.rng.Int64N(int64(maxPause)))
		jobs.Go(func() error { return b.killRuns(gctx, j, pause) })
	}
	g.Go(func() error {
		defer stopped()
		return jobs.Wait()
	})
	if err := g.Wait(); err != nil {
		return err
	}
	for _, j := range b.jobs {
		if j.kills < leastKills {
			return fmt.Errorf("the run of job %s was killed %d times, and the job was done: that is no test", j.ID, j.kills)
		}
	}
	if b.kills.weed == 0 || b.kills.worker == 0 {
		return fmt.Errorf("weed was killed %d times, workers %d times: that is no test", b.kills.weed, b.kills.worker)
	}
	return nil
}

func (b *backfills) most() int {
	if b.full {
		return fullKills
	}
	return sampleKills
}

// killRuns kills the runs of a job, each some time after it has committed something, so
// that the job gets on.
func (b *backfills) killRuns(ctx context.Context, j *bulkJob, pause time.Duration) error {
	var rows uint64
	for j.kills < b.most() {
		if _, done, err := j.moved(ctx, rows); err != nil || done {
			return err
		}
		if err := rig.Pause(ctx, pause); err != nil {
			return err
		}
		pause = (pause + maxPause/3) % maxPause
		if !killed(ctx, j.runs, pause) {
			continue // it is between two runs, or at its end
		}
		j.kills++
		at, _, err := j.moved(ctx, 0)
		if err != nil {
			return err
		}
		rows = at
		b.say("killed the run of job %s at row %d of %d", j.ID, at, j.objects.Rows())
	}
	return nil
}

// moved waits until the job has taken in more rows than these, and gives how many it
// has; or until it is done.
func (j *bulkJob) moved(ctx context.Context, than uint64) (rows uint64, done bool, err error) {
	wait, cancel := context.WithTimeout(ctx, moveLimit)
	defer cancel()
	for {
		look, cancel := context.WithTimeout(wait, killWait)
		p, failed := j.all.Progress(look, j.Job) // it fails while the filer is down
		cancel()
		if failed == nil && (p.Done() || p.Rows > than) {
			return p.Rows, p.Done(), nil
		}
		if err := rig.Pause(wait, moveEvery); err != nil {
			return 0, false, fmt.Errorf("wait for job %s to take in more than %d rows: %w", j.ID, than, err)
		}
	}
}

// killed kills a process if there is one.
func killed(ctx context.Context, s *supervisor, pause time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, killWait)
	defer cancel()
	return s.kill(ctx, pause) == nil
}

// moments gives durations from one that is given to twice as long, at random.
func (b *backfills) moments() func(time.Duration) time.Duration {
	rng := rand.New(rand.NewPCG(b.rng.Uint64(), 0))
	return func(least time.Duration) time.Duration { return least + time.Duration(rng.Int64N(int64(least))) }
}

func (b *backfills) killWorkers(ctx context.Context, about func(time.Duration) time.Duration) error {
	for b.kills.worker < b.most() && rig.Pause(ctx, about(workerUp)) == nil {
		if killed(ctx, b.workers, about(maxPause/2)) {
			b.kills.worker++
			b.say("killed the worker")
		}
	}
	return nil
}

func (b *backfills) killWeeds(ctx context.Context, about func(time.Duration) time.Duration) error {
	for b.kills.weed < b.most()-sampleKills+1 && rig.Pause(ctx, about(weedUp)) == nil {
		if err := b.env.Stack.KillWeed(); err != nil {
			return err
		}
		b.kills.weed++
		b.say("killed weed")
		_ = rig.Pause(ctx, about(maxPause/2)) // told to end: it is needed all the same
		if err := b.env.Stack.RestartWeed(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}
