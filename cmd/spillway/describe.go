package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// description is what `topic describe` shows.
type description struct {
	topic.Definition
	Epoch    uint64            `json:"epoch"`
	Pending  *topic.Edit       `json:"pending"` // the edit that is under way
	Live     int               `json:"live"`    // segments
	Sealed   int               `json:"sealed"`
	Records  uint64            `json:"records"` // kept, in all segments
	Bytes    uint64            `json:"bytes"`   // of records, before compression
	Segments []inspect.Segment `json:"segments"`

	RecordRate float64 `json:"records_per_second"` // over the last minute
	ByteRate   float64 `json:"bytes_per_second"`

	LaneProblem string    `json:"lane_problem,omitempty"`
	Outlooks    []outlook `json:"lane_group"`

	Folder string `json:"folder"`
	S3     string `json:"s3"`
}

func (a *app) topicDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME", Short: "Show a topic's settings, layout and lanes", Args: usage(cobra.ExactArgs(1)),
		Long: `Shows a topic's settings, where its files are, its layout, what it holds and takes
in, and the lanes of its group. "spillway segments" tells more about segments, and
"spillway verify" checks what is told here.

BYTES of records are before compression. Rates of the topic are what was committed
to it in the last minute. LAG is how many messages of a lane, of all
topics, are above its checkpoint. BUFFER is for how long the lane could take what
is published to it if workers committed nothing from now on: what is free of the
lane's size, divided by what came in between two looks a second apart (messages,
times the mean size of those that the lane holds). It is n/a when nothing came in.`,
		Example: "  spillway topic describe orders\n  spillway topic describe orders --json | jq '.lane_group[].lag'",
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			t, err := inspect.Open(cmd.Context(), e.store, args[0])
			if err != nil {
				return err
			}
			d, err := a.describe(cmd.Context(), e, t)
			if err != nil {
				return err
			}
			if a.cfg.JSON {
				return a.json(d)
			}
			return a.showDescription(d)
		},
	}
}

func (a *app) describe(ctx context.Context, e *env, t *inspect.Topic) (description, error) {
	d := description{Definition: t.Definition, Folder: a.fileURL(t.Dir()) + "/", S3: s3Name(t.Dir()) + "/"}
	var report inspect.Report
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() (err error) {
		report, err = t.Segments(ctx, inspect.Options{Live: true, Sealed: true, Window: time.Minute, Now: time.Now()})
		return err
	})
	work.Go(func() (err error) {
		d.Outlooks, d.LaneProblem, err = e.outlooks(ctx, t.Lanes)
		return err
	})
	if err := work.Wait(); err != nil {
		return d, err
	}
	d.Epoch, d.Pending, d.Live = report.Layout.Epoch, pendingEdit(report.Layout), len(report.Layout.Live)
	d.Segments, d.Sealed = report.Segments, len(report.Segments)-d.Live
	for _, s := range d.Segments {
		d.Records += s.Records
		d.Bytes += s.Bytes
		d.RecordRate += s.RecordRate
		d.ByteRate += s.ByteRate
	}
	return d, nil
}

// mostShown is how many live segments `topic describe` lists.
const mostShown = 20

func (a *app) showDescription(d description) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	rules := "as the filer's rules say"
	row("topic\t%s (%s, created %s)", d.Name, d.State, d.Created.Format(time.RFC3339))
	row("partition key\t%s", d.Key)
	row("flush age\t%s", time.Duration(d.FlushAge))
	row("storage\treplication %s, fsync %s", cmp.Or(d.Replication, rules), map[bool]string{true: "yes", false: rules}[d.Fsync])
	for i, line := range referenceLines(d.Definition) {
		row("%s\t%s", map[bool]string{true: "references"}[i == 0], line)
	}
	row("folder\t%s", d.Folder)
	row("\t%s", d.S3)
	row("layout\tepoch %d: %d live segments, %d sealed", d.Epoch, d.Live, d.Sealed)
	if p := d.Pending; p != nil {
		row("\ta %s of %s is under way", p.Kind, shorts(p.Parents))
	}
	row("records\t%d (%s before compression)", d.Records, humanize.IBytes(d.Bytes))
	row("rates\t%.1f records/s, %s/s", d.RecordRate, humanize.IBytes(uint64(d.ByteRate)))
	a.showOutlooks(w, d)
	row("\nSEGMENT\tSLOTS\tRECORDS\tCHUNKS\tSTATE\tLAST")
	shown := 0
	for _, s := range d.Segments {
		if s.State == inspect.StateSealed {
			continue
		}
		if shown++; shown > mostShown {
			row("… and %d more live segments: spillway segments %s", d.Live-mostShown, d.Name)
			break
		}
		row("%s\t%s\t%d\t%d\t%s\t%s", s.ID, s.Range, s.Records, s.Chunks, s.State, clock(s.Last))
	}
	return w.Flush()
}
