package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer"
)

func (a *app) backfillPause() *cobra.Command {
	return &cobra.Command{
		Use: "pause TOPIC ID", Short: "Have nobody work on a job until it is resumed", Args: usage(cobra.ExactArgs(2)),
		Long: `Pauses a job. Whoever works on it commits what is read, and ends within some
seconds. What was taken in stays. Pausing a paused job changes nothing.`,
		Example: "  spillway backfill pause orders 3k9xq0v7m2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeJob(cmd, args, func(s *backfill.State) error { return s.Pause("paused by " + who()) })
		},
	}
}

func (a *app) backfillCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel TOPIC ID", Short: "Give a job up for good", Args: usage(cobra.ExactArgs(2)),
		Long: `Cancels a job that is not done. Whoever works on it ends within some seconds. The
records that it made stay, and so does the job, with what was done of it; it cannot be
resumed. A job about the same objects takes all of their rows in once more.`,
		Example: "  spillway backfill cancel orders 3k9xq0v7m2ab",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changeJob(cmd, args, func(s *backfill.State) error { return s.Cancel(time.Now(), "cancelled by "+who()) })
		},
	}
}

// changeJob changes a job's phase, and shows what it is now.
func (a *app) changeJob(cmd *cobra.Command, args []string, change func(*backfill.State) error) error {
	return a.jobCommand(cmd, args[0], func(ctx context.Context, j *jobsOf) error {
		if _, err := j.Update(ctx, args[1], change); err != nil {
			return err
		}
		if err := j.withdraw(ctx, args[1]); err != nil {
			return err
		}
		v, err := j.look(ctx, args[1])
		if err != nil {
			return err
		}
		if a.cfg.JSON {
			return a.json(v)
		}
		if err := a.printf("job %s is %s: %s\n", v.ID, v.State.Phase, v.progress()); err != nil {
			return err
		}
		if v.State.Phase == backfill.Cancelled {
			a.note("the records that it made stay")
		}
		return nil
	})
}

// withdraw takes back the load that a job has declared, in case that nobody who works
// on it does.
func (j *jobsOf) withdraw(ctx context.Context, id string) error {
	err := j.topic.Withdraw(ctx, "backfill-"+id)
	if errors.Is(err, filer.ErrNotFound) {
		return nil
	}
	return err
}

// resumeOptions of one call.
type resumeOptions struct {
	limitOptions
	set                     map[string]bool // of the limits, those that are given
	detach, force, progress bool
}

func (a *app) backfillResume() *cobra.Command {
	var o resumeOptions
	cmd := &cobra.Command{
		Use: "resume TOPIC ID", Short: "Go on with a job that was paused, stopped or interrupted", Args: usage(cobra.ExactArgs(2)),
		Long: `Lets a job be worked on that was paused, or that has stopped itself, and works on it
until it is done, from where it was. With --detach that is left to spillway run backfill.
Limits that are given replace those that the job has, also for whoever is at it.

While another run works on the job this ends with code 75. --force takes the job, and
the other run ends when it sees that; that both are at it for a moment harms nothing.

Exit codes are those of spillway backfill run.`,
		Example: "  spillway backfill resume orders 3k9xq0v7m2ab\n" +
			"  spillway backfill resume orders 3k9xq0v7m2ab --max-rejects 20% --rate-rows 50000 --detach",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.set = map[string]bool{}
			for _, name := range []string{"rate-rows", "rate-bytes", "max-rejects"} {
				o.set[name] = cmd.Flags().Changed(name)
			}
			limits, err := o.limits()
			if err == nil && o.detach && o.force {
				err = errors.New("--force is for working on the job here, --detach for not doing so")
			}
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.jobCommand(cmd, args[0], func(ctx context.Context, j *jobsOf) error { return a.resumeJob(ctx, j, args[1], limits, o) })
		},
	}
	f := cmd.Flags()
	o.limitOptions.flags(f, "any")
	for _, name := range []string{"rate-rows", "rate-bytes", "max-rejects"} {
		limit := f.Lookup(name)
		limit.Usage += " (default: as it is)"
	}
	f.BoolVar(&o.detach, "detach", false, "leave the work to spillway run backfill")
	f.BoolVar(&o.force, "force", false, "take the job although another run works on it")
	f.BoolVar(&o.progress, "progress", false, "draw a progress bar even if standard error is no terminal")
	return cmd
}

// reopen resumes a job under other limits.
func (o resumeOptions) reopen(s *backfill.State, l backfill.Limits) error {
	if o.set["rate-rows"] {
		s.Limits.Rows = l.Rows
	}
	if o.set["rate-bytes"] {
		s.Limits.Bytes = l.Bytes
	}
	if o.set["max-rejects"] {
		s.Limits.MaxRejects = l.MaxRejects
	}
	return s.Resume()
}

func (a *app) resumeJob(ctx context.Context, j *jobsOf, id string, l backfill.Limits, o resumeOptions) error {
	reopen := func() (backfill.State, error) {
		return j.Update(ctx, id, func(s *backfill.State) error { return o.reopen(s, l) })
	}
	if o.detach {
		return a.leaveResumed(ctx, j, id, reopen)
	}
	w, err := a.newWork(ctx, j)
	if err != nil {
		return err
	}
	defer w.close()
	if _, err := reopen(); err != nil {
		return err
	}
	return w.run(ctx, functions.JobOptions{Topic: j.topic.Name, ID: id, Force: o.force}, o.progress)
}

// leaveResumed reopens a job, and leaves the work to others.
func (a *app) leaveResumed(ctx context.Context, j *jobsOf, id string, reopen func() (backfill.State, error)) error {
	nc, err := a.connectNATS()
	if err != nil {
		return err
	}
	defer nc.Close()
	s, err := reopen()
	if err != nil {
		return err
	}
	if s.Job.Host != "" {
		a.note("its objects are files of %s: only a run there can read them", s.Job.Host)
	}
	a.call(ctx, nc, j.topic.Name)
	if a.cfg.JSON {
		return a.json(jobView{Topic: j.topic.Name, ID: id, State: s})
	}
	return a.printf("job %s is %s\n", id, s.Phase)
}
