// Demo runs the whole line on real records: a stack, two ways in, a topic that is
// split and merged, a worker that is killed in between, another that takes over, and a reader that is compared
// with what the publishers were told. Its last line starts with PASS or FAIL.
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
	limit     = 4 * time.Minute // the whole demo; it takes well under two
	topicName = "flights"
	wantAbove = 1000 // records that must be unacknowledged when the worker is killed
)

func main() { rig.Main(run) }

func run(ctx context.Context) int {
	dir := flag.String("dir", "", "folder of the stack, kept afterwards; a temporary one by default")
	bin := flag.String("bin", "bin/spillway", "the spillway binary")
	verbose := flag.Bool("v", false, "show what the stack logs")
	flag.Parse()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	d := &demo{out: os.Stdout, begin: begin}
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
		if d.worker != nil {
			d.worker.Kill()
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
		d.createTopic, d.publishAndKill, d.takeOver, d.readBack, d.verify, d.showLineage, d.showFiles,
	} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	c := d.ledger.Counts()
	return fmt.Sprintf("%d records sent two ways, %d acknowledged, %d read back, each once and in key order; "+
		"the worker was killed with %d unacknowledged, between a split and a merge", c.Sent, c.Acknowledged, d.read, d.above), nil
}
