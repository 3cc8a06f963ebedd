package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
)

func (a *app) runBackfillFunction() *cobra.Command {
	var o functions.BackfillOptions
	var metrics string
	cmd := &cobra.Command{
		Use:   "backfill",
		Short: "Work on backfill jobs, and make those of schedules",
		Long: `Works on the open backfill jobs of all topics, one after the other, and makes the jobs
that schedules ask for: resident, or with --once until nothing is to be done now, as
cron starts it. Jobs about files of a machine are left to spillway backfill run there.
Objects are read with the S3 settings (--s3 and its kin), in the name of whoever runs
this.

Resident, it begins at once with what backfill run --detach, backfill resume --detach
and backfill schedule run ask for, and looks at all topics every --period. Any number
may run; each job has one run at a time. SIGTERM commits what is read, and another run
goes on from there.

With --once it prints one line of JSON and exits 0 when nothing is left to be done, 75
when a server is not available, or work was left at the deadline, and 78 when a job or
the setup needs somebody.`,
		Example: "  spillway run backfill --s3 http://s3.internal:8333\n  spillway run backfill --once --deadline 14m",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkBackfillRun(o, cmd.Flags().Changed("period")); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.backfillFunction(cmd.Context(), o, metrics)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Period, "period", functions.DefaultBackfillPeriod, "resident: time between two looks at all topics")
	f.BoolVar(&o.Once, "once", false, "do what is to be done now, then end")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 14m")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	return cmd
}

func checkBackfillRun(o functions.BackfillOptions, period bool) error {
	switch {
	case o.Once && period:
		return errors.New("--period is for a resident backfill, --once looks once")
	case !o.Once && o.Deadline != 0:
		return errors.New("--deadline goes with --once")
	case o.Deadline < 0:
		return fmt.Errorf("--deadline %s: want a positive time", o.Deadline)
	case o.Period < time.Second:
		return fmt.Errorf("--period %s: want 1s or more", o.Period)
	}
	return nil
}

func (a *app) backfillFunction(ctx context.Context, o functions.BackfillOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		done, err := a.judge(ctx, &d)
		if err != nil {
			return err
		}
		defer done()
		sum, err := functions.Backfill(ctx, d, o)
		if o.Once {
			return errors.Join(err, a.json(sum))
		}
		a.log.Info("backfill ended", "jobs", sum.Jobs, "done", sum.Done, "rows", sum.Rows, "rejected", sum.Rejected)
		return err
	})
}
