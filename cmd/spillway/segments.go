package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	all, sealed bool
	window      time.Duration

	tree, ascii bool
	width       int
	edits       int

	svg, policy string
}

const segmentsHelp = `Lists the live segments of a topic: the slots of the key space that each owns, the
epoch that made it, its parents, what it holds and what it takes in. A segment is
"live", "sealing" (an edit that replaces it is under way) or "sealed".

The numbers are exact, as of when each segment was looked at. BYTES is the size of
records before compression. FIRST and LAST are append times: when the lane took the
records in. Rates count what was committed to the segment within --window up to now,
by the workers' clocks, or since the segment was made if that is less. OLDEST is the
offset of the first record that is kept, where older ones were trimmed.

A sealed segment whose records are in data files is "compacted"; FILES and SIZE are
those of the data files. CHUNKS that are left of it go after a grace time.

--tree draws the history: the key space from left to right, time downwards. A line
across is a split, a merge or a roll; columns that it does not touch flow on. A
segment is named by the epoch that made it and its number, "4-1".

--svg draws the history into a file that any browser opens, "-" for standard output:
a river of segments that splits and joins, the key space from top to bottom, time
from left to right. Its colour is the load of each segment as a part of the target
that --policy sets; above it are the load of the topic and how many segments there
were, so that one sees whether capacity follows load. Load is what was committed, in
the chunks that are still there: what is grey is gone. All chunks' attributes are
read for it, which takes a while where there are very many.`

func (a *app) segments() *cobra.Command {
	var o segmentsOptions
	cmd := &cobra.Command{
		Use:   "segments TOPIC",
		Short: "Show a topic's segments, or draw how they came about",
		Long:  segmentsHelp,
		Example: "  spillway segments orders\n  spillway segments orders --all --json\n" +
			"  spillway segments orders --tree --edits 20\n  spillway segments orders --svg orders.svg",
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(a.cfg.JSON); err != nil {
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
			switch {
			case o.tree:
				return a.drawSegments(cmd.Context(), t, o)
			case o.svg != "":
				return a.segmentsSVG(cmd.Context(), t, o)
			}
			return a.listSegments(cmd.Context(), t, o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.all, "all", false, "sealed segments too")
	f.BoolVar(&o.sealed, "sealed", false, "only sealed segments")
	f.DurationVar(&o.window, "window", time.Minute, "how far rates look back")
	f.BoolVar(&o.tree, "tree", false, "draw the history of the layout")
	f.BoolVar(&o.ascii, "ascii", false, "with --tree: no box drawing characters")
	f.IntVar(&o.width, "width", 64, "with --tree: columns that the key space takes")
	f.IntVar(&o.edits, "edits", 40, "with --tree: draw only so many of the last edits, 0 for all")
	f.StringVar(&o.svg, "svg", "", "draw the history as an SVG into this file, - for standard output")
	f.StringVar(&o.policy, "policy", "", "with --svg: YAML file with the policy that sets the target, as in spillway plan")
	return cmd
}

func (o segmentsOptions) check(json bool) error {
	switch {
	case o.svg != "" && (o.tree || o.all || o.sealed):
		return errors.New("--svg draws all segments; it does not go with --tree, --all or --sealed")
	case o.svg == "-" && json:
		return errors.New("--svg - writes a picture to standard output; --json has no place there")
	case o.svg == "" && o.policy != "":
		return errors.New("--policy goes with --svg")
	case o.all && o.sealed:
		return errors.New("--all and --sealed exclude each other")
	case o.tree && (o.all || o.sealed):
		return errors.New("--tree draws all segments; it does not go with --all or --sealed")
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
	r, err := t.Segments(ctx, inspect.Options{Live: !o.sealed, Sealed: o.all || o.sealed, Window: o.window, Now: time.Now()})
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
	trimmed, compacted := false, false
	for _, s := range list {
		trimmed, compacted = trimmed || s.Oldest > 0, compacted || s.Data != nil
	}
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		if !compacted {
			cells = slices.Delete(cells, 10, 12)
		}
		if !trimmed {
			cells = slices.Delete(cells, 7, 8)
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	row("SEGMENT", "SLOTS", "SHARE", "EPOCH", "PARENTS", "STATE", "RECORDS", "OLDEST", "BYTES", "CHUNKS", "FILES", "SIZE", "FIRST", "LAST", "RECORDS/S", "BYTES/S")
	for _, s := range list {
		files, size := "-", "-"
		if s.Data != nil {
			files, size = fmt.Sprint(s.Data.Files), humanize.IBytes(uint64(s.Data.Bytes))
		}
		row(string(s.ID), s.Range.String(), fmt.Sprintf("%.2f%%", 100*s.Share()), fmt.Sprint(s.Epoch), shorts(s.Parents), shownState(s),
			fmt.Sprint(s.Records), fmt.Sprint(s.Oldest), humanize.IBytes(s.Bytes), fmt.Sprint(s.Chunks), files, size, clock(s.First), clock(s.Last),
			fmt.Sprintf("%.1f", s.RecordRate), humanize.IBytes(uint64(s.ByteRate)))
	}
	return w.Flush()
}

// shownState is a segment's state as people read it.
func shownState(s inspect.Segment) string {
	if s.Data != nil {
		return "compacted"
	}
	return string(s.State)
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
