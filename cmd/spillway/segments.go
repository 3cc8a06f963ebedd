package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/topic"
)

// segmentsOptions of one call.
type segmentsOptions struct {
	all, sealed, exact bool
	window             time.Duration

	tree, ascii bool
	width       int
	edits       int
}

func (a *app) segments() *cobra.Command {
	var o segmentsOptions
	cmd := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "Show a topic's segments, or draw how they came about",
		Long: `Lists the live segments of a topic: the slots of the key space that each owns, the
epoch that made it, its parents, what it holds and what it takes in. A segment is
"live", "sealing" (an edit that replaces it is under way) or "sealed".

Records, chunks and the times of the first and last record are exact, as of when
each segment was looked at. BYTES is the size of records before compression; a ~
marks an estimate from the mean record of the last 8 chunks, and --exact reads the
attributes of every chunk instead. Rates are over --window up to now, or since the
segment was made: records to the chunk, bytes estimated like BYTES. OLDEST is the
offset of the first record that is kept, where older ones were trimmed.

--tree draws the history: the key space from left to right, time downwards. A line
across is a split, a merge or a roll; columns that it does not touch flow on. A
segment is named by the epoch that made it and its number, "4-1".`,
		Example: "  spillway segments orders\n  spillway segments orders --all --json\n  spillway segments orders --tree --edits 20",
		Args:    usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return &functions.UsageError{Err: err}
			}
			store, done, err := a.filer(cmd.Context())
			if err != nil {
				return err
			}
			defer done()
			t, err := inspect.Open(cmd.Context(), store, args[0])
			if err != nil {
				return err
			}
			if o.tree {
				return a.drawSegments(cmd.Context(), t, o)
			}
			return a.listSegments(cmd.Context(), t, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "sealed segments too")
	f.BoolVar(&o.sealed, "sealed", false, "only sealed segments")
	f.BoolVar(&o.exact, "exact", false, "read the attributes of every chunk, so that bytes are exact")
	f.DurationVar(&o.window, "window", time.Minute, "how far rates look back")
	f.BoolVar(&o.tree, "tree", false, "draw the history of the layout")
	f.BoolVar(&o.ascii, "ascii", false, "with --tree: no box drawing characters")
	f.IntVar(&o.width, "width", 64, "with --tree: columns that the key space takes")
	f.IntVar(&o.edits, "edits", 40, "with --tree: draw only so many of the last edits, 0 for all")
	return cmd
}

func (o segmentsOptions) check() error {
	switch {
	case o.all && o.sealed:
		return errors.New("--all and --sealed exclude each other")
	case o.tree && (o.all || o.sealed || o.exact):
		return errors.New("--tree draws all segments; it does not go with --all, --sealed or --exact")
	case o.window < time.Second:
		return fmt.Errorf("--window %s: want a second or more", o.window)
	case o.width < inspect.MinWidth || o.width > inspect.MaxWidth:
		return fmt.Errorf("--width %d: want %d to %d", o.width, inspect.MinWidth, inspect.MaxWidth)
	case o.edits < 0:
		return fmt.Errorf("--edits %d: want 0 or more", o.edits)
	}
	return nil
}

func (a *app) drawSegments(ctx context.Context, t *inspect.Topic, o segmentsOptions) error {
	layouts, err := t.Layouts(ctx)
	if err != nil {
		return err
	}
	if a.cfg.JSON {
		return a.json(layouts)
	}
	return a.printf("%s", inspect.River(layouts, inspect.Drawing{Width: o.width, ASCII: o.ascii, Edits: o.edits}))
}

// segmentList is what `segments --json` prints.
type segmentList struct {
	Topic    string            `json:"topic"`
	Epoch    uint64            `json:"epoch"`
	Pending  *topic.Edit       `json:"pending"` // the edit that is under way
	Window   topic.Duration    `json:"window"`
	Segments []inspect.Segment `json:"segments"`
}

func (a *app) listSegments(ctx context.Context, t *inspect.Topic, o segmentsOptions) error {
	r, err := t.Segments(ctx, inspect.Options{Live: !o.sealed, Sealed: o.all || o.sealed, Exact: o.exact, Window: o.window, Now: time.Now()})
	if err != nil {
		return err
	}
	list := segmentList{t.Name, r.Layout.Epoch, pendingEdit(r.Layout), topic.Duration(o.window), r.Segments}
	if list.Segments == nil {
		list.Segments = []inspect.Segment{}
	}
	if a.cfg.JSON {
		return a.json(list)
	}
	if err := a.showSegments(list.Segments); err != nil {
		return err
	}
	return a.printf("%s\n", summary(r))
}

func pendingEdit(l topic.Layout) *topic.Edit {
	if !l.Pending {
		return nil
	}
	return &l.Edit
}

// summary is the line below the table.
func summary(r inspect.Report) string {
	var records uint64
	for _, s := range r.Segments {
		records += s.Records
	}
	text := fmt.Sprintf("epoch %d: %d live segments; %s records here", r.Layout.Epoch, len(r.Layout.Live), humanize.Comma(int64(records)))
	if r.Layout.Pending {
		text += "; " + underWay(r.Layout)
	}
	return text
}

// underWay tells of the edit of an intent.
func underWay(l topic.Layout) string {
	return fmt.Sprintf("a %s of %s is under way since %s", l.Edit.Kind, shorts(l.Edit.Parents), l.At.UTC().Format(time.RFC3339))
}

func (a *app) showSegments(list []inspect.Segment) error {
	trimmed := false
	for _, s := range list {
		trimmed = trimmed || s.Oldest > 0
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if !trimmed {
			cells = append(cells[:7:7], cells[8:]...)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("SEGMENT", "SLOTS", "SHARE", "EPOCH", "PARENTS", "STATE", "RECORDS", "OLDEST", "BYTES", "CHUNKS", "FIRST", "LAST", "RECORDS/S", "BYTES/S")
	for _, s := range list {
		row(string(s.ID), s.Range.String(), fmt.Sprintf("%.2f%%", 100*s.Share()), fmt.Sprint(s.Epoch), shorts(s.Parents), string(s.State),
			fmt.Sprint(s.Records), fmt.Sprint(s.Oldest), estimate(s.Bytes, s.Exact), fmt.Sprint(s.Chunks), clock(s.First), clock(s.Last),
			fmt.Sprintf("%.1f", s.RecordRate), humanize.IBytes(uint64(s.ByteRate)))
	}
	return w.Flush()
}

// estimate marks a size that is not exact.
func estimate(bytes uint64, exact bool) string {
	if exact {
		return humanize.IBytes(bytes)
	}
	return "~" + humanize.IBytes(bytes)
}

func clock(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func shorts(ids []topic.SegmentID) string {
	if len(ids) == 0 {
		return "-"
	}
	const most = 4
	names := make([]string, 0, most+1)
	for i, id := range ids {
		if i == most {
			names = append(names, fmt.Sprintf("%d more", len(ids)-most))
			break
		}
		names = append(names, inspect.Short(id))
	}
	return strings.Join(names, ",")
}
