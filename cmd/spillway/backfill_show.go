package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/segment"
)

// jobView is a job as programs get it.
type jobView struct {
	Topic  string                  `json:"topic"`
	ID     string                  `json:"id"`
	Read   *backfill.Read          `json:"read,omitempty"`
	State  backfill.State          `json:"state"`
	Done   *doneView               `json:"done,omitempty"` // of a list: only of jobs that are not at an end
	Fault  string                  `json:"fault,omitempty"`
	Failed []backfill.FailedObject `json:"failed,omitempty"`
}

// doneView is how far a job is.
type doneView struct {
	backfill.Summary
	TotalObjects uint64 `json:"total_objects"`
	TotalBytes   uint64 `json:"total_bytes"`
	BytesRead    uint64 `json:"bytes_read"` // about
}

// look reads a job with all that is known of it. That it is damaged is in the view.
func (j *jobsOf) look(ctx context.Context, id string) (v jobView, err error) {
	v = jobView{Topic: j.topic.Name, ID: id}
	if v.State, err = j.State(ctx, id); err != nil {
		return v, err
	}
	job, err := j.Load(ctx, id)
	var p backfill.Progress
	if err == nil {
		v.Read = &job.Read
		p, err = j.Progress(ctx, job)
	}
	switch {
	case err == nil:
		sum := p.Summary(time.Duration(v.State.Worked))
		v.Done, v.Failed = &doneView{sum, p.Total, p.Size, p.Read}, p.Failed
		if v.State.Phase == backfill.Cancelled && v.State.Summary == nil { // nobody worked on it
			v.State, err = j.Update(ctx, id, func(s *backfill.State) error { s.Summarise(p); return nil })
		}
		return v, err
	case errors.Is(err, backfill.ErrNoCheckpoint), errors.Is(err, backfill.ErrNoJob), is[*backfill.FrozenError](err):
		v.Fault = err.Error()
		return v, nil
	}
	return v, err
}

// progress says in a few words how far it is.
func (v jobView) progress() string {
	d := v.Done
	if d == nil && v.State.Summary != nil {
		d = &doneView{Summary: *v.State.Summary, TotalObjects: v.State.Job.Objects}
	}
	if d == nil {
		return v.Fault
	}
	text := fmt.Sprintf("%d/%d objects, %s", d.Objects, d.TotalObjects, count(int(d.Rows), "row"))
	if d.Rejected > 0 {
		text += fmt.Sprintf(", %s rejected", humanize.Comma(int64(d.Rejected)))
	}
	return text
}

func (a *app) backfillList() *cobra.Command {
	return &cobra.Command{
		Use: "list [TOPIC]", Short: "List backfill jobs", Args: usage(cobra.MaximumNArgs(1)),
		Long: `Lists the jobs of a topic, or of all topics, with what was done of them. Needs the
filer only. Jobs are kept for as long as their topic.`,
		Example: "  spillway backfill list\n  spillway backfill list orders --json | jq -r '.[] | select(.state.phase==\"open\").id'",
		RunE: func(cmd *cobra.Command, args []string) error {
			views := []jobView{}
			err := a.eachTopic(cmd, args, func(ctx context.Context, j *jobsOf) error {
				for l, err := range j.List(ctx) {
					if err != nil {
						return err
					}
					v, err := j.listed(ctx, l)
					if err != nil {
						return err
					}
					views = append(views, v)
				}
				return nil
			})
			if err != nil {
				return err
			}
			return a.showJobs(views)
		},
	}
}

// eachTopic does something with the topic of a call, or with all topics.
func (a *app) eachTopic(cmd *cobra.Command, args []string, do func(context.Context, *jobsOf) error) error {
	if len(args) > 0 {
		return a.jobCommand(cmd, args[0], do)
	}
	ctx := cmd.Context()
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	a.quiet(store)
	defs, err := store.Topics(ctx)
	if err != nil {
		return err
	}
	for _, def := range defs {
		t, err := store.Topic(ctx, def.Name)
		if errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting) {
			continue
		}
		if err == nil {
			err = do(ctx, &jobsOf{backfill.Of(store, t), store, t})
		}
		if err != nil {
			return explainBackfill(err)
		}
	}
	return nil
}

// listed adds to a job of a list how far it is. Of those that are at an end, that is in
// their states, and their files need not be read.
func (j *jobsOf) listed(ctx context.Context, l backfill.Listed) (jobView, error) {
	v := jobView{Topic: j.topic.Name, ID: l.ID, State: l.State}
	if l.Err != nil {
		v.Fault = l.Err.Error()
		return v, nil //nolint:nilerr // the view tells it
	}
	if l.State.Summary != nil {
		return v, nil
	}
	full, err := j.look(ctx, l.ID)
	v.Done, v.Fault = full.Done, full.Fault
	return v, err
}

func (a *app) showJobs(views []jobView) error {
	if a.cfg.JSON {
		return a.json(views)
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TOPIC\tID\tPHASE\tDONE\tCREATED\tORIGIN")
	for _, v := range views {
		if v.State.Phase == "" {
			fmt.Fprintf(w, "%s\t%s\tdamaged\t\t\t%s\n", v.Topic, v.ID, v.Fault)
			continue
		}
		h := v.State.Job
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", v.Topic, v.ID, phaseText(v.State, time.Now()), v.progress(), h.Created.Format(time.RFC3339), clipped(h.Origin, 60))
	}
	return w.Flush()
}

// phaseText is a phase, and of an open job whether somebody works on it.
func phaseText(s backfill.State, now time.Time) string {
	if s.Phase == backfill.Open && s.Runner != nil && now.Before(s.Runner.Until) {
		return "running"
	}
	return string(s.Phase)
}

func (a *app) backfillDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC ID", Short: "Show a backfill job", Args: usage(cobra.ExactArgs(2)),
		Long: `Shows what a job is about, whether it is worked on and by whom, how far it is, its
limits, the objects that could not be read to their ends with the reasons, and at which
object and row each of its sources is.`,
		Example: "  spillway backfill describe orders 3k9xq0v7m2ab\n  spillway backfill describe orders 3k9xq0v7m2ab --json | jq .done.rows",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.jobCommand(cmd, args[0], func(ctx context.Context, j *jobsOf) error {
				v, err := j.look(ctx, args[1])
				if err != nil {
					return err
				}
				if a.cfg.JSON {
					return a.json(v)
				}
				return a.showJob(v)
			})
		},
	}
}

func (a *app) showJob(v jobView) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	s, h := v.State, v.State.Job
	row("job\t%s of topic %s", v.ID, v.Topic)
	row("made\t%s by %s", h.Created.Format(time.RFC3339), h.By)
	row("objects\t%s of %s: %s", humanize.Comma(int64(h.Objects)), humanize.Bytes(h.Bytes), h.Origin)
	if h.Host != "" {
		row("host\t%s", h.Host)
	}
	row("phase\t%s", s.Phase)
	if s.Reason != "" {
		row("reason\t%s", s.Reason)
	}
	if r := s.Runner; r != nil {
		row("runner\t%s, since %s, last seen %s", r.Host, r.Since.Format(time.RFC3339), r.Seen.Format(time.RFC3339))
	}
	row("limits\t%s", limitsText(s.Limits))
	if v.Fault != "" {
		row("fault\t%s", v.Fault)
	}
	if v.Done != nil {
		row("done\t%s", summaryText(v.Done.Summary))
		row("\nSOURCE\tOBJECTS\tAT")
		for _, at := range v.Done.Sources {
			place := "its end"
			if !at.Done {
				place = at.At.String()
			}
			row("%s\t%d\t%s", at.Source, at.Objects, place)
		}
	}
	if len(v.Failed) > 0 {
		row("\nFAILED\tFROM ROW\tREASON")
		for _, f := range v.Failed {
			row("%s\t%d\t%s", f.Object, f.Row, f.Reason)
		}
	}
	return w.Flush()
}

func limitsText(l backfill.Limits) string {
	rows, bytes, rejects := "any number of rows", "any number of bytes", "any share of rejects"
	if l.Rows > 0 {
		rows = humanize.Comma(int64(l.Rows)) + " rows/s"
	}
	if l.Bytes > 0 {
		bytes = humanize.Bytes(l.Bytes) + "/s"
	}
	if l.MaxRejects != nil {
		rejects = shareText(*l.MaxRejects) + " of rejects"
	}
	return rows + ", " + bytes + ", " + rejects
}

// shareText is a share that is given in millionths.
func shareText(millionths uint32) string { return fmt.Sprintf("%g %%", float64(millionths)/10_000) }
