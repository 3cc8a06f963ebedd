package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
)

// perSecond is how fast each way in publishes: slow enough that the worker is
// killed in the middle of it.
const perSecond = 4000

// demo is one run.
type demo struct {
	out   io.Writer
	begin time.Time
	steps int

	env    *rig.Env
	lane   *rig.Lane
	worker *rig.Worker
	ledger *rig.Ledger
	above  int // records unacknowledged when the worker was killed
	read   int
}

func (d *demo) step(format string, args ...any) {
	d.steps++
	fmt.Fprintf(d.out, "\n%5.1f s  %d. %s\n", time.Since(d.begin).Seconds(), d.steps, fmt.Sprintf(format, args...))
}

func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "            %s\n", fmt.Sprintf(format, args...))
}

func (d *demo) createTopic(ctx context.Context) error {
	d.step("create topic %s, keyed by what each record is published with, and start an ingest worker", topicName)
	if _, err := d.env.CLI(ctx, "topic", "create", topicName, "--key", "header"); err != nil {
		return err
	}
	var err error
	if d.worker, err = d.env.StartWorker(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if d.lane, err = d.env.WaitLane(wait); err != nil {
		return err
	}
	d.say("process %d, log %s", d.worker.PID(), d.worker.Log)
	return nil
}

// publishAndKill publishes all flights, and kills the worker meanwhile.
func (d *demo) publishAndKill(ctx context.Context) error {
	flights, err := rig.Flights()
	if err != nil {
		return err
	}
	d.ledger = rig.NewLedger(flights)
	plain, batched := d.ledger.Divide()
	d.step("publish %d flights, with the airport of origin as key: %d with plain NATS, one message each, and %d with the client, in batches",
		len(flights), len(plain), len(batched))
	p, err := client.NewProducer(d.env.NATS, client.Options{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return rig.PublishPlain(gctx, d.env.NATS, topicName, d.ledger, paced(plain)) })
	g.Go(func() error { return rig.PublishBatched(gctx, p, topicName, d.ledger, paced(batched)) })
	g.Go(func() error { return d.kill(gctx) })
	if err := errors.Join(g.Wait(), p.Close(ctx)); err != nil {
		return err
	}
	c := d.ledger.Counts()
	d.say("publishing went on meanwhile: receipts for %d of %d records", c.Acknowledged, c.Sent)
	if c.Acknowledged < c.Sent {
		return fmt.Errorf("%d records have no receipt, though nothing but the worker was killed: %w", c.Sent-c.Acknowledged, d.ledger.Failure())
	}
	return nil
}

// paced feeds the flights in their order.
func paced(list []int) rig.Feed {
	var mu sync.Mutex
	pace := rate.NewLimiter(perSecond, 100)
	return func(ctx context.Context) (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(list) == 0 || pace.Wait(ctx) != nil {
			return 0, false
		}
		next := list[0]
		list = list[1:]
		return next, true
	}
}

// kill splits the topic once the worker has committed something, ends the worker
// with SIGKILL when it has enough yet to commit, and merges while there is none.
func (d *demo) kill(ctx context.Context) error {
	split := false
	for {
		at, err := d.lane.Checkpoint(ctx)
		if err != nil {
			return err
		}
		if at > 0 && !split {
			d.step("split the topic's one segment into three while records flow: neither publishers nor the worker are told")
			if err := d.edit(ctx, "split", topicName, "slot:0", "--ways", "3"); err != nil {
				return err
			}
			split = true
			continue
		}
		if at > 0 && d.ledger.Above(at) > 2*wantAbove {
			break
		}
		select {
		case <-d.worker.Done():
			return d.worker.Err()
		default:
		}
		if err := rig.Pause(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("wait for the moment to kill the worker: %w", err)
		}
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
	d.step("kill -9 the worker after %d receipts: the checkpoint is lane message %d, and %d records that the lane has are above it", acknowledged, at, d.above)
	if d.above < wantAbove {
		return fmt.Errorf("want at least %d records above the checkpoint at the kill", wantAbove)
	}
	d.step("merge two of the three while no worker lives")
	return d.edit(ctx, "merge", topicName, "slot:0", "slot:30000")
}

// edit runs `spillway edit` and shows what it says.
func (d *demo) edit(ctx context.Context, args ...string) error {
	out, err := d.env.CLI(ctx, append([]string{"edit"}, args...)...)
	d.sayAll(out)
	return err
}

// sayAll shows what a command printed.
func (d *demo) sayAll(out []byte) {
	for line := range strings.Lines(strings.TrimSpace(string(out))) {
		d.say("%s", strings.TrimRight(line, "\n"))
	}
}

// showLineage draws what became of the topic's key space.
func (d *demo) showLineage(ctx context.Context) error {
	d.step("draw the lineage (spillway segments --tree): the key space from left to right, time downwards")
	out, err := d.env.CLI(ctx, "segments", topicName, "--tree")
	d.sayAll(out)
	return err
}

func (d *demo) takeOver(ctx context.Context) error {
	d.step("start another worker; it takes over once the dead one's lease has run out")
	start := time.Now()
	var err error
	if d.worker, err = d.env.StartWorker(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	if err := d.lane.WaitDrained(wait); err != nil {
		return err
	}
	at, err := d.lane.Checkpoint(ctx)
	d.say("process %d; everything up to lane message %d is on the filer after %.1f s", d.worker.PID(), at, time.Since(start).Seconds())
	return err
}

func (d *demo) readBack(ctx context.Context) error {
	d.step("read everything back in another process (spillway read) and compare with the receipts")
	c := d.ledger.Compare()
	if err := d.env.ReadBack(ctx, topicName, c.Add); err != nil {
		return err
	}
	ok := c.Done()
	d.read = c.Read
	d.say("%d records read: every acknowledged one is there, once, as it was sent, at the place that its receipt names, in the order of its key: %v", c.Read, ok)
	if !ok {
		return fmt.Errorf("%d problems:\n  %s", len(c.Problems)+c.More, strings.Join(c.Problems, "\n  "))
	}
	return nil
}

func (d *demo) verify(ctx context.Context) error {
	d.step("verify the topic from its files and the lane alone (spillway verify)")
	out, err := d.env.CLI(ctx, "verify", topicName, "--json")
	d.say("%s", strings.TrimSpace(string(out)))
	if err != nil {
		return err
	}
	var report struct {
		OK      bool `json:"ok"`
		Records int  `json:"records"`
	}
	if err := json.Unmarshal(out, &report); err != nil {
		return fmt.Errorf("spillway verify printed no report: %w", err)
	}
	if !report.OK || report.Records != d.read {
		return fmt.Errorf("verify does not agree: ok %v, %d records", report.OK, report.Records)
	}
	return nil
}
