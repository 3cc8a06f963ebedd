package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	perSecond = 4000 // records that each of the two ways in publishes
	laps      = 8    // how often they publish all flights
	wantAbove = 1000 // records that must be uncommitted when the worker is killed
)

// publishAndKill publishes the flights, and kills a planner and the worker
// meanwhile.
func (d *demo) publishAndKill(ctx context.Context) error {
	flights, err := rig.Flights()
	if err != nil {
		return err
	}
	d.ledger = rig.NewLedger(flights)
	plain, batched := d.ledger.Divide()
	d.step("publish real flights, %d records/s for about %d s, with the airport of origin as key: one half with plain NATS, one "+
		"message each, the other with the client, in batches", 2*perSecond, laps*len(flights)/(2*perSecond))
	p, err := client.NewProducer(d.env.NATS, client.Options{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	published := make(chan struct{})
	g.Go(func() error {
		defer close(published)
		var g errgroup.Group
		g.Go(func() error { return rig.PublishPlain(gctx, d.env.NATS, topicName, d.ledger, paced(plain)) })
		g.Go(func() error { return rig.PublishBatched(gctx, p, topicName, d.ledger, paced(batched)) })
		return g.Wait()
	})
	g.Go(func() error { return d.whilePublishing(gctx, published) })
	if err := errors.Join(g.Wait(), p.Close(ctx)); err != nil {
		return err
	}
	c := d.ledger.Counts()
	d.step("publishing is over, and nothing held it up: receipts for %d of %d records", c.Acknowledged, c.Sent)
	if c.Acknowledged < c.Sent {
		return fmt.Errorf("%d records have no receipt, though no server was killed: %w", c.Sent-c.Acknowledged, d.ledger.Failure())
	}
	return nil
}

// paced feeds the flights in their order, all of them several times.
func paced(list []int) rig.Feed {
	var mu sync.Mutex
	pace, next := rate.NewLimiter(perSecond, 100), 0
	return func(ctx context.Context) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == laps*len(list) || pace.Wait(ctx) != nil {
			return 0, false
		}
		next++
		return list[(next-1)%len(list)], true
	}
}

// whilePublishing waits for the planner's first split, lets a planner and a worker
// die, and tells of what happens until everything is published.
func (d *demo) whilePublishing(ctx context.Context, published <-chan struct{}) error {
	if err := d.until(ctx, "the planner splits", func() (bool, error) { return d.splits > 0, nil }); err != nil {
		return err
	}
	if err := d.explain(ctx); err != nil {
		return err
	}
	if d.planner.Kill() {
		return d.planner.Err()
	}
	if err := d.startPlanner(); err != nil {
		return err
	}
	d.step("kill -9 the planner; process %d goes on. It knows as much, since all that a planner goes by is in the files", d.planner.PID())
	for _, step := range []func(context.Context) error{d.startBackfill, d.killWorker, d.takeOver, d.killBackfill, d.resumeBackfill} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.until(ctx, "all is published", func() (bool, error) {
		select {
		case <-published:
			return true, nil
		default:
			return false, nil
		}
	})
}

// explain shows what the planner thinks, once the segments it made have load.
func (d *demo) explain(ctx context.Context) error {
	from, err := d.lane.Checkpoint(ctx)
	if err != nil {
		return err
	}
	flushes := 0
	err = d.until(ctx, "the worker commits", func() (bool, error) {
		at, err := d.lane.Checkpoint(ctx)
		if at > from {
			from = at
			flushes++
		}
		return flushes > 1, err
	})
	if err != nil {
		return err
	}
	d.step("ask why each segment is as it is (spillway plan %s --explain); a level is load as a multiple of the target", topicName)
	out, err := d.env.CLI(ctx, "plan", topicName, "--explain", "--policy", d.policy)
	d.sayAll(out)
	return err
}

// killWorker ends the worker with SIGKILL when it has enough yet to commit.
func (d *demo) killWorker(ctx context.Context) error {
	err := d.until(ctx, "there is enough to lose", func() (bool, error) {
		at, err := d.lane.Checkpoint(ctx)
		return d.ledger.Above(at) > 2*wantAbove, err
	})
	if err != nil {
		return err
	}
	acknowledged := d.ledger.Counts().Acknowledged
	if d.worker.Kill() {
		return d.worker.Err()
	}
	at, err := d.lane.Checkpoint(ctx) // final, now that the worker is gone
	if err != nil {
		return err
	}
	d.above = d.ledger.Above(at)
	d.step("kill -9 the worker after %d receipts: of what the lane has, %d records are not committed to files yet", acknowledged, d.above)
	if d.above < wantAbove {
		return fmt.Errorf("want at least %d records above the checkpoint at the kill", wantAbove)
	}
	return nil
}

// takeOver starts another worker and waits until it commits.
func (d *demo) takeOver(ctx context.Context) (err error) {
	from, err := d.lane.Checkpoint(ctx)
	if err != nil {
		return err
	}
	if d.worker, err = d.env.StartWorker(); err != nil {
		return err
	}
	d.step("start another worker, process %d; it takes over once the dead one's lease has run out", d.worker.PID())
	start := time.Now()
	err = d.until(ctx, "the second worker commits", func() (bool, error) {
		at, err := d.lane.Checkpoint(ctx)
		return at > from, err
	})
	if err != nil {
		return err
	}
	d.step("the other worker has taken over, after %.1f s, and catches up", time.Since(start).Seconds())
	return nil
}

// drain waits until everything that was published is in files.
func (d *demo) drain(ctx context.Context) error {
	last, err := d.lane.Last(ctx)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	err = d.until(wait, "everything is committed", func() (bool, error) {
		at, err := d.lane.Checkpoint(ctx)
		return at >= last, err
	})
	if err != nil {
		return err
	}
	d.say("Everything is in files: the checkpoint is lane message %d, the last one.", last)
	return nil
}
