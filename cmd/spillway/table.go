package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/inspect"
	"github.com/spillway-mq/spillway/internal/segment"
)

func (a *app) table() *cobra.Command {
	cmd := &cobra.Command{
		Use: "table", Short: "Look at the Iceberg tables of topics", Args: usage(cobra.NoArgs), RunE: group,
		Long: `Looks at the Iceberg table that the compactor keeps of a topic, in the catalog that
--catalog names (with --warehouse, --namespace, and --catalog-credential if the S3 keys
are not the catalog's). The table names the data files of the topic's compacted
segments, each once; the files lie in the topic's own folder, and belong to the topic:
dropping the table deletes no record.

docs/RECIPES.md has how to query it, with DuckDB, Trino, Spark, ClickHouse and pyiceberg.`,
		Example: "  spillway table describe orders\n  spillway table files orders --json",
	}
	cmd.AddCommand(a.tableDescribe(), a.tableFiles(), a.tableSnapshots(), a.tableOrphans(), a.tableDrop())
	return cmd
}

// looking is a topic, and its table as far as there is one.
type looking struct {
	*compacting
	topic  *inspect.Topic
	tables *table.Tables // nil: no catalog is set
	table  *table.Table  // nil: the topic has none
}

// withTable looks at the table of a topic; with need, it must have one.
func (a *app) withTable(cmd *cobra.Command, name string, need bool, do func(context.Context, *looking) error) error {
	ctx := cmd.Context()
	return a.withCompacting(ctx, name, func(c *compacting, t *inspect.Topic) (err error) {
		l := &looking{compacting: c, topic: t, tables: c.deps.Tables}
		if l.tables != nil {
			l.table, err = l.tables.Find(ctx, table.Topic{Name: t.Name, Incarnation: t.Incarnation})
		}
		none := errors.Is(err, table.ErrNoTable)
		switch {
		case l.tables == nil && need:
			return errNoCatalog()
		case none && need:
			return &functions.UsageError{Err: fmt.Errorf("topic %q has no table yet; the compactor makes it with the first segment", t.Name)}
		case err != nil && !none:
			return explainCatalog(err)
		case none:
			l.table = nil
		}
		return explainCatalog(do(ctx, l))
	})
}

func errNoCatalog() error {
	return &functions.ConfigError{Err: errors.New("no catalog is set: give --catalog with the URL of an Iceberg REST catalog")}
}

func (a *app) tableDrop() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "drop TOPIC", Short: "Take a topic's table out of the catalog", Args: usage(cobra.ExactArgs(1)),
		Long: `Takes the table of a topic's name out of the catalog, whichever topic of that name it
was made for. It deletes no record and no data file: these belong to the topic, and if
there is one, the compactor makes a new table and commits all compacted segments to it.
Others' columns, tags and branches of the table are gone.

It is for a table that belongs to a topic that was deleted and made again, one whose
columns somebody has changed, or one that was rolled back.

Exit codes: 0 dropped, 2 there is no such table or --yes is missing, 75 the catalog is
not available, 78 no catalog is set, or it refuses.`,
		Example: "  spillway table drop orders --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return &functions.UsageError{Err: errors.New("this takes the table away from whoever queries it; give --yes")}
			}
			return a.dropTable(cmd.Context(), args[0])
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "really drop it")
	return cmd
}

// droppedView is what `table drop --json` prints.
type droppedView struct {
	Topic   string `json:"topic"`
	Dropped bool   `json:"dropped"`
}

func (a *app) dropTable(ctx context.Context, name string) error {
	store, done, err := a.filer(ctx)
	if err != nil {
		return err
	}
	defer done()
	a.quiet(store)
	tables, done, err := a.tables(ctx, store)
	if err != nil {
		return err
	}
	defer done()
	if tables == nil {
		return errNoCatalog()
	}
	_, err = tables.Find(ctx, table.Topic{Name: name})
	switch {
	case errors.Is(err, table.ErrNoTable):
		return &functions.UsageError{Err: fmt.Errorf("topic %q has no table", name)}
	case err != nil && !is[*table.ForeignError](err) && !is[*table.SchemaError](err): // those are what drop is for
		return explainCatalog(err)
	}
	if err := tables.Drop(ctx, name); err != nil {
		return explainCatalog(err)
	}
	if a.cfg.JSON {
		return a.json(droppedView{name, true})
	}
	return a.printf("dropped the table of topic %s; its records are where they were\n", name)
}

// manifests goes over the manifests of the topic's compacted segments, oldest first.
func (l *looking) manifests(ctx context.Context, do func(*segment.Segment, segment.Manifest) error) error {
	line, err := l.topic.Lineage(ctx)
	if err != nil {
		return err
	}
	for _, m := range line.Members {
		if len(m.Children) == 0 {
			continue
		}
		s, err := l.topic.Segment(ctx, m.ID)
		if err != nil {
			return err
		}
		manifest, err := s.Manifest(ctx)
		if errors.Is(err, filer.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if err := do(s, manifest); err != nil {
			return err
		}
	}
	return nil
}
