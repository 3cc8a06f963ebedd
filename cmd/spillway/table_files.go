package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// fileView is a data file.
type fileView struct {
	URL     string          `json:"url"`
	Segment topic.SegmentID `json:"segment"` // empty: of somebody else
	First   *uint64         `json:"first"`   // offsets; null: not known
	Last    *uint64         `json:"last"`
	Rows    int64           `json:"rows"`
	Size    int64           `json:"size"`
	From    *time.Time      `json:"from"` // append times; null: not known
	To      *time.Time      `json:"to"`
}

// filesView is what `table files --json` prints.
type filesView struct {
	Topic string     `json:"topic"`
	Of    string     `json:"of"` // "table" or "manifests"
	Table string     `json:"table,omitempty"`
	Rows  int64      `json:"rows"`
	Bytes int64      `json:"bytes"`
	Files []fileView `json:"files"`
}

func (a *app) tableFiles() *cobra.Command {
	var manifests, sql bool
	cmd := &cobra.Command{
		Use: "files TOPIC", Short: "List the data files of a topic's table", Args: usage(cobra.ExactArgs(1)),
		Long: `Lists the data files that the current snapshot of the topic's table names, with the
offsets and append times of their rows. Files of others, such as those of a rewrite by
an engine, have no segment.

Without a catalog, and with --manifests, it lists what the manifests of the compacted
segments name: the files of the log, whether a table has them or not. These, and not
whatever lies in the folder, are what to query: a crash can leave others there for a
while.

--sql prints a read_parquet of all of them, for DuckDB.`,
		Example: "  spillway table files orders\n  spillway table files orders --manifests --json | jq -r '.files[].url'\n  spillway table files orders --sql",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(cmd, args[0], false, func(ctx context.Context, l *looking) error {
				v, err := l.files(ctx, manifests)
				switch {
				case err != nil:
					return err
				case sql && !a.cfg.JSON:
					return a.printf("%s\n", readParquet(v.Files))
				case a.cfg.JSON:
					return a.json(v)
				}
				return l.showFiles(v)
			})
		},
	}
	cmd.Flags().BoolVar(&manifests, "manifests", false, "what the manifests name, whatever the table has")
	cmd.Flags().BoolVar(&sql, "sql", false, "print a read_parquet of the files")
	return cmd
}

// files lists the files of the table, or of the manifests.
func (l *looking) files(ctx context.Context, manifests bool) (filesView, error) {
	v := filesView{Topic: l.topic.Name, Of: "manifests", Files: []fileView{}}
	add := func(f fileView) {
		v.Rows, v.Bytes, v.Files = v.Rows+f.Rows, v.Bytes+f.Size, append(v.Files, f)
	}
	if l.tables == nil || manifests {
		return v, l.manifests(ctx, func(s *segment.Segment, m segment.Manifest) error {
			for _, f := range m.Files {
				add(fileView{s.DataURL(f.Name), s.ID, &f.First, &f.Last, int64(f.Rows), f.Size, timeOrNull(f.From), timeOrNull(f.To)})
			}
			return nil
		})
	}
	v.Of = "table"
	if l.table == nil {
		return v, nil
	}
	v.Table = l.table.Name()
	for f, err := range l.table.Files(ctx) {
		if err != nil {
			return v, err
		}
		add(fileOfTable(f))
	}
	return v, nil
}

func fileOfTable(f table.File) fileView {
	v := fileView{URL: f.URL, Segment: f.Segment, Rows: f.Rows, Size: f.Size, From: timeOrNull(f.From), To: timeOrNull(f.To)}
	if f.First >= 0 && f.Last >= 0 {
		first, last := uint64(f.First), uint64(f.Last)
		v.First, v.Last = &first, &last
	}
	return v
}

func (l *looking) showFiles(v filesView) error {
	w := tabwriter.NewWriter(l.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SEGMENT\tFIRST\tLAST\tROWS\tSIZE\tFROM\tTO\tFILE")
	for _, f := range v.Files {
		name := "-"
		if f.Segment != "" {
			name = inspect.Short(f.Segment)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, offsetText(f.First), offsetText(f.Last),
			humanize.Comma(f.Rows), humanize.Bytes(uint64(max(f.Size, 0))), clock(f.From), clock(f.To), f.URL)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	where := "table " + v.Table
	switch {
	case v.Of == "manifests" && l.tables == nil:
		where = "the manifests, since no catalog is set"
	case v.Of == "manifests":
		where = "the manifests"
	case v.Table == "":
		where = "no table: the topic has none yet"
	}
	return l.printf("%s in %s of %s, of %s\n", count(int(v.Rows), "row"), count(len(v.Files), "file"), humanize.Bytes(uint64(max(v.Bytes, 0))), where)
}

func offsetText(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// readParquet is SQL for DuckDB that reads the files.
func readParquet(files []fileView) string {
	if len(files) == 0 {
		return "-- no files yet"
	}
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = "'" + strings.ReplaceAll(f.URL, "'", "''") + "'"
	}
	return "SELECT * FROM read_parquet([" + strings.Join(names, ",\n  ") + "])"
}
