package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// compactOptions of one call.
type compactOptions struct {
	compactFlags
	segment                string
	dryRun, roll, progress bool

	how functions.CompactOptions
}

func (a *app) compact() *cobra.Command {
	var o compactOptions
	cmd := &cobra.Command{
		Use: "compact TOPIC", Short: "Compact a topic's sealed segments now", Args: usage(cobra.ExactArgs(1)),
		Long: `Does for one topic, in the foreground, what spillway run compact does for all: writes
the records of each sealed segment into Parquet files, lists them in its manifest,
commits them to the topic's Iceberg table, if a catalog is set, and deletes chunks
whose grace time is over. Readers do not notice. A segment that still takes records is
never compacted: --roll seals the live segments first, each replaced by one with the
same slots (as spillway edit roll does), so that everything so far is compacted;
segments without records are not rolled.

--segment does it for one segment alone: its id, its short name ("4-1"), or the
beginning of its id. With --roll it may be a live one.

--dry-run changes nothing, and says of each segment what it holds, how far it is, what
would be done next, or why nothing:
  live         it still takes records
  sealed       it is to be compacted. Batch references may wait for an endpoint
  compacted    it has its files and its manifest; chunks are still there
  in table     and the topic's table has it
  trimmed      and the chunks are gone
  quarantined  something of it cannot be read; the others go on

Ctrl-C, or SIGTERM, leaves everything consistent: what is done stays, a file that was
being written is dropped, and the next call, or run compact, goes on.

Exit codes: 0 done, or nothing to do, 1 a segment is quarantined, 2 wrong usage, 75
interrupted, another compactor is at the topic, or a server, the catalog, or the
endpoint of batch references is not available, 78 the setup is wrong: a catalog that
refuses, a table that belongs to something else, batch references and no S3 endpoint.`,
		Example: "  spillway compact orders --dry-run\n  spillway compact orders --roll\n" +
			"  spillway compact orders --segment 4-1 --grace 0s\n  spillway compact orders --dry-run --json | jq '.segments[] | select(.do!=\"nothing\")'",
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			o.how, err = o.options()
			if err := errors.Join(err, topic.CheckName(args[0])); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.compactTopic(cmd.Context(), args[0], o)
		},
	}
	f := cmd.Flags()
	o.flags(f)
	f.StringVar(&o.segment, "segment", "", "only this segment")
	f.BoolVar(&o.dryRun, "dry-run", false, "change nothing, say what would be done")
	f.BoolVar(&o.roll, "roll", false, "seal the live segments first")
	f.BoolVar(&o.progress, "progress", false, "draw a progress bar even if standard error is no terminal")
	return cmd
}

func (a *app) compactTopic(ctx context.Context, name string, o compactOptions) error {
	return a.withCompacting(ctx, name, func(c *compacting, t *inspect.Topic) error {
		if o.dryRun {
			return c.plan(ctx, t, o)
		}
		return c.run(ctx, t, o)
	})
}

// withCompacting does something with a topic and what compacts it.
func (a *app) withCompacting(ctx context.Context, name string, do func(*compacting, *inspect.Topic) error) error {
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	a.quiet(store)
	t, err := inspect.Open(ctx, store, name)
	if err != nil {
		return err
	}
	c, done, err := a.newCompacting(ctx, store)
	if err != nil {
		return err
	}
	defer done()
	return do(c, t)
}

// compacting is what compacts in the foreground.
type compacting struct {
	*app
	deps functions.Deps
}

// newCompacting reaches what compacting needs.
func (a *app) newCompacting(ctx context.Context, store *segment.Store) (*compacting, func(), error) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	log, err := a.warningsOnly()
	if err != nil {
		return nil, nil, err
	}
	c := &compacting{a, functions.Deps{Store: store, Logger: log, Metrics: prometheus.NewRegistry(), Health: ingest.NewHealth(nil)}}
	done, err := a.compacting(ctx, &c.deps)
	return c, done, err
}

// run seals, if that is wanted, and compacts.
func (c *compacting) run(ctx context.Context, t *inspect.Topic, o compactOptions) error {
	if err := selfCheck(ctx, c.deps.Store); err != nil {
		return err
	}
	if o.roll {
		if err := c.roll(ctx, t, o.segment); err != nil {
			return err
		}
	}
	to := functions.TopicOptions{CompactOptions: o.how, Topic: t.Name}
	if o.segment != "" {
		m, err := sealedNamed(ctx, t, o.segment)
		if err != nil {
			return err
		}
		to.Segment = m.ID
	}
	bar := newCompactBar(c.errs, o.progress)
	to.Progress = bar.at
	to.Waiting = func() {
		c.note("another compactor is at topic %s; waiting up to %s for it", t.Name, functions.DefaultCompactWait)
	}
	r, err := functions.CompactTopic(ctx, c.deps, to)
	bar.end()
	if shown := c.showReport(t.Name, r); err == nil {
		err = shown
	}
	return functions.Worst(explain(explainCatalog(err)), unfinished(ctx, t.Name, r))
}

// unfinished is what is left to be done of a topic, as an error.
func unfinished(ctx context.Context, name string, r compactor.Report) error {
	var errs []error
	add := func(is bool, err error) {
		if is {
			errs = append(errs, err)
		}
	}
	add(r.Cut && ctx.Err() != nil, &functions.RetryError{Err: errors.New("interrupted: what is done stays, and nothing is half done; call it again, or leave the rest to run compact")})
	add(r.Cut && ctx.Err() == nil, &functions.RetryError{Err: errors.New("somebody else compacts the topic by now, and goes on with it")})
	add(r.Silent != nil, &functions.RetryError{Err: fmt.Errorf("not all could be done: %w", r.Silent)})
	add(r.Postponed > 0 && r.Silent == nil, &functions.RetryError{Err: fmt.Errorf("%s with batch references: the objects cannot be looked at now", count(r.Postponed, "segment"))})
	add(r.Elsewhere > 0, &functions.ConfigError{Err: fmt.Errorf("%s with batch references cannot be compacted from here: no S3 endpoint is set, or another one than the topic's; give --s3", count(r.Elsewhere, "segment"))})
	add(r.Quarantined > 0, fmt.Errorf("%s quarantined: `spillway compact %s --dry-run` says why", count(r.Quarantined, "segment"), name))
	return functions.Worst(errs...)
}

// roll seals the live segments that hold records, or one.
func (c *compacting) roll(ctx context.Context, t *inspect.Topic, only string) error {
	live, err := rollable(ctx, t, only)
	if err != nil {
		return err
	}
	o := editOptions{reason: "to be compacted"}
	for _, id := range live {
		_, err := c.editOnce(ctx, t, o, func(e editing) (topic.Edit, error) { return e.layout.Roll(id) })
		if errors.Is(err, topic.ErrNotLive) {
			continue // somebody else has replaced it, and so sealed it
		}
		if err != nil {
			return fmt.Errorf("roll segment %s: %w", id, err)
		}
		c.note("sealed %s", inspect.Short(id))
	}
	return nil
}
