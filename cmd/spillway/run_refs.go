package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/followup"
)

func (a *app) runRefs() *cobra.Command {
	var o functions.RefsOptions
	var metrics string
	cmd := &cobra.Command{
		Use:   "refs",
		Short: "Look again for objects that references were waiting for",
		Long: `Follows up the references that were committed as pending, because their objects
were not there yet or could not be looked at: until an object comes, is found to be
the one that was meant, and is pinned, or until it is given up. Nothing else depends
on it: records are there, and readers verify what they fetch.

Resident, it looks at a topic at once when an ingest worker calls for it, and every
--period at all that are not at rest. With --once it looks at what is due now, as
cron starts it, and with --once --all at topics at rest too. Any number may run.

An object that is not there is looked for again after --retry-after, then after twice
that, up to --retry-at-most, and given up after --give-up. While the S3 endpoint does
not answer, nothing is given up.

With --once it prints one line of JSON and exits 0 when all that was due was looked
at, 75 when a server, or the S3 endpoint, is not available, or work was left at the
deadline, and 78 when the setup is wrong.`,
		Example: "  spillway run refs --s3 http://s3.internal:8333\n  spillway run refs --once --all",
		Args:    usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkRefsRun(o, cmd.Flags().Changed("period")); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.refsFunction(cmd.Context(), o, metrics)
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.Period, "period", followup.DefaultPeriod, "resident: time between two sweeps")
	f.BoolVar(&o.Once, "once", false, "look at what is due, then end")
	f.BoolVar(&o.All, "all", false, "with --once: topics at rest too")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 55s")
	f.DurationVar(&o.RetryAfter, "retry-after", followup.DefaultRetryAfter, "time to the second look for an object")
	f.DurationVar(&o.RetryAtMost, "retry-at-most", followup.DefaultRetryAtMost, "longest time between two looks")
	f.DurationVar(&o.GiveUp, "give-up", followup.DefaultGiveUp, "give an object up that has not come for so long")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	return cmd
}

func checkRefsRun(o functions.RefsOptions, period bool) error {
	switch {
	case o.Once && period:
		return errors.New("--period is for a resident follow-up, --once makes one sweep")
	case !o.Once && (o.All || o.Deadline != 0):
		return errors.New("--all and --deadline go with --once")
	case o.Deadline < 0:
		return fmt.Errorf("--deadline %s: want a positive time", o.Deadline)
	case o.Period < time.Second:
		return fmt.Errorf("--period %s: want 1s or more", o.Period)
	case o.RetryAfter < time.Second:
		return fmt.Errorf("--retry-after %s: want 1s or more", o.RetryAfter)
	case o.RetryAtMost < o.RetryAfter:
		return fmt.Errorf("--retry-at-most %s: want no less than --retry-after, %s", o.RetryAtMost, o.RetryAfter)
	case o.GiveUp <= 0:
		return fmt.Errorf("--give-up %s: want a positive time", o.GiveUp)
	}
	return nil
}

func (a *app) refsFunction(ctx context.Context, o functions.RefsOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		done, err := a.judge(ctx, &d)
		if err != nil {
			return err
		}
		defer done()
		sum, err := functions.Refs(ctx, d, o)
		if o.Once {
			return errors.Join(err, a.json(sum))
		}
		a.log.Info("follow-up of references ended")
		return err
	})
}

// judge gives a function what decides about references, if the settings say
// anything about S3, which they do once the servers are located if a stack is used.
func (a *app) judge(ctx context.Context, d *functions.Deps) (done func(), err error) {
	c := a.cfg
	if c.S3 == "" && c.S3Region == "" && c.S3AccessKey == "" && c.S3Bucket == "" {
		return func() {}, nil
	}
	objects, err := a.s3(ctx)
	if err != nil {
		return nil, err
	}
	d.Judge = functions.NewJudge(objects, c.S3, d.Store.Filer)
	return objects.Close, nil
}
