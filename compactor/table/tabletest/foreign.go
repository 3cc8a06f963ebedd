package tabletest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// foreignSegment is what rows say that others have written.
const foreignSegment = "00000099-00-foreign"

// foreignFile puts a data file where another engine would: in the table's folder.
func (e *env) foreignFile(t *testing.T, ice *icetable.Table, segment topic.SegmentID, first, count uint64) string {
	t.Helper()
	data, err := DataFile(segment, first, count)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("%s/data/%s.parquet", ice.Location(), filer.Token(12))
	if err := put(t.Context(), e.Store, "/buckets/"+strings.TrimPrefix(url, "s3://"), data); err != nil {
		t.Fatal(err)
	}
	return url
}

// change does something to a table as somebody else would, with iceberg-go.
func (e *env) change(t *testing.T, tb *table.Table, do func(*icetable.Table, *icetable.Transaction) error) {
	t.Helper()
	ice := e.iceberg(t, tb)
	tx := ice.NewTransaction()
	if err := do(ice, tx); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func foreignAppend(t *testing.T, e *env) {
	tp := e.topic("append")
	tb := e.open(t, tp)
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	somebody := func() {
		e.change(t, tb, func(ice *icetable.Table, tx *icetable.Transaction) error {
			return tx.AddFiles(t.Context(), []string{e.foreignFile(t, ice, foreignSegment, 0, 5)}, nil, false)
		})
	}
	e.commit(t, tb, a)
	somebody()
	if done := e.commit(t, tb, a); len(done.Added) > 0 {
		t.Errorf("added %v again", done.Added)
	}
	e.commit(t, tb, b)
	e.wantSegments(t, tb, 1, a, b)
}

// foreignRewrite: a maintenance job puts the rows of two segments into one file.
func foreignRewrite(t *testing.T, e *env) {
	tp := e.topic("rewrite")
	tb := e.open(t, tp)
	a, b, c := e.write(t, tp, 1), e.write(t, tp, 2), e.write(t, tp, 3)
	if _, err := tb.Commit(t.Context(), []table.Addition{a, b}, never); err != nil {
		t.Fatal(err)
	}
	e.rewrite(t, tb, a)
	done, err := tb.Commit(t.Context(), []table.Addition{a, b, c}, never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "added", done.Added, c.Segment)
	seen, err := scan(t.Context(), tb)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []table.Addition{a, b, c} {
		if seen[string(x.Segment)] != int(x.Rows) {
			t.Errorf("segment %s has %d rows of %d", x.Segment, seen[string(x.Segment)], x.Rows)
		}
	}
}

// rewrite replaces the files of a segment by one of somebody else's.
func (e *env) rewrite(t *testing.T, tb *table.Table, a table.Addition) {
	t.Helper()
	e.change(t, tb, func(ice *icetable.Table, tx *icetable.Transaction) error {
		return tx.ReplaceDataFiles(t.Context(), a.Files, []string{e.foreignFile(t, ice, a.Segment, 0, a.Rows)}, nil)
	})
}

func foreignExpiry(t *testing.T, e *env) {
	tp := e.topic("expiry")
	tb := e.open(t, tp)
	var all []table.Addition
	for i := range 4 {
		all = append(all, e.write(t, tp, i))
		if _, err := tb.Commit(t.Context(), all[i:], never); err != nil {
			t.Fatal(err)
		}
	}
	e.expireAll(t, tb)
	done, err := tb.Commit(t.Context(), append(all, e.write(t, tp, 9)), never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "added", done.Added, SegmentID(9))
	e.wantSegments(t, tb, 0, append(all, e.write(t, tp, 9))...)
}

// expireAll takes all snapshots but the head out of a table's metadata.
func (e *env) expireAll(t *testing.T, tb *table.Table) {
	t.Helper()
	ice := e.iceberg(t, tb)
	var old []int64
	for _, s := range ice.Metadata().Snapshots() {
		if s.SnapshotID != ice.CurrentSnapshot().SnapshotID {
			old = append(old, s.SnapshotID)
		}
	}
	if _, _, err := e.Catalog.CommitTable(t.Context(), ice.Identifier(), nil, []icetable.Update{icetable.NewRemoveSnapshotsUpdate(old, false)}); err != nil {
		t.Fatal(err)
	}
}

func foreignColumns(t *testing.T, e *env) {
	tp := e.topic("columns")
	tb := e.open(t, tp)
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	e.commit(t, tb, a)
	e.change(t, tb, func(_ *icetable.Table, tx *icetable.Transaction) error {
		return tx.UpdateSchema(true, false).
			AddColumn([]string{"city"}, iceberg.PrimitiveTypes.String, "somebody's", false, nil).
			RenameColumn([]string{"value"}, "payload").
			MoveFirst([]string{"value"}).
			UpdateColumn([]string{"_row"}, icetable.ColumnUpdate{FieldType: iceberg.Optional[iceberg.Type]{Val: iceberg.PrimitiveTypes.Int64, Valid: true}}).
			Commit()
	})
	tb = e.open(t, tp)
	e.commit(t, tb, b)
	e.wantSegments(t, tb, 0, a, b)
	if _, ok := e.iceberg(t, tb).Schema().FindFieldByName("city"); !ok {
		t.Error("their column is gone")
	}
}

func spoiledColumns(t *testing.T, e *env) {
	for name, spoil := range map[string]func(*icetable.UpdateSchema) *icetable.UpdateSchema{
		"dropped": func(u *icetable.UpdateSchema) *icetable.UpdateSchema { return u.DeleteColumn([]string{"value"}) },
		"dropped and added": func(u *icetable.UpdateSchema) *icetable.UpdateSchema {
			return u.DeleteColumn([]string{"_rejected"}).AddColumn([]string{"_rejected2"}, iceberg.PrimitiveTypes.String, "", false, nil)
		},
		"nested": func(u *icetable.UpdateSchema) *icetable.UpdateSchema { return u.DeleteColumn([]string{"_ref", "url"}) },
		"required": func(u *icetable.UpdateSchema) *icetable.UpdateSchema {
			return u.UpdateColumn([]string{"_key"}, icetable.ColumnUpdate{Required: iceberg.Optional[bool]{Val: true, Valid: true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp := e.topic("spoiled-" + strings.ReplaceAll(name, " ", "-"))
			tb := e.open(t, tp)
			a, b := e.write(t, tp, 1), e.write(t, tp, 2)
			done, err := tb.Commit(t.Context(), []table.Addition{a}, never)
			if err != nil {
				t.Fatal(err)
			}
			e.change(t, tb, func(_ *icetable.Table, tx *icetable.Transaction) error {
				return spoil(tx.UpdateSchema(true, true)).Commit()
			})
			_, err = tb.Commit(t.Context(), []table.Addition{b}, never)
			t.Log(wantError[*table.SchemaError](t, err))
			_, err = e.tables().Open(t.Context(), tp)
			_ = wantError[*table.SchemaError](t, err)
			// What is in stays in, and can be looked at.
			found, err := e.tables().Find(t.Context(), tp)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := found.Describe(t.Context()); err != nil || d.Snapshot != done.Snapshot {
				t.Errorf("it is at %d (%v), and was at %d", d.Snapshot, err, done.Snapshot)
			}
			if again, err := tb.Commit(t.Context(), []table.Addition{a}, never); err != nil || len(again.Already) != 1 {
				t.Errorf("a segment that is in: %+v, %v", again, err)
			}
		})
	}
}

func foreignPartitions(t *testing.T, e *env) {
	tp := e.topic("partitions")
	tb := e.open(t, tp)
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	e.commit(t, tb, a)
	e.change(t, tb, func(_ *icetable.Table, tx *icetable.Transaction) error {
		return tx.UpdateSpec(true).AddField("_ts", iceberg.HourTransform{}, "hour").Commit()
	})
	e.commit(t, e.open(t, tp), b)
	e.wantSegments(t, tb, 0, a, b)
}

// allGone: only the files tell what is in.
func allGone(t *testing.T, e *env) {
	tp := e.topic("all-gone")
	tb := e.open(t, tp)
	a, b, c := e.write(t, tp, 1), e.write(t, tp, 2), e.write(t, tp, 3)
	for _, x := range []table.Addition{a, b} {
		if _, err := tb.Commit(t.Context(), []table.Addition{x}, never); err != nil {
			t.Fatal(err)
		}
	}
	e.change(t, tb, func(_ *icetable.Table, tx *icetable.Transaction) error {
		return tx.RemoveProperties([]string{"spillway.segments"})
	})
	e.expireAll(t, tb)
	done, err := tb.Commit(t.Context(), []table.Addition{a, b, c}, never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "added", done.Added, c.Segment)
	e.wantSegments(t, tb, 0, a, b, c)
}

// propertyGone: somebody takes the property away, or writes something there. What
// is in is found by the files, and after a rewrite by what snapshots say.
func propertyGone(t *testing.T, e *env) {
	for name, spoil := range map[string]func(*icetable.Transaction) error{
		"removed": func(tx *icetable.Transaction) error { return tx.RemoveProperties([]string{"spillway.segments"}) },
		"emptied": func(tx *icetable.Transaction) error {
			return tx.SetProperties(iceberg.Properties{"spillway.segments": ""})
		},
		"spoiled": func(tx *icetable.Transaction) error {
			return tx.SetProperties(iceberg.Properties{"spillway.segments": "00000001-00-abcdefgh, and others"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp := e.topic("gone-" + name)
			tb := e.open(t, tp)
			a, b, c, d := e.write(t, tp, 1), e.write(t, tp, 2), e.write(t, tp, 3), e.write(t, tp, 4)
			if _, err := tb.Commit(t.Context(), []table.Addition{a, b}, never); err != nil {
				t.Fatal(err)
			}
			if _, err := tb.Commit(t.Context(), []table.Addition{c}, never); err != nil {
				t.Fatal(err)
			}
			e.rewrite(t, tb, b)
			e.change(t, tb, func(_ *icetable.Table, tx *icetable.Transaction) error { return spoil(tx) })
			done, err := tb.Commit(t.Context(), []table.Addition{a, b, c}, never)
			if err != nil {
				t.Fatal(err)
			}
			wantIDs(t, "added", done.Added)
			recorded := func(_ context.Context, id topic.SegmentID) (bool, error) { return id == a.Segment, nil }
			if done, err = tb.Commit(t.Context(), []table.Addition{c, d}, recorded); err != nil {
				t.Fatal(err)
			}
			wantIDs(t, "added", done.Added, d.Segment)
			desc, err := tb.Describe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wantIDs(t, "the property, made again", desc.Pending, ids(b, c, d)...)
			if got := desc.Properties["spillway.segments"]; strings.Count(got, ",") != 2 {
				t.Errorf("the property is %q", got)
			}
		})
	}
}
