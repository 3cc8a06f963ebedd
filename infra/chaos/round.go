package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	// wantAbove is how many records must be unacknowledged when a worker is killed.
	wantAbove = 1000
	// What is published around one kill: the publishers go at full speed until
	// they have used it up.
	plainBurst, batchedBurst = 30_000, 200_000
	maxPause                 = 1500 * time.Millisecond
	drainLimit               = 3 * time.Minute
	retries                  = 5
)

// chaos is one run. Its methods are called by one goroutine.
type chaos struct {
	env     *rig.Env
	out     io.Writer
	begin   time.Time
	short   bool
	rng     *rand.Rand
	ledger  *rig.Ledger
	workers *supervisor
	editor  *rig.Editor
	lane    *rig.Lane
	refs    *references

	plain, batched *burst
	kills          int
	excused        int // failures of publishers while the nats-server was down
	read, surplus  int
}

func (c *chaos) say(format string, args ...any) {
	fmt.Fprintf(c.out, "%6.1f s  %s\n", time.Since(c.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (c *chaos) rounds(ctx context.Context, n int) (err error) {
	wait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.lane, err = c.env.WaitLane(wait); err != nil {
		return err
	}
	for i := range n {
		c.say("round %d of %d", i+1, n)
		if err := c.round(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
	}
	return nil
}

// round publishes while things are killed, then checks everything so far.
func (c *chaos) round(ctx context.Context) error {
	p, err := client.NewProducer(c.env.NATS, client.Options{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	enough, end := context.WithCancel(gctx)
	defer end()
	plain, batched := c.ledger.Divide()
	c.plain, c.batched = newBurst(enough, plain), newBurst(enough, batched)
	g.Go(func() error { return rig.PublishPlain(gctx, c.env.NATS, topicName, c.ledger, c.plain.next) })
	g.Go(func() error { return rig.PublishBatched(gctx, p, topicName, c.ledger, c.batched.next) })
	g.Go(func() error { return c.refs.submit(enough) })
	g.Go(func() error {
		defer end()
		return c.killings(gctx)
	})
	if err := errors.Join(g.Wait(), p.Close(ctx)); err != nil {
		return err
	}
	n := c.ledger.Counts()
	if n.Failed > c.excused {
		return fmt.Errorf("%d records were refused though the nats-server was up: %w", n.Failed-c.excused, c.ledger.Failure())
	}
	c.say("sent %d, acknowledged %d, outcome not known or failed %d; draining", n.Sent, n.Acknowledged, n.Failed)
	drain, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := c.lane.WaitDrained(drain); err != nil {
		return err
	}
	return c.check(ctx)
}

// killings kills everything that there is to kill in a round, in random order.
// Each time it lets a worker catch up first, so that every kill meets one at work.
func (c *chaos) killings(ctx context.Context) error {
	list := []func(context.Context) error{c.killWorker, c.killWorker, c.killWeed, c.killNATS}
	if !c.short {
		list = append(list, c.killWorker)
	}
	c.rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	for _, kill := range list {
		if err := kill(ctx); err != nil {
			return err
		}
		c.kills++
		if err := c.caughtUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *chaos) killWorker(ctx context.Context) error {
	for range retries {
		if err := c.awaitMoment(ctx); err != nil {
			return err
		}
		pause := c.pause()
		if err := c.workers.kill(ctx, pause); err != nil {
			return err
		}
		at, err := c.lane.Checkpoint(ctx) // nobody moves it: the next worker waits for the lease
		if err != nil {
			return err
		}
		above := c.ledger.Above(at)
		c.say("killed the worker at checkpoint %d, %d acknowledged records above it; another follows in %v", at, above, pause.Round(time.Millisecond))
		if above >= wantAbove {
			return nil
		}
	}
	return fmt.Errorf("in %d attempts there was no moment to kill the worker with %d records unacknowledged", retries, wantAbove)
}

func (c *chaos) killWeed(ctx context.Context) error {
	return c.killServer(ctx, "weed", c.env.Stack.KillWeed, c.env.Stack.RestartWeed)
}

func (c *chaos) killNATS(ctx context.Context) error {
	before := c.ledger.Counts().Failed
	if err := c.killServer(ctx, "the nats-server", c.env.Stack.KillNATS, c.env.Stack.RestartNATS); err != nil {
		return err
	}
	err := c.caughtUp(ctx) // then publishers have heard of what was under way
	c.excused += c.ledger.Counts().Failed - before
	return err
}

func (c *chaos) killServer(ctx context.Context, name string, kill func() error, restart func(context.Context) error) error {
	if err := c.awaitMoment(ctx); err != nil {
		return err
	}
	if err := kill(); err != nil {
		return err
	}
	pause := c.pause()
	c.say("killed %s; it starts again in %v", name, pause.Round(time.Millisecond))
	if err := rig.Pause(ctx, pause); err != nil {
		return err
	}
	if err := restart(ctx); err != nil {
		return err
	}
	c.say("%s is back", name)
	return nil
}

func (c *chaos) pause() time.Duration { return time.Duration(c.rng.Int64N(int64(maxPause))) }

// awaitMoment lets the publishers go and waits for a random moment in what they
// publish at which enough records are unacknowledged.
func (c *chaos) awaitMoment(ctx context.Context) error {
	c.plain.grant(plainBurst)
	c.batched.grant(batchedBurst)
	if err := c.usedUp(ctx, 0.1+0.8*c.rng.Float64()); err != nil {
		return err
	}
	for {
		at, err := c.lane.Checkpoint(ctx)
		if err != nil {
			return err
		}
		left := c.plain.left() + c.batched.left()
		if c.ledger.Above(at) >= 2*wantAbove || left == 0 {
			return nil
		}
		if err := rig.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// usedUp waits until the publishers have used a part of what they were granted.
func (c *chaos) usedUp(ctx context.Context, part float64) error {
	for float64(c.plain.left()+c.batched.left()) > (1-part)*(plainBurst+batchedBurst) {
		if err := rig.Pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the publishers: %w", err)
		}
	}
	return nil
}

// caughtUp waits until the publishers have used up what they were granted and a
// worker has committed nearly all of it.
func (c *chaos) caughtUp(ctx context.Context) error {
	if err := c.usedUp(ctx, 1); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	for {
		at, err := c.lane.Checkpoint(ctx)
		if err != nil {
			return err
		}
		above := c.ledger.Above(at)
		if above < wantAbove {
			return nil
		}
		if err := rig.Pause(wait, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for a worker to catch up: checkpoint %d, %d records above it: %w", at, above, err)
		}
	}
}

// check verifies the topic and compares what is read back with the ledger.
func (c *chaos) check(ctx context.Context) error {
	out, err := c.env.CLI(ctx, "verify", topicName, "--json")
	if err != nil {
		return errors.Join(err, fmt.Errorf("verify: %.2000s", out))
	}
	var report struct {
		OK      bool `json:"ok"`
		Records int  `json:"records"`
		Chunks  int  `json:"chunks"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return fmt.Errorf("spillway verify printed no report: %w", err)
	}
	c.say("verified: %d records in %d chunks", report.Records, report.Chunks)
	cmp := c.ledger.Compare()
	if err := c.env.ReadBack(ctx, topicName, cmp.Add); err != nil {
		return err
	}
	ok := cmp.Done()
	c.read, c.surplus = cmp.Read, cmp.Surplus
	switch {
	case !ok:
		return fmt.Errorf("%d problems:\n  %s", len(cmp.Problems)+cmp.More, strings.Join(cmp.Problems, "\n  "))
	case !report.OK || report.Records != cmp.Read:
		return fmt.Errorf("verify does not agree with the reader: ok %v, %d records, read %d", report.OK, report.Records, cmp.Read)
	}
	c.say("read back %d records: acknowledged ⊆ read ⊆ sent, each once, in key order; %d without a receipt", cmp.Read, cmp.Surplus)
	return nil
}

// burst feeds a publisher with flights, over and over, as far as it is granted.
type burst struct {
	end     context.Context // ends the feed
	flights []int
	at      int
	granted *semaphore.Weighted
	open    atomic.Int64 // granted and not used
}

func newBurst(end context.Context, flights []int) *burst {
	const most = 1 << 40
	b := &burst{end: end, flights: flights, granted: semaphore.NewWeighted(most)}
	b.granted.TryAcquire(most)
	return b
}

func (b *burst) grant(n int64) {
	b.open.Add(n)
	b.granted.Release(n)
}

func (b *burst) left() int64 { return b.open.Load() }

// next is a rig.Feed for one publisher.
func (b *burst) next(context.Context) (int, bool) {
	if b.granted.Acquire(b.end, 1) != nil {
		return 0, false
	}
	b.open.Add(-1)
	b.at++
	return b.flights[b.at%len(b.flights)], true
}
