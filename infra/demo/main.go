// Demo runs the whole line on real records: a stack, two ways in, a planner that
// splits the topic under load and merges it back afterwards, a backfill of files beside
// that, a planner, a worker and a backfill that are killed in between, others that take
// over, and a reader that is compared with what the publishers were told. Then all of it
// becomes an Iceberg table, which an independent engine queries where there is one. Its
// last line starts with PASS or FAIL.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	limit     = 4 * time.Minute // the whole demo; it takes about one
	topicName = "flights"
)

func main() { rig.Main(run) }

func run(ctx context.Context) int {
	dir := flag.String("dir", "", "folder of the stack, kept afterwards; a temporary one by default")
	bin := flag.String("bin", "bin/spillway", "the spillway binary")
	svg := flag.String("svg", "bin/demo-river.svg", "the picture of the segments, which is kept")
	verbose := flag.Bool("v", false, "show what the stack logs")
	flag.Parse()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	d := &demo{out: os.Stdout, begin: begin, svg: *svg}
	logger := slog.New(slog.DiscardHandler)
	if *verbose {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	summary, err := d.run(ctx, rig.Config{Dir: *dir, Bin: *bin, Logger: logger})
	if err != nil {
		fmt.Printf("\nFAIL after %.1f s: %v\n", time.Since(begin).Seconds(), err)
		return 1
	}
	fmt.Printf("\nPASS in %.1f s: %s\n", time.Since(begin).Seconds(), summary)
	return 0
}

// run is the demo from its first step to its last.
func (d *demo) run(ctx context.Context, cfg rig.Config) (summary string, err error) {
	d.step("start the stack: nats-server with JetStream, and SeaweedFS, on loopback")
	if d.env, err = rig.Open(ctx, cfg); err != nil {
		return "", err
	}
	defer func() {
		for _, p := range []*rig.Process{d.worker, d.planner, d.backfill} {
			if p != nil {
				p.Kill()
			}
		}
		d.env.Keep = err != nil
		if err != nil {
			d.say("the stack's folder is kept: %s", d.env.Dir)
		}
		err = errors.Join(err, d.env.Close())
	}()
	i := d.env.Stack.Info
	d.say("%s   filer http://%s   S3 %s   folder %s", i.NATS, i.Filer, i.S3.URL, i.Dir)
	for _, step := range []func(context.Context) error{
		d.startFunctions, d.publishAndKill, d.drain, d.mergeBack, d.readBack, d.verify, d.showFiles, d.submitReferences, d.showRiver,
		d.compact, d.queryTable,
	} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	c := d.ledger.Counts()
	return fmt.Sprintf("%d records sent two ways, %d acknowledged, %d read back, each once and in key order; "+
		"beside them %d rows of two files, each once, from a backfill that was killed at row %d; "+
		"planners split %s and merged %s; one of them was killed, and the worker with %d records uncommitted; all of it is in an Iceberg table, which %s has queried",
		c.Sent, c.Acknowledged, d.read, d.rows, d.killedAt, times(d.splits), times(d.merges), d.above, d.engine), nil
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
