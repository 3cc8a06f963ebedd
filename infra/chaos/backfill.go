package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

const (
	bulkTopic = "chaos-bulk"
	bulkParts = 30 // objects of NDJSON
	livePace  = 500
	bulkLimit = 20 * time.Minute
	// Of the sample, which is small, the files have so many laps, and the jobs may take
	// in so many rows a second: so there is time to be killed.
	sampleLaps, sampleRate = 12, 5000
)

// backfills are two jobs that take the same flights into one topic, from Parquet and
// from NDJSON, while live records arrive, planners and an editor change the segments,
// and everything is killed.
type backfills struct {
	env     *rig.Env
	out     io.Writer
	begin   time.Time
	rng     *rand.Rand
	full    bool
	jobs    []*bulkJob
	ledger  *rig.Ledger
	lane    *rig.Lane
	workers *supervisor
	killer  *plannerKiller
	editor  *rig.Editor
	kills   struct{ worker, weed int }
}

// bulkJob is one of the jobs, and what works on it.
type bulkJob struct {
	backfill.Job
	all     *backfill.Jobs
	objects *rig.BulkObjects
	runs    *supervisor
	kills   int
}

func (b *backfills) say(format string, args ...any) {
	fmt.Fprintf(b.out, "%6.1f s  %s\n", time.Since(b.begin).Seconds(), fmt.Sprintf(format, args...))
}

// passBackfills is the round of the backfills, on a stack of its own: with all flights,
// or with a sample.
func passBackfills(ctx context.Context, out io.Writer, o options) (summary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bulkLimit)
	defer cancel()
	b := &backfills{out: out, begin: time.Now(), rng: rand.New(rand.NewPCG(o.seed, 3)), full: o.backfill}
	flights, err := b.flights()
	if err != nil {
		return "", err
	}
	if o.cfg.Dir != "" {
		o.cfg.Dir = filepath.Join(o.cfg.Dir, "backfill")
	}
	if b.env, err = rig.Open(ctx, o.cfg); err != nil {
		return "", err
	}
	defer func() {
		b.env.Keep = err != nil
		if err != nil {
			fmt.Fprintf(out, "the stack's folder is kept: %s\n", b.env.Dir)
		}
		err = errors.Join(err, b.env.Close())
	}()
	b.say("seed %d, stack in %s", o.seed, b.env.Dir)
	if err := b.prepare(ctx, flights, o.seed); err != nil {
		return "", err
	}
	if err := b.run(ctx); err != nil {
		return "", err
	}
	return b.check(ctx)
}

func (b *backfills) flights() (*rig.Bulk, error) {
	if b.full {
		b.say("backfills of all flights: read the file, to compare with it later")
		return rig.FullBulk()
	}
	b.say("backfills of a sample of the flights, %d times; with -backfill it is all 3,000,000, for which %s is needed", sampleLaps, rig.DataEnv)
	return rig.SampleBulk(sampleLaps)
}

// prepare makes topic, objects and jobs.
func (b *backfills) prepare(ctx context.Context, flights *rig.Bulk, seed uint64) (err error) {
	if _, err := b.env.CLI(ctx, "topic", "create", bulkTopic, "--key", "header"); err != nil {
		return err
	}
	s3 := b.env.Stack.Info.S3
	store, err := object.Open(ctx, object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey})
	if err != nil {
		return err
	}
	defer store.Close()
	bucket := b.env.Stack.Info.Bucket
	parquet, err := flights.PutParquet(ctx, store, bucket, bulkTopic+"/parquet/")
	if err != nil {
		return err
	}
	lines, err := flights.PutNDJSON(ctx, store, bucket, bulkTopic+"/ndjson/", bulkParts)
	if err != nil {
		return err
	}
	for _, objects := range []*rig.BulkObjects{parquet, lines} {
		j, err := b.job(ctx, objects)
		if err != nil {
			return err
		}
		b.jobs = append(b.jobs, j)
	}
	live, err := rig.Flights()
	if err != nil {
		return err
	}
	b.ledger, b.workers = rig.NewLedger(live), newSupervisor(b.env.StartWorker)
	b.editor = &rig.Editor{Env: b.env, Topic: bulkTopic, Every: editEvery, Killed: 0.3, Rand: rand.New(rand.NewPCG(seed, 1))}
	b.killer, err = newPlannerKiller(ctx, b.env, bulkTopic, seed)
	return err
}

// job makes a job of objects, which nobody works on yet.
func (b *backfills) job(ctx context.Context, objects *rig.BulkObjects) (*bulkJob, error) {
	args := []string{"backfill", "run", bulkTopic, objects.URL(), "--key", rig.KeyColumn, "--parallel", "4", "--detach", "--json"}
	if !b.full {
		args = append(args, "--rate-rows", strconv.Itoa(sampleRate))
	}
	out, err := b.env.CLI(ctx, args...)
	if err != nil {
		return nil, err
	}
	var made struct {
		Job     string `json:"job"`
		Objects int    `json:"objects"`
	}
	if err := json.Unmarshal(out, &made); err != nil {
		return nil, fmt.Errorf("spillway backfill run printed %.200q: %w", out, err)
	}
	t, err := b.env.Store.Topic(ctx, bulkTopic)
	if err != nil {
		return nil, err
	}
	j := &bulkJob{all: backfill.Of(b.env.Store, t), objects: objects}
	if j.Job, err = j.all.Load(ctx, made.Job); err != nil {
		return nil, err
	}
	j.runs = newSupervisor(func() (*rig.Process, error) { return b.env.StartBackfill(bulkTopic, j.ID) })
	j.runs.over = j.done
	b.say("job %s: %d objects of %s, %d sources, %d rows", j.ID, made.Objects, objects.URL(), len(j.Sources), objects.Rows())
	return j, nil
}

// done tells whether the job is known to be done.
func (j *bulkJob) done(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s, err := j.all.State(ctx, j.ID)
	return err == nil && s.Phase == backfill.Done
}

// run has everything at work and killed, then everything at work until the jobs are
// done, and the lane is drained.
func (b *backfills) run(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	all, allEnd := context.WithCancel(gctx)
	defer allEnd()
	g.Go(func() error { return b.workers.run(all) })
	for _, planner := range b.killer.planners {
		g.Go(func() error { return planner.run(all) })
	}
	g.Go(func() error {
		defer allEnd()
		return b.besideLive(gctx)
	})
	return g.Wait()
}

// besideLive publishes live records from before the backfills begin until they are done.
func (b *backfills) besideLive(ctx context.Context) (err error) {
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if b.lane, err = b.env.WaitLane(wait); err != nil {
		return err
	}
	p, err := client.NewProducer(b.env.NATS, client.Options{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	live, end := context.WithCancel(gctx)
	plain, batched := b.ledger.Divide()
	g.Go(func() error { return rig.PublishPlain(gctx, b.env.NATS, bulkTopic, b.ledger, paced(live, plain)) })
	g.Go(func() error { return rig.PublishBatched(gctx, p, bulkTopic, b.ledger, paced(live, batched)) })
	for _, j := range b.jobs {
		g.Go(func() error { return j.runs.run(gctx) })
	}
	g.Go(func() error {
		defer end()
		if err := b.disturbed(gctx); err != nil {
			return err
		}
		return b.calm(gctx)
	})
	if err := errors.Join(g.Wait(), p.Close(ctx)); err != nil {
		return err
	}
	n := b.ledger.Counts()
	if n.Acknowledged < n.Sent {
		return fmt.Errorf("%d of %d live records have no receipt, though the nats-server was up: %w", n.Sent-n.Acknowledged, n.Sent, b.ledger.Failure())
	}
	drain, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	return b.lane.WaitDrained(drain)
}

// paced feeds flights over and over until ctx ends. For one publisher.
func paced(ctx context.Context, list []int) rig.Feed {
	pace, n := rate.NewLimiter(livePace, 100), 0
	return func(context.Context) (int, bool) {
		if pace.Wait(ctx) != nil {
			return 0, false
		}
		n++
		return list[(n-1)%len(list)], true
	}
}

// calm waits until both jobs are done, with nothing killed any more.
func (b *backfills) calm(ctx context.Context) error {
	b.say("nothing is killed any more")
	for {
		left := 0
		for _, j := range b.jobs {
			if !j.done(ctx) {
				left++
			}
		}
		if left == 0 {
			b.say("both jobs are done; draining the lane")
			return nil
		}
		if err := rig.Pause(ctx, 10*moveEvery); err != nil {
			return fmt.Errorf("%d jobs are not done: %w", left, err)
		}
	}
}
