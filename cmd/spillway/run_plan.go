package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/planner"
)

func (a *app) runPlanner() *cobra.Command {
	var o functions.PlanOptions
	var policy, metrics string
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Split, merge and roll segments as their load asks for",
		Long: `Runs the planner: resident, or with --once one sweep over the topics that are not at
rest, as cron starts it. A resident planner sweeps every --period, and looks at a
topic at once when an ingest worker nudges it, because it takes in more than its
segments should. Any number may run: an edit is made on the layout that it was
planned for, or not at all. SIGTERM finishes what is in hand.

With --once --nudged it only follows the nudges that wait (NATS stream
spillway-work), as a scheduler starts it that scales by them. With --once --all it
looks at topics at rest too; once a day is enough, in case a mark was lost.

With --once it prints one line of JSON and exits 0 when all topics are planned for,
75 when a server is not available, or work was left at the deadline, and 78 when the
setup or the policy is wrong. While NATS is away nothing is merged, since messages may
wait; splits and rolls go on. Why a topic is as it is: spillway plan TOPIC
--explain.`,
		Example: "  spillway run plan --policy policy.yaml\n  spillway run plan --once --deadline 55s",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPlanRun(o, cmd.Flags().Changed("period")); err != nil {
				return &functions.UsageError{Err: err}
			}
			var err error
			if o.Policies, err = loadPolicy(policy); err != nil {
				return err
			}
			return a.planFunction(cmd.Context(), o, metrics)
		},
	}
	f := cmd.Flags()
	f.StringVar(&policy, "policy", "", "YAML file with the policy (default: what `spillway plan --show-policy` prints)")
	f.DurationVar(&o.Period, "period", planner.DefaultPeriod, "resident: time between two sweeps")
	f.BoolVar(&o.Once, "once", false, "make one sweep, then end")
	f.BoolVar(&o.All, "all", false, "with --once: topics at rest too")
	f.BoolVar(&o.Nudged, "nudged", false, "with --once: only topics for which nudges wait")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 55s")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	return cmd
}

func checkPlanRun(o functions.PlanOptions, period bool) error {
	switch {
	case o.Once && period:
		return errors.New("--period is for a resident planner, --once makes one sweep")
	case !o.Once && (o.All || o.Nudged || o.Deadline != 0):
		return errors.New("--all, --nudged and --deadline go with --once")
	case o.All && o.Nudged:
		return errors.New("--all and --nudged exclude each other")
	case o.Deadline < 0:
		return fmt.Errorf("--deadline %s: want a positive time", o.Deadline)
	case o.Period < 100*time.Millisecond:
		return fmt.Errorf("--period %s: want 100ms or more", o.Period)
	}
	return nil
}

func (a *app) planFunction(ctx context.Context, o functions.PlanOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		sum, err := functions.Plan(ctx, d, o)
		if o.Once {
			return errors.Join(err, a.json(sum))
		}
		a.log.Info("planner ended")
		return err
	})
}
