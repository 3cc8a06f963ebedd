package table

import (
	"context"
	"fmt"
	"slices"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/parquet"
)

// Ids of columns that this package looks at, the same in all tables and files.
const (
	columnSegment = 1
	columnOffset  = 2
	columnTime    = 3
)

// columns is the schema of our files.
func columns() (*iceberg.Schema, error) {
	schema, err := icetable.ArrowSchemaToIceberg(parquet.ArrowSchema(), false, nil)
	if err != nil {
		return nil, fmt.Errorf("the schema of data files: %w", err)
	}
	return schema, nil
}

// giveColumns gives a new table the columns that it was created with. Catalogs
// number columns anew when they create a table; files need the ids that they
// were written with. Until that is done nothing is committed to the table, since
// everybody who opens it comes by here. Two who do it at once: one conflicts.
func (ts *Tables) giveColumns(ctx context.Context, ident icetable.Identifier, meta icetable.Metadata) error {
	want, err := columns()
	if err != nil {
		return err
	}
	was := meta.CurrentSchema()
	if len(meta.Snapshots()) > 0 || meta.LastSequenceNumber() > 0 || missingIn(was, want) == "" || !sameButIDs(was, want) {
		return checkSchema(ident, meta)
	}
	reqs := []icetable.Requirement{
		icetable.AssertTableUUID(meta.TableUUID()),
		icetable.AssertCurrentSchemaID(was.ID),
		icetable.AssertRefSnapshotID(icetable.MainBranch, nil),
	}
	updates := []icetable.Update{icetable.NewAddSchemaUpdate(want), icetable.NewSetCurrentSchemaUpdate(-1)}
	_, _, err = ts.catalog.CommitTable(ctx, ident, reqs, updates)
	return err
}

// checkSchema tells whether our files can be read in a table. Columns that others
// added, renamed or moved do no harm: ids decide.
func checkSchema(ident icetable.Identifier, meta icetable.Metadata) error {
	want, err := columns()
	if err != nil {
		return err
	}
	bad := func(reason string) error { return &SchemaError{dotted(ident), reason} }
	have := meta.CurrentSchema()
	if reason := missingIn(have, want); reason != "" {
		return bad(reason)
	}
	for _, f := range have.Fields() {
		if _, ours := want.FindFieldByID(f.ID); !ours && f.Required && f.InitialDefault == nil {
			return bad(fmt.Sprintf("column %q (id %d), which somebody added, is required and has no default", f.Name, f.ID))
		}
	}
	if unpartitioned(meta) == nil {
		return bad("it has no unpartitioned spec")
	}
	return nil
}

// unpartitioned finds the partition spec that our files are added under, which a
// table keeps even if somebody partitions it.
func unpartitioned(meta icetable.Metadata) *iceberg.PartitionSpec {
	specs := meta.PartitionSpecs()
	if i := slices.IndexFunc(specs, func(s iceberg.PartitionSpec) bool { return s.NumFields() == 0 }); i >= 0 {
		return &specs[i]
	}
	return nil
}

// missingIn tells what keeps rows of schema want from being read as schema have,
// "" if nothing does.
func missingIn(have, want *iceberg.Schema) string {
	return missingFields(have.Fields(), want.Fields())
}

func missingFields(have, want []iceberg.NestedField) string {
	for _, w := range want {
		i := slices.IndexFunc(have, func(h iceberg.NestedField) bool { return h.ID == w.ID })
		if i < 0 {
			return fmt.Sprintf("column %q (id %d) was dropped", w.Name, w.ID)
		}
		h := have[i]
		if h.Required && !w.Required {
			return fmt.Sprintf("column %q (id %d) was made required", h.Name, h.ID)
		}
		if reason := unlike(h, w); reason != "" {
			return reason
		}
	}
	return ""
}

// unlike tells why values of a column of type w cannot be read as h.
func unlike(h, w iceberg.NestedField) string {
	retyped := fmt.Sprintf("column %q (id %d) is of type %s, and was %s", h.Name, h.ID, h.Type, w.Type)
	switch wt := w.Type.(type) {
	case *iceberg.StructType:
		ht, ok := h.Type.(*iceberg.StructType)
		if !ok {
			return retyped
		}
		return missingFields(ht.FieldList, wt.FieldList)
	case *iceberg.ListType:
		ht, ok := h.Type.(*iceberg.ListType)
		if !ok {
			return retyped
		}
		return missingFields([]iceberg.NestedField{ht.ElementField()}, []iceberg.NestedField{wt.ElementField()})
	default:
		if h.Type.Equals(w.Type) || w.Type.Equals(iceberg.PrimitiveTypes.Int32) && h.Type.Equals(iceberg.PrimitiveTypes.Int64) {
			return ""
		}
		return retyped
	}
}

// sameButIDs tells whether two schemas are alike, whatever the ids of columns.
func sameButIDs(a, b *iceberg.Schema) bool {
	freshA, errA := iceberg.AssignFreshSchemaIDs(a, nil)
	freshB, errB := iceberg.AssignFreshSchemaIDs(b, nil)
	return errA == nil && errB == nil && freshA.Equals(freshB)
}
