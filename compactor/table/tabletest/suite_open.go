package tabletest

import (
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/topic"
)

const racers = 8

func creatorsRace(t *testing.T, e *env) {
	tp := e.topic("race")
	tables := make([]*table.Table, racers)
	var g errgroup.Group
	for i := range tables {
		g.Go(func() (err error) {
			tables[i], err = e.tables().Open(t.Context(), tp)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, tb := range tables {
		if tb.UUID() != tables[0].UUID() || tb.Name() != "suite."+tp.Name {
			t.Errorf("%s has uuid %s, another one %s", tb.Name(), tb.UUID(), tables[0].UUID())
		}
	}
	want, err := icetable.ArrowSchemaToIceberg(parquet.ArrowSchema(), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	ice := e.iceberg(t, tables[0])
	if !ice.Schema().Equals(want) {
		t.Errorf("the table's schema is\n%s\nand not\n%s", ice.Schema(), want)
	}
	order := ice.SortOrder()
	if order.Len() != 2 || order.Field(0).SourceID() != 1 || order.Field(1).SourceID() != 2 {
		t.Errorf("the sort order is %s", order)
	}
	props := ice.Properties()
	for name, value := range map[string]string{
		"spillway.topic": tp.Name, "spillway.incarnation": tp.Incarnation, "gc.enabled": "false",
		"write.metadata.metrics.column.value": "none",
	} {
		if props[name] != value {
			t.Errorf("property %s is %q, want %q", name, props[name], value)
		}
	}
	if ice.CurrentSnapshot() != nil {
		t.Error("a new table has a snapshot")
	}
}

func names(t *testing.T, e *env) {
	for _, name := range []string{"0" + e.life, e.life + "-", e.life + "_-_", e.life + strings.Repeat("x", 100-len(e.life)), "aws" + e.life} {
		tp := table.Topic{Name: name, Incarnation: e.life}
		tb := e.open(t, tp)
		a := e.write(t, tp, 1)
		e.commit(t, tb, a)
		e.wantSegments(t, tb, 0, a)
		e.recorded = map[topic.SegmentID]string{}
	}
	for _, name := range []string{"", "A", "a.b", "a/b", "..", strings.Repeat("x", 101), "ü"} {
		if _, err := e.tables().Open(t.Context(), table.Topic{Name: name, Incarnation: "i"}); err == nil {
			t.Errorf("a table for topic %q", name)
		}
	}
}

func anotherLife(t *testing.T, e *env) {
	tp := e.topic("lives")
	old := e.open(t, tp)
	first := e.write(t, tp, 1)
	e.commit(t, old, first)
	next := table.Topic{Name: tp.Name, Incarnation: "later"}
	for _, open := range []func() (*table.Table, error){
		func() (*table.Table, error) { return e.tables().Open(t.Context(), next) },
		func() (*table.Table, error) { return e.tables().Find(t.Context(), next) },
	} {
		_, err := open()
		foreign := wantError[*table.ForeignError](t, err)
		if foreign.Topic != tp.Name || foreign.Incarnation != tp.Incarnation || foreign.Want != "later" {
			t.Errorf("it says %+v", foreign)
		}
	}
	if err := e.tables().Drop(t.Context(), tp.Name); err != nil {
		t.Fatal(err)
	}
	if err := e.tables().Drop(t.Context(), tp.Name); err != nil {
		t.Errorf("dropping a dropped table: %v", err)
	}
	_, err := e.tables().Find(t.Context(), next)
	wantIs(t, err, table.ErrNoTable)
	_, err = old.Commit(t.Context(), []table.Addition{first}, e.has(old))
	wantIs(t, err, table.ErrNoTable)
	tb := e.open(t, next)
	_, err = old.Describe(t.Context())
	wantIs(t, err, table.ErrNoTable)
	if tb.UUID() == old.UUID() {
		t.Error("the new table has the old one's uuid")
	}
	for _, f := range first.Files {
		if _, err := e.Store.Lookup(t.Context(), "/buckets/"+strings.TrimPrefix(f, "s3://")); err != nil {
			t.Errorf("a data file went with the table: %v", err)
		}
	}
	// A table that was dropped and is made again for the same life gets everything anew.
	if err := e.tables().Drop(t.Context(), tp.Name); err != nil {
		t.Fatal(err)
	}
	again := e.open(t, tp)
	if done := e.commit(t, again, first); len(done.Added) != 1 {
		t.Errorf("committed to the table made anew: %+v", done)
	}
	e.wantSegments(t, again, 0, first)
}

func notOurs(t *testing.T, e *env) {
	tp := e.topic("theirs")
	e.open(t, e.topic("namespace")) // makes it
	schema := iceberg.NewSchema(0, iceberg.NestedField{ID: 1, Name: "x", Type: iceberg.PrimitiveTypes.Int64})
	ident := icetable.Identifier{"suite", tp.Name}
	if _, err := e.Catalog.CreateTable(t.Context(), ident, schema); err != nil {
		t.Fatal(err)
	}
	_, err := e.tables().Open(t.Context(), tp)
	if foreign := wantError[*table.ForeignError](t, err); foreign.Topic != "" {
		t.Errorf("it says %+v", foreign)
	}
	_ = wantError[*table.ForeignError](t, e.tables().Drop(t.Context(), tp.Name))
	if _, err := e.Catalog.LoadTable(t.Context(), ident); err != nil {
		t.Errorf("their table: %v", err)
	}
}
