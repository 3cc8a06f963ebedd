package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/functions"
)

// devGrace is how long chunks stay beside their data files in `spillway dev`: short
// enough that one sees them go, and long enough for readers on the same machine.
const devGrace = 5 * time.Minute

// devPeriod is between two looks at all topics there, of which there are few: what an
// edit by hand seals is taken up while one looks.
const devPeriod = 5 * time.Second

// compactFlags are what both commands that compact share.
type compactFlags struct {
	grace    time.Duration
	fileSize string
}

func (o *compactFlags) flags(f *pflag.FlagSet) {
	f.DurationVar(&o.grace, "grace", compactor.DefaultGrace, "how long chunks stay after their segment was compacted")
	f.StringVar(&o.fileSize, "file-size", "128MiB", "size of a data file, about")
}

// Bounds of the size of data files: small ones make every query slow, and large ones
// are one piece of work.
const (
	minFileBytes = 64 << 10
	maxFileBytes = 4 << 30
)

// options reads the flags.
func (o *compactFlags) options() (c functions.CompactOptions, err error) {
	if o.grace < 0 {
		return c, fmt.Errorf("--grace %s: want no negative time", o.grace)
	}
	n, err := humanize.ParseBytes(o.fileSize)
	if err != nil || n < minFileBytes || n > maxFileBytes {
		return c, fmt.Errorf("--file-size %.60q: want 64KiB to 4GiB, such as 128MiB", o.fileSize)
	}
	c.Grace, c.FileBytes = o.grace, int64(n)
	if c.Grace == 0 {
		c.Grace = -1 // none, and not the default
	}
	return c, nil
}

func (a *app) runCompact() *cobra.Command {
	var shared compactFlags
	var o functions.CompactOptions
	var metrics string
	cmd := &cobra.Command{
		Use:   "compact",
		Short: "Turn sealed segments into Parquet files, and tables of them",
		Long: `Runs the compactor: it writes the records of each sealed segment into Parquet files
in the topic's folder, lists them in the segment's manifest, commits them to the
topic's Iceberg table, if a catalog is set (--catalog), and after --grace deletes
the chunks. Readers of the topic do not notice. Any number may run, and each may be
killed at any moment: whoever comes next finishes.

Resident, it looks at a topic at once when a planner has sealed one of its segments,
and at all topics every --period. SIGTERM leaves a segment that is being written to
the next run.

A segment with a batch reference waits while the object's endpoint is away or no S3
endpoint is set; one with damaged chunks is set aside, with the reason
(spillway compact TOPIC --dry-run), and the others go on.

With --once it prints one line of JSON and exits 0 when all is done that can be done
now, 75 when a server, the catalog or an S3 endpoint is not available, or work was
left at the deadline, and 78 when the setup is wrong: credentials that are refused, a
warehouse that is not there, a table that belongs to something else.`,
		Example: "  spillway run compact --catalog http://catalog:8181 --warehouse warehouse\n" +
			"  spillway run compact --once --deadline 14m --grace 24h",
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			base, err := shared.options()
			o.Grace, o.FileBytes = base.Grace, base.FileBytes
			if err := errors.Join(err, checkCompactRun(o, cmd.Flags().Changed("period"))); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.compactFunction(cmd.Context(), o, metrics)
		},
	}
	f := cmd.Flags()
	shared.flags(f)
	f.DurationVar(&o.Period, "period", compactor.DefaultPeriod, "resident: time between two sweeps")
	f.BoolVar(&o.Once, "once", false, "compact what is sealed, then end")
	f.DurationVar(&o.Deadline, "deadline", 0, "with --once: be done by then, such as 14m")
	f.StringVar(&metrics, "metrics", "", "serve /metrics and /healthz at this address")
	return cmd
}

func checkCompactRun(o functions.CompactOptions, period bool) error {
	switch {
	case o.Once && period:
		return errors.New("--period is for a resident compactor, --once makes one sweep")
	case !o.Once && o.Deadline != 0:
		return errors.New("--deadline goes with --once")
	case o.Deadline < 0:
		return fmt.Errorf("--deadline %s: want a positive time", o.Deadline)
	case o.Period < time.Second:
		return fmt.Errorf("--period %s: want 1s or more", o.Period)
	}
	return nil
}

func (a *app) compactFunction(ctx context.Context, o functions.CompactOptions, metrics string) error {
	return a.withDeps(ctx, metrics, func(d functions.Deps) error {
		done, err := a.compacting(ctx, &d)
		if err != nil {
			return stopped(ctx, err)
		}
		defer done()
		sum, err := functions.Compact(ctx, d, o)
		if o.Once {
			return errors.Join(err, a.json(sum))
		}
		a.log.Info("compactor ended")
		return err
	})
}

// compacting gives a function the objects and the tables of the settings.
func (a *app) compacting(ctx context.Context, d *functions.Deps) (done func(), err error) {
	judged, err := a.judge(ctx, d)
	if err != nil {
		return nil, err
	}
	closed, err := a.catalog(ctx, d)
	if err != nil {
		judged()
		return nil, err
	}
	return func() { closed(); judged() }, nil
}
