package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/rows"
)

func (a *app) backfillSchedule() *cobra.Command {
	cmd := &cobra.Command{
		Use: "schedule", Short: "Make backfill jobs by the clock", Args: usage(cobra.NoArgs), RunE: group,
		Long: `A schedule makes a backfill job by the clock: of the objects below a prefix that no
job of the schedule took before, by key, version and ETag. The next job is not made
before the last one is done or cancelled. spillway run backfill does all this; times
that pass while none runs are caught up on with one job.`,
		Example: "  spillway backfill schedule create orders nightly s3://exports/orders/ --cron '30 2 * * *' --cron-zone Europe/Berlin\n" +
			"  spillway backfill schedule list",
	}
	cmd.AddCommand(
		a.scheduleCreate(), a.scheduleList(), a.scheduleDescribe(), a.schedulePause(), a.scheduleResume(), a.scheduleDelete(), a.scheduleRun(),
	)
	return cmd
}

func (a *app) scheduleCreate() *cobra.Command {
	var o backfillOptions
	var cron, zone string
	cmd := &cobra.Command{
		Use: "create TOPIC NAME s3://BUCKET/PREFIX --cron CRON", Short: "Create a schedule", Args: usage(cobra.ExactArgs(3)),
		Long: `Creates a schedule. Its first job takes all objects below the prefix, and comes at the
first time that the cron names: minute, hour, day of month, month, day of week, or
@hourly, @daily, @weekly, @monthly, @yearly, on the clocks of --cron-zone. All other
options are as those of spillway backfill run, for each of its jobs.

Objects whose format neither their names nor --format tell are left out, and counted.`,
		Example: "  spillway backfill schedule create orders nightly s3://exports/orders/ --cron '30 2 * * *' --cron-zone Europe/Berlin --key customer\n" +
			"  spillway backfill schedule create clicks hourly s3://logs/clicks/ --cron @hourly --include '*.json.gz' --time /ts",
		RunE: func(cmd *cobra.Command, args []string) error {
			s := backfill.NewSchedule(args[1], time.Now())
			s.Cron, s.Zone = cron, zone
			err := o.endpointOr(a.cfg.S3, cmd.Flags().Changed("endpoint"))
			var wrong error
			s.Spec, wrong = o.spec(args[2])
			if err = errors.Join(err, wrong, backfill.CheckScheduleName(s.Name)); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.scheduleCommand(cmd, args[0], func(ctx context.Context, c *backfill.Schedules) error {
				if err := c.Create(ctx, s); err != nil {
					return err
				}
				return a.showSchedule(args[0], s, "created")
			})
		},
	}
	f := cmd.Flags()
	o.flags(f)
	o.endpointFlag(f)
	f.StringVar(&cron, "cron", "", "when; needed")
	f.StringVar(&zone, "cron-zone", "UTC", "time zone of the cron, such as Europe/Berlin")
	return cmd
}

// spec says what the jobs of a schedule are about.
func (o backfillOptions) spec(origin string) (backfill.Spec, error) {
	s := backfill.Spec{Origin: origin, Endpoint: o.endpoint, Filter: o.filter, Parallel: o.parallel}
	var errs [4]error
	s.Read, errs[0] = o.read()
	as, err := o.as()
	errs[1] = err
	s.Read.Format, s.Read.Compression = as.Format, as.Compression
	s.Limits, errs[2] = o.limits.limits()
	if _, _, ok := cutPrefix(origin); !ok {
		errs[3] = fmt.Errorf("%.200q: want s3://bucket/prefix", origin)
	}
	return s, errors.Join(errs[:]...)
}

// scheduleCommand runs a command about a topic's schedules, which needs the filer alone.
func (a *app) scheduleCommand(cmd *cobra.Command, name string, do func(context.Context, *backfill.Schedules) error) error {
	return a.jobCommand(cmd, name, func(ctx context.Context, j *jobsOf) error {
		return do(ctx, backfill.SchedulesOf(j.store, j.topic))
	})
}

// scheduleView is a schedule as programs get it.
type scheduleView struct {
	Topic string     `json:"topic"`
	Next  *time.Time `json:"next"` // nil: it is paused
	Fault string     `json:"fault,omitempty"`
	backfill.Schedule
}

func viewSchedule(topic string, s backfill.Schedule) scheduleView {
	return scheduleView{Topic: topic, Next: timeOrNil(s.Upcoming(time.Now())), Schedule: s}
}

// showSchedule shows what has become of a schedule.
func (a *app) showSchedule(topic string, s backfill.Schedule, what string) error {
	v := viewSchedule(topic, s)
	if a.cfg.JSON {
		return a.json(v)
	}
	return a.printf("%s schedule %s of topic %s: %s\n", what, s.Name, topic, v.nextText())
}

func (v scheduleView) nextText() string {
	switch {
	case v.Fault != "":
		return v.Fault
	case v.Next == nil:
		return "paused"
	}
	return "next at " + v.Next.Format(time.RFC3339)
}

func (a *app) scheduleList() *cobra.Command {
	return &cobra.Command{
		Use: "list [TOPIC]", Short: "List schedules", Args: usage(cobra.MaximumNArgs(1)),
		Long: `Lists the schedules of a topic, or of all topics: when the next job comes, and what
the last one did.`,
		Example: "  spillway backfill schedule list\n  spillway backfill schedule list orders --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			views := []scheduleView{}
			err := a.eachTopic(cmd, args, func(ctx context.Context, j *jobsOf) error {
				for l, err := range backfill.SchedulesOf(j.store, j.topic).List(ctx) {
					if err != nil {
						return err
					}
					if l.Err != nil {
						views = append(views, scheduleView{Topic: j.topic.Name, Fault: l.Err.Error(), Schedule: l.Schedule})
						continue
					}
					views = append(views, viewSchedule(j.topic.Name, l.Schedule))
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.showSchedules(views)
		},
	}
}

func (a *app) showSchedules(views []scheduleView) error {
	if a.cfg.JSON {
		return a.json(views)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tNAME\tCRON\tNEXT\tJOBS\tNOW\tORIGIN")
	for _, v := range views {
		fmt.Fprintf(w, "%s\t%s\t%s %s\t%s\t%d\t%s\t%s\n", v.Topic, v.Name, v.Cron, v.Zone, v.nextText(), v.Runs, v.now(), v.Spec.Origin)
	}
	return w.Flush()
}

// now says what a schedule is at.
func (v scheduleView) now() string {
	switch {
	case v.Running != nil && v.Running.Fault != "":
		return "waits: " + v.Running.Fault
	case v.Running != nil && v.Running.Job != "":
		return "job " + v.Running.Job
	case v.Running != nil:
		return "making a job"
	case !v.Asked.IsZero():
		return "asked for"
	}
	return "-"
}

func (a *app) scheduleDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC NAME", Short: "Show a schedule", Args: usage(cobra.ExactArgs(2)),
		Long: `Shows when a schedule makes its next job, what its jobs are about, which job is under
way, and what the last one did.`,
		Example: "  spillway backfill schedule describe orders nightly\n  spillway backfill schedule describe orders nightly --json | jq .last",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.scheduleCommand(cmd, args[0], func(ctx context.Context, c *backfill.Schedules) error {
				s, err := c.Load(ctx, args[1])
				if err != nil {
					return err
				}
				v := viewSchedule(args[0], s)
				if a.cfg.JSON {
					return a.json(v)
				}
				return a.describeSchedule(v)
			})
		},
	}
}

func (a *app) describeSchedule(v scheduleView) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("schedule\t%s of topic %s", v.Name, v.Topic)
	row("cron\t%s, on the clocks of %s", v.Cron, v.Zone)
	row("next\t%s", strings.TrimPrefix(v.nextText(), "next at "))
	row("objects\t%s", v.Spec.Origin)
	row("format\t%s", formatText(v.Spec.Read))
	row("limits\t%s", limitsText(v.Spec.Limits))
	row("jobs\t%d", v.Runs)
	row("now\t%s", v.now())
	if r := v.Running; r != nil {
		row("\t%s", runText(*r))
	}
	if l := v.Last; l != nil {
		row("last\t%s", runText(l.Run))
		row("\t%s", resultText(*l))
	}
	return w.Flush()
}

func formatText(r backfill.Read) string {
	if r.Format == "" {
		return "as the names say"
	}
	if r.Compression == rows.None {
		return string(r.Format)
	}
	return string(r.Format) + ", " + string(r.Compression)
}

// runText says why a run is there, and what of it is odd.
func runText(r backfill.Run) string {
	text := "asked for"
	switch {
	case !r.Slot.IsZero():
		text = "of " + r.Slot.Format(time.RFC3339)
	case r.Rest:
		text = "of what the one before could not take"
	}
	text += ", begun " + r.Since.Format(time.RFC3339)
	if r.Missed > 0 {
		text += fmt.Sprintf(", %d were missed", r.Missed)
	}
	if r.Unfit > 0 {
		text += fmt.Sprintf(", %d objects cannot be taken, such as %s", r.Unfit, r.Example)
	}
	return text
}

func resultText(l backfill.Result) string {
	if l.Phase == "" {
		return "there was nothing new"
	}
	return fmt.Sprintf("job %s is %s: %s, %s, %d rejected, %d objects failed", l.Job, l.Phase, count(int(l.Objects), "object"), count(int(l.Rows), "row"), l.Rejected, l.Failed)
}

func (a *app) schedulePause() *cobra.Command {
	return a.scheduleChange("pause", "paused", "Have a schedule make no more jobs by the clock",
		"Pauses a schedule. A job that it made goes on; pause that by itself. What is new is\ntaken by the first job after the schedule is resumed.",
		func(s *backfill.Schedule) { s.Pause() })
}

func (a *app) scheduleResume() *cobra.Command {
	return a.scheduleChange("resume", "resumed", "Have a schedule make jobs again",
		"Resumes a schedule that was paused. Times that have passed meanwhile are not caught up\non: the next job takes what is new.",
		func(s *backfill.Schedule) { s.Resume(time.Now()) })
}

// scheduleChange is a command that changes a schedule.
func (a *app) scheduleChange(verb, past, short, long string, change func(*backfill.Schedule)) *cobra.Command {
	return &cobra.Command{
		Use: verb + " TOPIC NAME", Short: short, Long: long, Args: usage(cobra.ExactArgs(2)),
		Example: "  spillway backfill schedule " + verb + " orders nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.scheduleCommand(cmd, args[0], func(ctx context.Context, c *backfill.Schedules) error {
				s, err := c.Update(ctx, args[1], change)
				if err != nil {
					return err
				}
				return a.showSchedule(args[0], s, past)
			})
		},
	}
}

func (a *app) scheduleDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete TOPIC NAME", Short: "Delete a schedule", Args: usage(cobra.ExactArgs(2)),
		Long: `Deletes a schedule, and what it knew of the objects that its jobs took: a schedule
that is made again under this name takes all objects again. Its jobs stay, also one
that is not done.`,
		Example: "  spillway backfill schedule delete orders nightly",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.scheduleCommand(cmd, args[0], func(ctx context.Context, c *backfill.Schedules) error {
				s, err := c.Delete(ctx, args[1])
				if err != nil {
					return err
				}
				if a.cfg.JSON {
					return a.json(map[string]string{"deleted": args[1], "topic": args[0]})
				}
				if err := a.printf("deleted schedule %s of topic %s\n", args[1], args[0]); err != nil {
					return err
				}
				if s.Running != nil && s.Running.Job != "" {
					a.note("its job %s stays: `spillway backfill cancel %s %s` gives it up", s.Running.Job, args[0], s.Running.Job)
				}
				return nil
			})
		},
	}
}
