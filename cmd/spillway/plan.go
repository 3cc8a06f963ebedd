package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/planner"
)

// planOptions of one call.
type planOptions struct {
	policy          string
	dryRun, explain bool
	showPolicy      bool

	expect        string
	expectRecords uint64
	span          time.Duration
	id            string
	withdraw      string

	simulate simulateOptions
}

func (a *app) plan() *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan TOPIC",
		Short: "Split, merge and roll a topic's segments as their load asks for, or say why not",
		Long: `Looks at the load of a topic's live segments, decides about each, and makes the
edits. Functions do this by themselves (spillway run plan); this is to look, to
understand, and to prepare.

A segment's level is its load as a multiple of the policy's target. It is split when
the level is above "burst" in the short window, or above "sustained" in the long one,
where half of the load lies on each side, and into more pieces if the load is many
times the target. Neighbours are merged when their combined level is below
"merge_below" and the cool-down is over. Segments that are large or old are rolled,
so that they can be compacted. Edits change nothing for publishers and readers.

--dry-run shows what would be done; --explain also says for each segment why nothing
is. Neither changes anything.

--expect declares a load that is to come, for the time given by --for: the planner
splits first, keeps the segments while it lasts, and merges them back when it is
over. Several add up; declaring again under the same --id replaces one, and
--withdraw takes it back. --explain lists them.

--simulate runs the planner in virtual time over a load from a CSV file, without any
server: columns seconds, bytes and records (per second, from that second on), and
optionally lo and hi, the slots that it falls into.

--policy names a YAML file with the settings that --show-policy prints; settings of
single topics stand below "topics". SPILLWAY_POLICY_TARGET_BYTES and so on override
it.

It exits 0 when what was decided is done, or there was nothing to do, and 75 when a
server is not available, or with --explain and --dry-run while an edit is under way.`,
		Example: `  spillway plan orders --explain
  spillway plan orders --expect 200MB/s --for 30m
  spillway plan --simulate monday.csv --policy policy.yaml --svg monday.svg
  spillway plan --show-policy > policy.yaml`,
		Args: usage(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"expect", "withdraw", "id", "simulate"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return &functions.UsageError{Err: fmt.Errorf("--%s is empty", name)}
				}
			}
			return a.runPlan(cmd.Context(), o, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.policy, "policy", "", "YAML file with the policy (default: what --show-policy prints)")
	f.BoolVar(&o.showPolicy, "show-policy", false, "print the policy in force, as YAML")
	f.BoolVar(&o.dryRun, "dry-run", false, "show the edits that would be made, and make none")
	f.BoolVar(&o.explain, "explain", false, "say for each segment what is decided, and why; change nothing")
	f.StringVar(&o.expect, "expect", "", "declare a load of so many bytes per second, such as 200MB/s")
	f.Uint64Var(&o.expectRecords, "expect-records", 0, "declare a load of so many records per second")
	f.DurationVar(&o.span, "for", 0, "with --expect: how long the load will last, such as 30m")
	f.StringVar(&o.id, "id", defaultDeclared, "with --expect: name of the declaration")
	f.StringVar(&o.withdraw, "withdraw", "", "take the declaration of this id back")
	o.simulate.flags(f)
	return cmd
}

// mode tells which of the things that exclude each other is asked for.
func (o planOptions) mode() (string, error) {
	var modes []string
	for _, m := range []struct {
		name string
		on   bool
	}{
		{"--dry-run", o.dryRun}, {"--explain", o.explain}, {"--show-policy", o.showPolicy}, {"--withdraw", o.withdraw != ""},
		{"--expect", o.expect != "" || o.expectRecords > 0}, {"--simulate", o.simulate.trace != ""},
	} {
		if m.on {
			modes = append(modes, m.name)
		}
	}
	switch {
	case len(modes) > 1:
		return "", fmt.Errorf("%s exclude each other", strings.Join(modes, " and "))
	case len(modes) == 1:
		return modes[0], nil
	}
	return "", nil
}

func (a *app) runPlan(ctx context.Context, o planOptions, args []string) error {
	mode, err := o.mode()
	alone := mode == "--simulate" || mode == "--show-policy"
	switch {
	case err != nil:
		return &functions.UsageError{Err: err}
	case mode != "--expect" && (o.span != 0 || o.id != defaultDeclared):
		return &functions.UsageError{Err: errors.New("--for and --id go with --expect or --expect-records")}
	case alone && len(args) > 0:
		return &functions.UsageError{Err: fmt.Errorf("%s takes no topic", mode)}
	case !alone && len(args) == 0:
		return &functions.UsageError{Err: errors.New("name the topic to plan for (`spillway run plan --once` plans for all)")}
	}
	var expected segment.DeclaredLoad
	if mode == "--expect" {
		if expected, err = o.declaration(time.Now()); err != nil {
			return &functions.UsageError{Err: err}
		}
	}
	if mode == "--withdraw" {
		if err := segment.CheckDeclaredID(o.withdraw); err != nil {
			return &functions.UsageError{Err: fmt.Errorf("--withdraw: %w", err)}
		}
	}
	policies, err := loadPolicy(o.policy)
	if err != nil {
		return err
	}
	switch mode {
	case "--show-policy":
		return a.showPolicy(policies)
	case "--simulate":
		return a.simulatePlan(ctx, o.simulate, policies.Default)
	}
	store, lanes, done, err := a.planServers(ctx)
	if err != nil {
		return err
	}
	defer done()
	p := planner.New(planner.Options{Store: store, Policies: policies, Lanes: lanes, Logger: store.Logger})
	switch mode {
	case "--expect":
		err = a.declare(ctx, store, args[0], expected)
	case "--withdraw":
		err = a.withdraw(ctx, store, args[0], o.withdraw)
	case "--dry-run", "--explain":
		return a.explainPlan(ctx, p, args[0], mode == "--explain")
	}
	if err != nil {
		return err
	}
	r, err := p.Topic(ctx, args[0])
	return errors.Join(err, a.showPlan(r, false))
}

// explainPlan shows what would be done, and with keeps also why nothing is done about
// the other segments.
func (a *app) explainPlan(ctx context.Context, p *planner.Planner, name string, keeps bool) error {
	r, err := p.Explain(ctx, name)
	if is[*planner.PendingError](err) {
		return &functions.RetryError{Err: err}
	}
	if err != nil {
		return err
	}
	return a.showPlan(r, keeps)
}

// planServers reaches the filer, and NATS if it is named: without it, backlogs are
// not known.
func (a *app) planServers(ctx context.Context) (*segment.Store, planner.Lanes, func(), error) {
	store, closeFiler, err := a.filer(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	a.quiet(store)
	if a.cfg.NATS == "" {
		return store, nil, closeFiler, nil
	}
	nc, err := a.connectNATS()
	if err != nil {
		closeFiler()
		return nil, nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(a.cfg.Timeout))
	if err != nil {
		nc.Close()
		closeFiler()
		return nil, nil, nil, &functions.ConfigError{Err: err}
	}
	return store, functions.NewLanes(js, store), func() { nc.Close(); closeFiler() }, nil
}
