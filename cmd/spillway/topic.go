package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func (a *app) topic() *cobra.Command {
	cmd := &cobra.Command{Use: "topic", Short: "Create, list, describe and delete topics", Args: usage(cobra.NoArgs), RunE: group}
	cmd.AddCommand(a.topicCreate(), a.topicList(), a.topicDescribe(), a.topicDelete())
	return cmd
}

func (a *app) topicCreate() *cobra.Command {
	var key string
	var age time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic",
		Long: `Creates a topic. Its partition key says which records keep their order and lie
together: "header" takes the key that a record is published with, "json:/pointer"
takes it from the record's value, "none" spreads records evenly.

The flush age is how long a record may wait before it is written: longer makes
fewer, larger files. Publishers that ask for "stored" do not wait for it.`,
		Example: "  spillway topic create orders --key json:/customer/id\n  spillway topic create clicks --key none --flush-age 10s",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := topic.ParseKey(key)
			if err != nil {
				return &functions.UsageError{Err: err}
			}
			def := topic.Definition{Name: args[0], Key: k, FlushAge: topic.Duration(age), Lanes: lane.Default}
			if err := def.Validate(); err != nil {
				return &functions.UsageError{Err: err}
			}
			if def.Name == topic.Unrouted {
				return &functions.UsageError{Err: fmt.Errorf("topic %q is the system's own: it takes messages for topics that do not exist", def.Name)}
			}
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			if err := selfCheck(cmd.Context(), store); err != nil {
				return err
			}
			t, err := store.CreateTopic(cmd.Context(), def, 1, time.Now())
			if err != nil {
				return explain(err)
			}
			if a.cfg.JSON {
				return a.json(t.Definition)
			}
			return a.printf("created topic %s (key %s, flush age %s)\n", t.Name, t.Key, time.Duration(t.FlushAge))
		},
	}
	cmd.Flags().StringVar(&key, "key", "header", "partition key: header, none or json:/pointer")
	cmd.Flags().DurationVar(&age, "flush-age", topic.DefaultFlushAge, "how long a record may wait for its flush")
	return cmd
}

func (a *app) topicList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List topics", Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			defs, err := store.Topics(cmd.Context())
			if err != nil {
				return explain(err)
			}
			if a.cfg.JSON {
				if defs == nil {
					defs = []topic.Definition{}
				}
				return a.json(defs)
			}
			w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "NAME\tSTATE\tKEY\tFLUSH AGE\tLANES\tCREATED")
			for _, d := range defs {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, d.State, d.Key, time.Duration(d.FlushAge), d.Lanes, d.Created.Format(time.RFC3339))
			}
			return w.Flush()
		},
	}
}

// description is what `topic describe` shows.
type description struct {
	topic.Definition
	Epoch    uint64           `json:"epoch"`
	Records  uint64           `json:"records"`
	Bytes    uint64           `json:"bytes"` // of records, before compression
	Segments []segmentSummary `json:"segments"`
	Lane     *laneSummary     `json:"lane,omitempty"`
	Folder   string           `json:"folder"`
	S3       string           `json:"s3"`
}

type segmentSummary struct {
	ID      topic.SegmentID `json:"id"`
	Range   topic.Range     `json:"range"`
	Sealed  bool            `json:"sealed"`
	Records uint64          `json:"records"`
	Chunks  uint64          `json:"chunks"`
	Last    *time.Time      `json:"last,omitempty"`
}

type laneSummary struct {
	Lane       string `json:"lane"`
	Messages   uint64 `json:"messages"` // in the lane, committed ones that are kept too
	Bytes      int64  `json:"bytes"`
	MaxBytes   int64  `json:"max_bytes"`
	Checkpoint uint64 `json:"checkpoint"`
	Lag        uint64 `json:"lag"` // messages of all topics above the checkpoint
}

func (a *app) topicDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME", Short: "Show a topic's settings, segments and lane", Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer e.close()
			t, err := e.store.Topic(cmd.Context(), args[0])
			if err != nil {
				return explain(err)
			}
			d, err := a.describe(cmd.Context(), e, t)
			if err != nil {
				return explain(err)
			}
			if a.cfg.JSON {
				return a.json(d)
			}
			return a.showDescription(d)
		},
	}
}

func (a *app) describe(ctx context.Context, e *env, t *segment.Topic) (description, error) {
	d := description{Definition: t.Definition, Folder: "http://" + a.cfg.Filer + t.Dir() + "/", S3: "s3://" + t.Dir()[len("/buckets/"):] + "/"}
	layout, err := t.Layout(ctx)
	if err != nil {
		return d, err
	}
	d.Epoch = layout.Epoch
	segments, err := t.Segments(ctx)
	if err != nil {
		return d, err
	}
	for _, s := range segments {
		sum := segmentSummary{ID: s.ID, Range: s.Range}
		for c, err := range s.Chunks(ctx, 0) {
			if err != nil {
				return d, err
			}
			sum.Records, sum.Sealed, sum.Last = c.End(), c.Sealed, &c.Last
			sum.Chunks++
			d.Bytes += c.Bytes
		}
		d.Records += sum.Records
		d.Segments = append(d.Segments, sum)
	}
	d.Lane, err = a.laneOf(ctx, e, t.Lanes)
	return d, err
}

func (a *app) laneOf(ctx context.Context, e *env, group string) (*laneSummary, error) {
	id := lane.ID{Group: group}
	info, err := lane.Open(ctx, e.js, id)
	if errors.Is(err, lane.ErrNoLane) {
		return nil, nil // no worker has run yet
	}
	if err != nil {
		return nil, err
	}
	c, _, err := e.store.CheckpointFile(id.Source(info.Incarnation)).Load(ctx)
	if err != nil {
		return nil, err
	}
	l := &laneSummary{Lane: id.String(), Messages: info.Last + 1 - info.First, Bytes: info.Bytes, MaxBytes: info.MaxBytes, Checkpoint: c.Sequence}
	if info.Last > c.Sequence {
		l.Lag = info.Last - c.Sequence
	}
	return l, nil
}

func (a *app) showDescription(d description) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("topic\t%s (%s, created %s)", d.Name, d.State, d.Created.Format(time.RFC3339))
	row("partition key\t%s", d.Key)
	row("flush age\t%s", time.Duration(d.FlushAge))
	row("records\t%d (%s before compression)", d.Records, humanize.IBytes(d.Bytes))
	row("folder\t%s", d.Folder)
	row("\t%s", d.S3)
	if l := d.Lane; l != nil {
		row("lane\t%s: %d messages behind, holds %s of %s", l.Lane, l.Lag, humanize.IBytes(uint64(max(l.Bytes, 0))), humanize.IBytes(uint64(max(l.MaxBytes, 0))))
	} else {
		row("lane\tnone yet: run `spillway run ingest`")
	}
	row("\nSEGMENT\tSLOTS\tRECORDS\tCHUNKS\tSTATE\tLAST")
	for _, s := range d.Segments {
		state, last := "live", "-"
		if s.Sealed {
			state = "sealed"
		}
		if s.Last != nil {
			last = s.Last.Format(time.RFC3339)
		}
		row("%s\t%s\t%d\t%d\t%s\t%s", s.ID, s.Range, s.Records, s.Chunks, state, last)
	}
	return w.Flush()
}

func (a *app) topicDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete NAME --yes", Short: "Delete a topic and all its records", Args: usage(cobra.ExactArgs(1)),
		Long: `Deletes a topic with all its records and files, for good. Records that are still
on their way to it go to the system topic "unrouted", or with it. A deletion that
was interrupted is finished by calling it again.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return &functions.UsageError{Err: fmt.Errorf("this deletes all records of topic %q; say so with --yes", args[0])}
			}
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			if err := store.DeleteTopic(cmd.Context(), args[0], time.Now()); err != nil {
				return explain(err)
			}
			if a.cfg.JSON {
				return a.json(map[string]string{"deleted": args[0]})
			}
			return a.printf("deleted topic %s\n", args[0])
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}
