package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/topic"
)

// tableView is what `table describe --json` prints.
type tableView struct {
	Topic       string    `json:"topic"`
	Incarnation string    `json:"incarnation"`
	Catalog     string    `json:"catalog,omitempty"`
	Warehouse   string    `json:"warehouse,omitempty"`
	Table       *tableHas `json:"table"` // null: no catalog is set, or the topic has no table yet
	Has         coverage  `json:"has"`
	SQL         string    `json:"sql"` // for DuckDB
}

// tableHas is what is known of the table itself.
type tableHas struct {
	Name       string            `json:"name"`
	UUID       string            `json:"uuid"`
	Location   string            `json:"location"`
	Snapshot   string            `json:"snapshot,omitempty"`
	At         *time.Time        `json:"at"` // of the snapshot
	Snapshots  int               `json:"snapshots"`
	Rows       int64             `json:"rows"`
	Files      int64             `json:"files"`
	Bytes      int64             `json:"bytes"`
	Columns    []columnView      `json:"columns"`
	Properties map[string]string `json:"properties"`
	// Watermark is which segments are in the table of which the log was not yet seen to
	// know.
	Watermark []topic.SegmentID `json:"watermark"`
}

// columnView is a column; its id is the same for ever.
type columnView struct {
	ID       int    `json:"id"`
	Name     string `json:"name"`
	Type     string `json:"type"`
	Required bool   `json:"required"`
}

// coverage is how much of a topic is where, in segments and records.
type coverage struct {
	InTable     part `json:"in_table"`
	Compacted   part `json:"compacted"` // has its data files, and is not in the table
	Sealed      part `json:"sealed"`    // is to be compacted
	Quarantined part `json:"quarantined"`
	Live        part `json:"live"` // still takes records
}

type part struct {
	Segments int    `json:"segments"`
	Records  uint64 `json:"records"`
	Bytes    uint64 `json:"bytes"`
}

func (p *part) add(c compactor.Candidate) {
	p.Segments, p.Records, p.Bytes = p.Segments+1, p.Records+c.Records, p.Bytes+c.Bytes
}

// coverageOf counts segments by where they are. Without a catalog none is in a table.
func coverageOf(list []compactor.Candidate, catalog bool) (v coverage) {
	for _, c := range list {
		switch {
		case c.State == compactor.Live:
			v.Live.add(c)
		case c.State == compactor.Quarantined:
			v.Quarantined.add(c)
		case c.State == compactor.Sealed:
			v.Sealed.add(c)
		case catalog && c.Do != compactor.Commit && (c.State == compactor.InTable || c.State == compactor.Trimmed):
			v.InTable.add(c)
		default:
			v.Compacted.add(c)
		}
	}
	return v
}

func (a *app) tableDescribe() *cobra.Command {
	return &cobra.Command{
		Use: "describe TOPIC", Short: "Show a topic's table, and how much of the topic is in it", Args: usage(cobra.ExactArgs(1)),
		Long: `Shows where the topic's Iceberg table is, what its current snapshot has, its columns,
and how much of the topic is in it: segments that are, that are compacted and not in
it, that are to be compacted, that are quarantined, and that still take records. The
last lines are SQL for DuckDB to copy; docs/RECIPES.md has the secrets that it needs,
and other engines.

The watermark is which segments are in the table of which the log was not yet seen to
know: a short list, whatever the size of the topic.

Without a catalog it shows how much of the topic has data files.`,
		Example: "  spillway table describe orders\n  spillway table describe orders --json | jq .has",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(cmd, args[0], false, func(ctx context.Context, l *looking) error {
				v, err := l.describe(ctx)
				if err != nil {
					return err
				}
				if a.cfg.JSON {
					return a.json(v)
				}
				return a.showTable(v)
			})
		},
	}
}

func (l *looking) describe(ctx context.Context) (tableView, error) {
	v := tableView{Topic: l.topic.Name, Incarnation: l.topic.Incarnation}
	if s, ok, _ := l.cfg.tableSettings(); ok {
		v.Catalog, v.Warehouse = s.URL, s.Warehouse
	}
	if l.table != nil {
		d, err := l.table.Describe(ctx)
		if err != nil {
			return v, err
		}
		v.Table = viewOf(d)
	}
	list, err := functions.NewCompactor(l.deps, functions.CompactOptions{}).Plan(ctx, l.topic.Name)
	if err != nil {
		return v, err
	}
	v.Has = coverageOf(list, l.tables != nil)
	v.SQL = v.duckDB()
	return v, nil
}

func viewOf(d table.Description) *tableHas {
	v := &tableHas{
		Name: d.Name, UUID: d.UUID, Location: d.Location, At: timeOrNull(d.At), Snapshots: d.Snapshots,
		Rows: d.Rows, Files: d.Files, Bytes: d.Bytes, Columns: []columnView{}, Properties: d.Properties, Watermark: d.Pending,
	}
	for _, c := range d.Columns {
		v.Columns = append(v.Columns, columnView{c.ID, c.Name, c.Type, c.Required})
	}
	if d.Snapshot != 0 {
		v.Snapshot = strconv.FormatInt(d.Snapshot, 10)
	}
	if v.Watermark == nil {
		v.Watermark = []topic.SegmentID{}
	}
	return v
}

// duckDB is SQL for DuckDB, with its extension for Iceberg.
func (v tableView) duckDB() string {
	if v.Table == nil {
		return ""
	}
	return fmt.Sprintf("ATTACH '%s' AS lake (TYPE iceberg, ENDPOINT '%s'); SELECT count(*) FROM lake.%s;", v.Warehouse, strings.TrimSuffix(v.Catalog, "/"), quotedName(v.Table.Name))
}

// quotedName is a table's name as SQL has it.
func quotedName(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = `"` + p + `"`
	}
	return strings.Join(parts, ".")
}

func (a *app) showTable(v tableView) error {
	w := tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	row := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	row("topic\t%s, incarnation %s", v.Topic, v.Incarnation)
	switch t := v.Table; {
	case v.Catalog == "":
		row("catalog\tnone is set: data files and manifests only")
	case t == nil:
		row("catalog\t%s, warehouse %s", v.Catalog, v.Warehouse)
		row("table\tnone yet: the compactor makes it with the first segment")
	default:
		row("catalog\t%s, warehouse %s", v.Catalog, v.Warehouse)
		t.show(row)
	}
	v.Has.show(row, v.Catalog != "")
	row("files\t`spillway table files %s` lists them", v.Topic)
	if v.SQL != "" {
		row("DuckDB\t%s", v.SQL)
	}
	return w.Flush()
}

func (t *tableHas) show(row func(string, ...any)) {
	row("table\t%s, uuid %s", t.Name, t.UUID)
	row("location\t%s", t.Location)
	if t.Snapshot == "" {
		row("snapshot\tnone: it is empty")
	} else {
		row("snapshot\t%s of %s; %s can be queried", t.Snapshot, clock(t.At), count(t.Snapshots, "snapshot"))
	}
	row("holds\t%s in %s of %s", count(int(t.Rows), "row"), count(int(t.Files), "file"), humanize.Bytes(uint64(max(t.Bytes, 0))))
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	row("columns\t%s", strings.Join(names, ", "))
	watermark := "no segment"
	if len(t.Watermark) > 0 {
		watermark = shorts(t.Watermark)
	}
	row("watermark\t%s", watermark)
}

func (c coverage) show(row func(string, ...any), catalog bool) {
	say := func(p part, what string) {
		if p.Segments > 0 {
			row("%s\t%s with %s of %s", what, count(p.Segments, "segment"), count(int(p.Records), "record"), humanize.Bytes(p.Bytes))
		}
	}
	say(c.InTable, "in the table")
	if catalog {
		say(c.Compacted, "not in it yet")
	} else {
		say(c.Compacted, "compacted")
	}
	say(c.Sealed, "to be compacted")
	say(c.Quarantined, "quarantined")
	say(c.Live, "takes records")
}
