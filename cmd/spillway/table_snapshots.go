package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
)

// snapshotView is a state that the table had.
type snapshotView struct {
	ID         int64     `json:"id,string"` // as text: more than 53 bits
	Parent     int64     `json:"parent,string,omitempty"`
	At         time.Time `json:"at"`
	Operation  string    `json:"operation"`
	AddedRows  int64     `json:"added_rows"`
	AddedFiles int64     `json:"added_files"`
	Rows       int64     `json:"rows"` // -1: it does not say
	Files      int64     `json:"files"`
	Current    bool      `json:"current,omitempty"`
}

// snapshotsView is what `table snapshots --json` prints.
type snapshotsView struct {
	Topic     string         `json:"topic"`
	Table     string         `json:"table"`
	Snapshots []snapshotView `json:"snapshots"`
}

func (a *app) tableSnapshots() *cobra.Command {
	return &cobra.Command{
		Use: "snapshots TOPIC", Short: "List the snapshots of a topic's table", Args: usage(cobra.ExactArgs(1)),
		Long: `Lists the states that the table had and that can still be queried, oldest first: one
for each commit of the compactor, and of others. The compactor removes those beyond the
last 30 from the table, but for tagged ones; that deletes no data file.`,
		Example: "  spillway table snapshots orders\n  spillway table snapshots orders --json | jq '.snapshots[-1].rows'",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(cmd, args[0], true, func(ctx context.Context, l *looking) error {
				list, err := l.table.Snapshots(ctx)
				if err != nil {
					return err
				}
				v := snapshotsView{l.topic.Name, l.table.Name(), []snapshotView{}}
				for _, s := range list {
					v.Snapshots = append(v.Snapshots, snapshotView{s.ID, s.Parent, s.At.UTC(), s.Operation, s.AddedRows, s.AddedFiles, s.Rows, s.Files, s.Current})
				}
				if a.cfg.JSON {
					return a.json(v)
				}
				return a.showSnapshots(v.Snapshots)
			})
		},
	}
}

func (a *app) showSnapshots(list []snapshotView) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SNAPSHOT\tAT\tOPERATION\tADDED ROWS\tADDED FILES\tROWS\tFILES\t")
	for _, s := range list {
		current := ""
		if s.Current {
			current = "current"
		}
		rows, files := "-", "-" // it does not say
		if s.Rows >= 0 {
			rows, files = humanize.Comma(s.Rows), fmt.Sprint(s.Files)
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", s.ID, s.At.Format(time.RFC3339), s.Operation,
			humanize.Comma(s.AddedRows), s.AddedFiles, rows, files, current)
	}
	return w.Flush()
}

// orphanView is a file of the table's metadata that nothing names.
type orphanView struct {
	URL  string    `json:"url"`
	Size int64     `json:"size"`
	At   time.Time `json:"at"`
}

// orphansView is what `table orphans --json` prints.
type orphansView struct {
	Topic   string       `json:"topic"`
	Table   string       `json:"table"`
	Orphans []orphanView `json:"orphans"`
	Bytes   int64        `json:"bytes"`
	Swept   *int         `json:"swept,omitempty"`
}

func (a *app) tableOrphans() *cobra.Command {
	var sweep bool
	cmd := &cobra.Command{
		Use: "orphans TOPIC", Short: "List metadata files of a topic's table that nothing names", Args: usage(cobra.ExactArgs(1)),
		Long: `Lists the files of the table's metadata that no snapshot names any more: of commits
that lost a race or a reply, and of snapshots that were removed. Only those that are
older than 72 hours, and older than the current snapshot's commit, are orphans: a
younger one may be of a commit that is under way. --sweep deletes them, as the
compactor does from time to time.

Data files are not among them. Those that no manifest names the compactor deletes by
itself, as soon as the segment has its manifest.`,
		Example: "  spillway table orphans orders\n  spillway table orphans orders --sweep",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(cmd, args[0], true, func(ctx context.Context, l *looking) error { return l.orphans(ctx, sweep) })
		},
	}
	cmd.Flags().BoolVar(&sweep, "sweep", false, "delete them")
	return cmd
}

func (l *looking) orphans(ctx context.Context, sweep bool) error {
	list, err := l.table.Orphans(ctx)
	if err != nil {
		return err
	}
	v := orphansView{Topic: l.topic.Name, Table: l.table.Name(), Orphans: []orphanView{}}
	for _, o := range list {
		v.Orphans, v.Bytes = append(v.Orphans, orphanView{o.URL, o.Size, o.At.UTC()}), v.Bytes+o.Size
	}
	if sweep {
		n, err := l.table.Sweep(ctx)
		if err != nil {
			return err
		}
		v.Swept = &n
	}
	if l.cfg.JSON {
		return l.json(v)
	}
	for _, o := range v.Orphans {
		if err := l.printf("%s  %s  of %s\n", o.URL, humanize.Bytes(uint64(max(o.Size, 0))), o.At.Format(time.RFC3339)); err != nil {
			return err
		}
	}
	text := fmt.Sprintf("%s of %s", count(len(v.Orphans), "orphan"), humanize.Bytes(uint64(max(v.Bytes, 0))))
	if v.Swept != nil {
		text += fmt.Sprintf("; deleted %s", count(*v.Swept, "file"))
	}
	return l.printf("%s\n", text)
}
