package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

func (a *app) scheduleRun() *cobra.Command {
	var detach, progress bool
	cmd := &cobra.Command{
		Use: "run TOPIC NAME", Short: "Have a schedule make a job now, and work on it", Args: usage(cobra.ExactArgs(2)),
		Long: `Has a schedule make a job of what is new now, also if it is paused, and works on it
until it is done. If a job of the schedule is under way, that one is worked on first.
With --detach all of it is left to spillway run backfill.

Exit codes are those of spillway backfill run.`,
		Example: "  spillway backfill schedule run orders nightly\n  spillway backfill schedule run orders nightly --detach",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.jobCommand(cmd, args[0], func(ctx context.Context, j *jobsOf) error {
				if detach {
					return a.askSchedule(ctx, j, args[1])
				}
				return a.runSchedule(ctx, j, args[1], progress)
			})
		},
	}
	cmd.Flags().BoolVar(&detach, "detach", false, "leave the work to spillway run backfill")
	cmd.Flags().BoolVar(&progress, "progress", false, "draw a progress bar even if standard error is no terminal")
	return cmd
}

// askSchedule asks for a run, and leaves the work to others.
func (a *app) askSchedule(ctx context.Context, j *jobsOf, name string) error {
	nc, err := a.connectNATS()
	if err != nil {
		return err
	}
	defer nc.Close()
	s, err := backfill.SchedulesOf(j.store, j.topic).Update(ctx, name, func(s *backfill.Schedule) { s.RunNow(time.Now()) })
	if err != nil {
		return err
	}
	a.call(ctx, nc, j.topic.Name)
	return a.showSchedule(j.topic.Name, s, "asked for a run of")
}

// runSchedule makes the job of a run that it asks for, and works on it. The run that is
// under way, if there is one, comes first.
func (a *app) runSchedule(ctx context.Context, j *jobsOf, name string, progress bool) error {
	w, err := a.newWork(ctx, j)
	if err != nil {
		return err
	}
	defer w.close()
	s3, err := a.s3(ctx)
	if err != nil {
		return err
	}
	defer s3.Close()
	t := &backfill.Ticker{Schedules: backfill.SchedulesOf(j.store, j.topic), Logger: w.deps.Logger, Lister: a.listerOf(s3)}
	if _, err := t.Schedules.Update(ctx, name, func(s *backfill.Schedule) { s.RunNow(time.Now()) }); err != nil {
		return err
	}
	var worst error
	for worked := map[string]bool{}; ; {
		ticked, err := t.Tick(ctx, name, time.Now())
		s := ticked.Schedule
		switch {
		case err != nil:
			return functions.Worst(worst, explainBackfill(err))
		case s.Running != nil && s.Running.Job != "" && !worked[s.Running.Job]:
			worked[s.Running.Job] = true
			worst = functions.Worst(worst, w.runScheduled(ctx, s.Running.Job, progress))
			continue
		}
		return functions.Worst(worst, a.showRan(j.topic.Name, s))
	}
}

// runScheduled works on a schedule's job.
func (w *jobWork) runScheduled(ctx context.Context, id string, progress bool) error {
	s, err := w.jobs.State(ctx, id)
	if err != nil {
		return explainBackfill(err)
	}
	if err := w.showMade(createdView{w.jobs.topic.Name, id, s.Job.Objects, s.Job.Bytes, s.Job.Sources}); err != nil {
		return err
	}
	return w.run(ctx, functions.JobOptions{Topic: w.jobs.topic.Name, ID: id}, progress)
}

// listerOf lists at the endpoint of the settings alone.
func (a *app) listerOf(s3 *object.Store) func(context.Context, string) (backfill.Lister, error) {
	return func(_ context.Context, endpoint string) (backfill.Lister, error) {
		if endpoint != "" && endpoint != a.cfg.S3 {
			return nil, &functions.ConfigError{Err: fmt.Errorf("its objects are at %s; name that with --s3", endpoint)}
		}
		return s3, nil
	}
}

// showRan shows what has become of a run.
func (a *app) showRan(topic string, s backfill.Schedule) error {
	if s.Last == nil || s.Running != nil || a.cfg.JSON {
		return a.showSchedule(topic, s, "left")
	}
	return a.printf("schedule %s of topic %s: %s\n", s.Name, topic, resultText(*s.Last))
}
