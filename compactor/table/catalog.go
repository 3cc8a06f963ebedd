package table

import (
	"context"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	icetable "github.com/apache/iceberg-go/table"
)

// Catalog is what is used of an Iceberg catalog. Errors are those of iceberg-go's
// packages catalog, catalog/rest and table. Methods may be called concurrently
// and try once.
type Catalog interface {
	icetable.CatalogIO
	// CreateNamespace fails with catalog.ErrNamespaceAlreadyExists if it is there.
	CreateNamespace(ctx context.Context, ns icetable.Identifier, props iceberg.Properties) error
	// CreateTable fails with catalog.ErrTableAlreadyExists if it is there, and
	// may give the columns other ids than the schema's.
	CreateTable(ctx context.Context, id icetable.Identifier, schema *iceberg.Schema, opts ...catalog.CreateTableOpt) (*icetable.Table, error)
	// DropTable takes a table out of the catalog.
	DropTable(ctx context.Context, id icetable.Identifier) error
}

// callTimeout bounds one call of a catalog. A commit takes some 100 ms.
const callTimeout = 30 * time.Second

// caller is a catalog whose calls end, and whose errors have types.
type caller struct{ catalog Catalog }

var _ icetable.CatalogIO = caller{}

// LoadTable implements icetable.CatalogIO.
func (c caller) LoadTable(ctx context.Context, id icetable.Identifier) (*icetable.Table, error) {
	return call(ctx, "load table "+dotted(id), func(ctx context.Context) (*icetable.Table, error) {
		return c.catalog.LoadTable(ctx, id)
	})
}

// CommitTable implements icetable.CatalogIO.
func (c caller) CommitTable(ctx context.Context, id icetable.Identifier, reqs []icetable.Requirement, updates []icetable.Update) (icetable.Metadata, string, error) {
	var where string
	meta, err := call(ctx, "commit to table "+dotted(id), func(ctx context.Context) (m icetable.Metadata, err error) {
		m, where, err = c.catalog.CommitTable(ctx, id, reqs, updates)
		return m, err
	})
	return meta, where, err
}

func (c caller) createNamespace(ctx context.Context, ns string) error {
	_, err := call(ctx, "create namespace "+ns, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.catalog.CreateNamespace(ctx, icetable.Identifier{ns}, nil)
	})
	return err
}

func (c caller) createTable(ctx context.Context, id icetable.Identifier, schema *iceberg.Schema, opts ...catalog.CreateTableOpt) error {
	_, err := call(ctx, "create table "+dotted(id), func(ctx context.Context) (*icetable.Table, error) {
		return c.catalog.CreateTable(ctx, id, schema, opts...)
	})
	return err
}

func (c caller) dropTable(ctx context.Context, id icetable.Identifier) error {
	_, err := call(ctx, "drop table "+dotted(id), func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.catalog.DropTable(ctx, id)
	})
	return err
}

// call runs one call of a catalog within [callTimeout] and classifies its error.
func call[T any](ctx context.Context, op string, do func(context.Context) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	v, err := do(limited)
	return v, classify(ctx, op, err)
}

func dotted(id icetable.Identifier) string {
	name := ""
	for i, part := range id {
		if i > 0 {
			name += "."
		}
		name += part
	}
	return name
}
