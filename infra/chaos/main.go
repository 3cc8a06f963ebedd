// Chaos publishes at full speed while the ingest worker, weed and the nats-server
// are killed with SIGKILL at random moments, and the topic is split, merged or
// rolled every other second. Then it lets the lane drain, verifies
// the topic, reads it back and compares it with what the publishers were told.
// Its last line starts with PASS or FAIL. A seed decides what is killed in which
// order and when, as far as that can be decided; after a failure the folder is
// kept, with all data and logs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	topicName = "chaos"
	editEvery = 2 * time.Second
)

// options are the flags.
type options struct {
	rounds int
	short  bool
	seed   uint64
	cfg    rig.Config
}

func main() { rig.Main(program) }

func program(ctx context.Context) int {
	var o options
	flag.IntVar(&o.rounds, "rounds", 3, "how many rounds")
	flag.BoolVar(&o.short, "short", false, "one brief round")
	flag.Uint64Var(&o.seed, "seed", 0, "what decides the order and the moments of the kills; 0: a new one")
	flag.StringVar(&o.cfg.Dir, "dir", "", "folder of the stack, kept afterwards; a temporary one by default")
	flag.StringVar(&o.cfg.Bin, "bin", "bin/spillway", "the spillway binary")
	verbose := flag.Bool("v", false, "show what the stack logs")
	flag.Parse()
	if o.short {
		o.rounds = 1
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	if *verbose {
		o.cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	begin := time.Now()
	summary, err := run(ctx, os.Stdout, o)
	took := time.Since(begin).Seconds()
	if err != nil {
		fmt.Printf("FAIL with seed %d after %.0f s: %v\n", o.seed, took, err)
		return 1
	}
	fmt.Printf("PASS with seed %d in %.0f s: %s\n", o.seed, took, summary)
	return 0
}

func run(ctx context.Context, out io.Writer, o options) (summary string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.rounds)*5*time.Minute)
	defer cancel()
	env, err := rig.Open(ctx, o.cfg)
	if err != nil {
		return "", err
	}
	defer func() {
		env.Keep = err != nil
		if err != nil {
			fmt.Fprintf(out, "the stack's folder is kept: %s\n", env.Dir)
		}
		err = errors.Join(err, env.Close())
	}()
	c := &chaos{env: env, begin: time.Now(), out: out, short: o.short, rng: rand.New(rand.NewPCG(o.seed, 0))}
	c.say("seed %d, stack in %s", o.seed, env.Dir)
	if _, err := env.CLI(ctx, "topic", "create", topicName, "--key", "header"); err != nil {
		return "", err
	}
	flights, err := rig.Flights()
	if err != nil {
		return "", err
	}
	c.ledger, c.workers = rig.NewLedger(flights), newSupervisor(env)
	c.editor = &rig.Editor{Env: env, Topic: topicName, Every: editEvery, Killed: 0.3, Rand: rand.New(rand.NewPCG(o.seed, 1))}
	g, gctx := errgroup.WithContext(ctx)
	stop, stopped := context.WithCancel(gctx)
	defer stopped()
	g.Go(func() error { return c.workers.run(stop) })
	g.Go(func() error { return c.editor.Run(stop) })
	g.Go(func() error {
		defer stopped()
		return c.rounds(gctx, o.rounds)
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	n := c.ledger.Counts()
	return fmt.Sprintf("%d records sent, %d acknowledged, %d read back, each once and in key order (%d of them without a receipt); "+
		"%d kills, %d restarts of workers that ended by themselves; %d splits, merges and rolls, %d more killed in the middle", n.Sent, n.Acknowledged, c.read, c.surplus, c.kills, c.workers.restarts.Load(),
		c.editor.Edits.Load(), c.editor.Kills.Load()), nil
}
