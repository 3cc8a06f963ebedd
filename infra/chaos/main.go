// Chaos publishes at full speed while the ingest worker, weed, the nats-server and
// planners are killed with SIGKILL at random moments. Two planners have a policy by
// which they edit as often as they can, and every few seconds somebody splits,
// merges or rolls the topic beside them, at random. Beside that, references are
// submitted to objects that are there, that are others, and that are not there. Then chaos lets the lane drain,
// verifies the topic, reads it back and compares it with what the publishers were
// told. Its last line starts with PASS or FAIL. A seed decides what is killed in which
// order and when, as far as that can be decided; after a failure the folder is
// kept, with all data and logs.
//
// After that, a sample of real flights is taken into a topic by two backfills beside
// live records, and their runs, workers, planners and weed are killed; with -backfill
// nothing else is done, and with all 3,000,000 flights.
//
// Before all of it, unless it has to be short, one object of 5 GiB goes by reference, in
// many parts, on a stack of its own; no process may take more than 256 MiB for it.
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
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/object"
)

const (
	topicName = "chaos"
	editEvery = 4 * time.Second
)

// options are the flags.
type options struct {
	rounds int
	short  bool
	object int64 // bytes
	// backfill: nothing but the round of the backfills, with all flights.
	backfill bool
	seed     uint64
	cfg      rig.Config
}

func main() { rig.Main(program) }

func program(ctx context.Context) int {
	var o options
	flag.IntVar(&o.rounds, "rounds", 3, "how many rounds; 0: only the object, and with -object 0 only the sample of the backfills")
	flag.BoolVar(&o.short, "short", false, "one brief round, and no object")
	flag.BoolVar(&o.backfill, "backfill", false, "only backfills, of all 3,000,000 flights, for which "+rig.DataEnv+" has to be set")
	size := flag.String("object", "5GiB", "size of the object that goes by reference; 0: none")
	flag.Uint64Var(&o.seed, "seed", 0, "what decides the order and the moments of the kills; 0: a new one")
	flag.StringVar(&o.cfg.Dir, "dir", "", "folder of the stack, kept afterwards; a temporary one by default")
	flag.StringVar(&o.cfg.Bin, "bin", "bin/spillway", "the spillway binary")
	verbose := flag.Bool("v", false, "show what the stack logs")
	flag.Parse()
	bytes, err := humanize.ParseBytes(*size)
	if err != nil || bytes > object.MaxSize {
		fmt.Fprintf(os.Stderr, "-object %s: want a size such as 5GiB\n", *size)
		return 2
	}
	o.object = int64(bytes)
	if o.short {
		o.rounds, o.object = 1, 0
	}
	if o.backfill {
		o.rounds, o.object = 0, 0
	}
	for o.seed == 0 {
		o.seed = rand.Uint64() >> 32
	}
	if *verbose {
		o.cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	begin := time.Now()
	summary, err := runAll(ctx, os.Stdout, o)
	took := time.Since(begin).Seconds()
	if err != nil {
		fmt.Printf("FAIL with seed %d after %.0f s: %v\n", o.seed, took, err)
		return 1
	}
	fmt.Printf("PASS with seed %d in %.0f s: %s\n", o.seed, took, summary)
	return 0
}

// runAll runs what the options ask for.
func runAll(ctx context.Context, out io.Writer, o options) (string, error) {
	var summaries []string
	if o.object > 0 {
		summary, err := passLarge(ctx, out, o)
		if err != nil {
			return "", fmt.Errorf("the large object: %w", err)
		}
		summaries = append(summaries, summary)
	}
	if o.rounds > 0 {
		summary, err := run(ctx, out, o)
		if err != nil {
			return "", err
		}
		summaries = append(summaries, summary)
	}
	if o.rounds > 0 || o.object == 0 {
		summary, err := passBackfills(ctx, out, o)
		if err != nil {
			return "", fmt.Errorf("backfills: %w", err)
		}
		summaries = append(summaries, summary)
	}
	return strings.Join(summaries, "; "), nil
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
	c.ledger, c.workers = rig.NewLedger(flights), newSupervisor(env.StartWorker)
	killer, err := newPlannerKiller(ctx, env, topicName, o.seed)
	if err != nil {
		return "", err
	}
	if c.refs, err = newReferences(ctx, env); err != nil {
		return "", err
	}
	c.editor = &rig.Editor{Env: env, Topic: topicName, Every: editEvery, Killed: 0.3, Rand: rand.New(rand.NewPCG(o.seed, 1))}
	g, gctx := errgroup.WithContext(ctx)
	stop, stopped := context.WithCancel(gctx)
	defer stopped()
	g.Go(func() error { return c.workers.run(stop) })
	g.Go(func() error { return c.editor.Run(stop) })
	for _, p := range killer.planners {
		g.Go(func() error { return p.run(stop) })
	}
	g.Go(func() error { return killer.run(stop) })
	compaction := newCompactorKiller(env, o.seed)
	g.Go(func() error { return compaction.run(stop) })
	g.Go(func() error {
		defer stopped()
		return c.rounds(gctx, o.rounds)
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	if summary, err = c.summary(ctx, killer); err != nil {
		return "", err
	}
	refs, err := c.refs.check(ctx)
	if err != nil {
		return "", err
	}
	compacted, err := c.compactAll(ctx, compaction)
	return summary + "; " + refs + "; " + compacted, err
}

// summary tells what a run that passed has been through.
func (c *chaos) summary(ctx context.Context, k *plannerKiller) (string, error) {
	edits, err := c.env.Edits(ctx, topicName, 0)
	if err != nil {
		return "", err
	}
	planned := 0
	for _, l := range edits {
		if _, ok := rig.Planned(l.Edit); ok {
			planned++
		}
	}
	if planned == 0 || k.kills == 0 {
		return "", fmt.Errorf("planners made %d edits and were killed %d times: that is no test of them", planned, k.kills)
	}
	restarts := c.workers.restarts.Load()
	for _, p := range k.planners {
		restarts += p.restarts.Load()
	}
	n := c.ledger.Counts()
	return fmt.Sprintf("%d records sent, %d acknowledged, %d read back, each once and in key order (%d of them without a receipt); "+
		"%d kills of workers and servers, %d of planners (%d times with an edit half done), %d restarts of workers and planners that ended by themselves; "+
		"%d edits, of which planners decided on %d and `spillway edit` on the others (%d of these were killed in the middle)",
		n.Sent, n.Acknowledged, c.read, c.surplus, c.kills, k.kills, k.halfDone, restarts,
		len(edits), planned, c.editor.Kills.Load()), nil
}
