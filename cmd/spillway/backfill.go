package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) backfill() *cobra.Command {
	cmd := &cobra.Command{
		Use: "backfill", Short: "Make records of files that there are, once or by the clock", Args: usage(cobra.NoArgs), RunE: group,
		Long: `A backfill job reads files of many records, NDJSON, CSV, Avro or Parquet, from S3 or
from this machine, and makes a record of the topic of each row: exactly once, beside
whatever else the topic takes in, and without passing through NATS. Which objects it
reads, and how, is fixed when it is made. It can be stopped and killed at any time,
and goes on where it was.

  open       to be worked on: by backfill run and resume here, or by spillway run backfill
  paused     not to be worked on, until it is resumed
  stopped    it has stopped itself, as too many rows were rejected; resume goes on
  done       all its objects are read
  cancelled  it was given up; what it had taken in stays`,
		Example: "  spillway backfill run orders s3://exports/orders/2025/ --key customer --time created_at\n" +
			"  spillway backfill list orders\n" +
			"  spillway backfill schedule create orders nightly s3://exports/orders/ --cron '30 2 * * *'",
	}
	cmd.AddCommand(
		a.backfillRun(), a.backfillList(), a.backfillDescribe(),
		a.backfillPause(), a.backfillResume(), a.backfillCancel(), a.backfillSchedule(),
	)
	return cmd
}

// jobsOf are the jobs of the topic that a command is about.
type jobsOf struct {
	*backfill.Jobs
	store *segment.Store
	topic *segment.Topic
}

// jobCommand runs a command about a topic's jobs, which needs the filer alone, and gives
// its errors their exit codes.
func (a *app) jobCommand(cmd *cobra.Command, name string, do func(context.Context, *jobsOf) error) error {
	if err := topic.CheckName(name); err != nil {
		return &functions.UsageError{Err: err}
	}
	store, done, err := a.filer(cmd.Context())
	if err != nil {
		return err
	}
	defer done()
	a.quiet(store)
	t, err := store.Topic(cmd.Context(), name)
	if err != nil {
		return err
	}
	return explainBackfill(do(cmd.Context(), &jobsOf{backfill.Of(store, t), store, t}))
}

// explainBackfill sorts what commands about jobs and schedules can meet.
func explainBackfill(err error) error {
	switch {
	case is[*backfill.HeldError](err):
		return &functions.RetryError{Err: fmt.Errorf("%w; wait for it, or take the job with `spillway backfill resume --force`", err)}
	case err == nil, functions.ExitCode(err) != functions.ExitBug:
		return err
	case errors.Is(err, backfill.ErrNoJob):
		return &functions.UsageError{Err: fmt.Errorf("%w; `spillway backfill list` shows what there is", err)}
	case errors.Is(err, backfill.ErrNoSchedule):
		return &functions.UsageError{Err: fmt.Errorf("%w; `spillway backfill schedule list` shows what there is", err)}
	case is[*backfill.JobError](err), is[*backfill.NamesError](err), is[*backfill.PatternError](err), is[*backfill.ManifestError](err),
		is[*backfill.IDError](err), is[*backfill.PhaseError](err), is[*backfill.ScheduleError](err), is[*backfill.CronError](err),
		errors.Is(err, backfill.ErrScheduleExists), is[*fs.PathError](err), errors.Is(err, object.ErrNoBucket):
		return &functions.UsageError{Err: err}
	case errors.Is(err, backfill.ErrNoCheckpoint), errors.Is(err, ingest.ErrNoCheckpoint):
		return &functions.ConfigError{Err: fmt.Errorf("%w: what of the job is done is not known; cancel it, and make another one of what is missing", err)}
	}
	return err
}
