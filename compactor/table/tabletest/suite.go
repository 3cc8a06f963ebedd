package tabletest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Env is where the suite works: a catalog, and the filer that its files are on.
type Env struct {
	Catalog   table.Catalog
	Store     filer.Store
	Warehouse string // the table bucket
	Bucket    string // the topics' bucket
}

// Run tests a catalog with the tables of package table on top. open is called
// once for each part, which works on tables of its own.
func Run(t *testing.T, open func(t *testing.T) Env) {
	t.Helper()
	parts := []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"creators race", creatorsRace},
		{"names", names},
		{"another life of the topic", anotherLife},
		{"a table of somebody else", notOurs},
		{"commit, and commit again", commitTwice},
		{"a recorded segment is not added", recordedIsIn},
		{"committers of one segment race", oneSegmentRaces},
		{"committers of many segments race", manySegmentsRace},
		{"the set of segments is pruned", setIsPruned},
		{"somebody appends", foreignAppend},
		{"somebody rewrites files", foreignRewrite},
		{"somebody expires snapshots", foreignExpiry},
		{"somebody adds and renames columns", foreignColumns},
		{"somebody spoils columns", spoiledColumns},
		{"somebody partitions the table", foreignPartitions},
		{"somebody takes the property away", propertyGone},
		{"somebody takes the property and old snapshots away", allGone},
		{"files that are not as said", badFiles},
		{"what can be seen", looks},
		{"old snapshots and orphans", upkeep},
	}
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			e := &env{Env: open(t), life: filer.Token(8), recorded: map[topic.SegmentID]string{}}
			p.run(t, e)
		})
	}
}

// env is one part's part.
type env struct {
	Env
	life string

	mu       sync.Mutex
	recorded map[topic.SegmentID]string // which table their record names
}

// topic is a topic of this part.
func (e *env) topic(name string) table.Topic {
	return table.Topic{Name: name + "-" + e.life, Incarnation: e.life}
}

func (e *env) tables() *table.Tables { return e.tablesAt(time.Now) }

func (e *env) tablesAt(now func() time.Time) *table.Tables {
	return table.New(table.Options{
		Catalog: e.Catalog, Store: e.Store, Warehouse: e.Warehouse, Bucket: e.Bucket, Namespace: "suite", Now: now,
	})
}

func (e *env) open(t *testing.T, tp table.Topic) *table.Table {
	t.Helper()
	tb, err := e.tables().Open(t.Context(), tp)
	if err != nil {
		t.Fatal(err)
	}
	return tb
}

func (e *env) place(tp table.Topic) Place { return Place{e.Store, e.Bucket, tp} }

// write writes a segment of a topic: two files with 30 and 12 records.
func (e *env) write(t *testing.T, tp table.Topic, n int) table.Addition {
	t.Helper()
	a, err := e.place(tp).Write(t.Context(), SegmentID(n), 30, 12)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// has tells whether a segment's record names a table.
func (e *env) has(tb *table.Table) table.Recorded {
	return func(_ context.Context, id topic.SegmentID) (bool, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.recorded[id] == tb.UUID(), nil
	}
}

func (e *env) record(tb *table.Table, ids ...topic.SegmentID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.recorded[id] = tb.UUID()
	}
}

// commit commits and records.
func (e *env) commit(t *testing.T, tb *table.Table, adds ...table.Addition) table.Committed {
	t.Helper()
	done, err := tb.Commit(t.Context(), adds, e.has(tb))
	if err != nil {
		t.Fatal(err)
	}
	e.record(tb, done.Added...)
	e.record(tb, done.Already...)
	return done
}

// iceberg gives iceberg-go's handle of a table, to do to it what others do.
func (e *env) iceberg(t *testing.T, tb *table.Table) *icetable.Table {
	t.Helper()
	ice, err := tb.Iceberg(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ice
}

// wantSegments checks that a table names the files of these segments, each once,
// and nothing else but so many files of others, and that a scan finds the rows.
func (e *env) wantSegments(t *testing.T, tb *table.Table, others int, adds ...table.Addition) {
	t.Helper()
	if err := Check(t.Context(), tb, others, adds...); err != nil {
		t.Fatal(err)
	}
}

// Check tells whether a table names the files of these segments, each once, and
// so many files of others, and whether a scan finds each of the segments' rows
// once.
func Check(ctx context.Context, tb *table.Table, others int, adds ...table.Addition) error {
	want, have := map[string]int{}, map[string]int{}
	rows := map[string]int{}
	for _, a := range adds {
		for _, f := range a.Files {
			want[f]++
		}
		rows[string(a.Segment)] += int(a.Rows)
	}
	for f, err := range tb.Files(ctx) {
		switch {
		case err != nil:
			return err
		case f.Segment == "":
			others--
		default:
			have[f.URL]++
		}
	}
	if !maps.Equal(want, have) || others != 0 {
		return fmt.Errorf("the table has files %v and not %v (%d of others more or less)", have, want, -others)
	}
	seen, err := scan(ctx, tb)
	if err != nil {
		return err
	}
	delete(seen, foreignSegment)
	if !maps.Equal(rows, seen) {
		return fmt.Errorf("a scan finds rows %v and not %v", seen, rows)
	}
	return nil
}

// scan counts the rows of each segment, and sees that no offset is there twice.
func scan(ctx context.Context, tb *table.Table) (map[string]int, error) {
	ice, err := tb.Iceberg(ctx)
	if err != nil {
		return nil, err
	}
	seen, twice := map[string]int{}, map[string]bool{}
	if ice.CurrentSnapshot() == nil {
		return seen, nil
	}
	_, batches, err := ice.Scan(icetable.WithSelectedFields("_segment", "_offset")).ToArrowRecords(ctx)
	if err != nil {
		return nil, err
	}
	for b, err := range batches {
		if err != nil {
			return nil, err
		}
		ids, ok := b.Column(0).(*array.String)
		offsets, ok2 := b.Column(1).(*array.Int64)
		if !ok || !ok2 {
			return nil, fmt.Errorf("columns of types %s and %s", b.Column(0).DataType(), b.Column(1).DataType())
		}
		for i := range int(b.NumRows()) {
			at := fmt.Sprintf("%s/%d", ids.Value(i), offsets.Value(i))
			if twice[at] {
				return nil, fmt.Errorf("row %s is there twice", at)
			}
			twice[at] = true
			seen[strings.Clone(ids.Value(i))]++
		}
		b.Release()
	}
	return seen, nil
}

func ids(adds ...table.Addition) []topic.SegmentID {
	list := make([]topic.SegmentID, len(adds))
	for i, a := range adds {
		list[i] = a.Segment
	}
	return list
}

func wantIDs(t *testing.T, what string, got []topic.SegmentID, want ...topic.SegmentID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// wantError checks that an error is of a type.
func wantError[T error](t *testing.T, err error) (found T) {
	t.Helper()
	if !errors.As(err, &found) {
		t.Fatalf("got %T %v, want a %T", err, err, found)
	}
	return found
}

func wantIs(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %T %v, want %v", err, err, want)
	}
}
