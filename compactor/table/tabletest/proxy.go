package tabletest

import (
	"context"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/compactor/table"
)

// Proxy gives calls of another catalog faults, a real one for instance.
type Proxy struct {
	latecomers
	catalog table.Catalog
	faults  *injector
}

var _ table.Catalog = (*Proxy)(nil)

// NewProxy returns a way into a catalog for one actor.
func NewProxy(c table.Catalog, hook Hook) *Proxy {
	p := &Proxy{catalog: c}
	p.faults = &injector{hook: hook, delay: p.add}
	return p
}

// CreateNamespace implements table.Catalog.
func (p *Proxy) CreateNamespace(ctx context.Context, ns icetable.Identifier, props iceberg.Properties) error {
	_, err := inject(ctx, p.faults, "CreateNamespace", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.catalog.CreateNamespace(ctx, ns, props)
	})
	return err
}

// CreateTable implements table.Catalog.
func (p *Proxy) CreateTable(ctx context.Context, id icetable.Identifier, schema *iceberg.Schema, opts ...catalog.CreateTableOpt) (*icetable.Table, error) {
	return inject(ctx, p.faults, "CreateTable", func(ctx context.Context) (*icetable.Table, error) {
		return p.catalog.CreateTable(ctx, id, schema, opts...)
	})
}

// LoadTable implements table.Catalog.
func (p *Proxy) LoadTable(ctx context.Context, id icetable.Identifier) (*icetable.Table, error) {
	return inject(ctx, p.faults, "LoadTable", func(ctx context.Context) (*icetable.Table, error) {
		return p.catalog.LoadTable(ctx, id)
	})
}

// CommitTable implements table.Catalog.
func (p *Proxy) CommitTable(ctx context.Context, id icetable.Identifier, reqs []icetable.Requirement, updates []icetable.Update) (icetable.Metadata, string, error) {
	type committed struct {
		meta  icetable.Metadata
		where string
	}
	c, err := inject(ctx, p.faults, "CommitTable", func(ctx context.Context) (c committed, err error) {
		c.meta, c.where, err = p.catalog.CommitTable(ctx, id, reqs, updates)
		return c, err
	})
	return c.meta, c.where, err
}

// DropTable implements table.Catalog.
func (p *Proxy) DropTable(ctx context.Context, id icetable.Identifier) error {
	_, err := inject(ctx, p.faults, "DropTable", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, p.catalog.DropTable(ctx, id)
	})
	return err
}
