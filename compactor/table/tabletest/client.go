package tabletest

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/catalog"
	"github.com/apache/iceberg-go/catalog/rest"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/compactor/table"
)

// Client is a way into a [Server] for one actor.
type Client struct {
	server *Server
	faults *injector
}

var _ table.Catalog = (*Client)(nil)

// CreateNamespace implements table.Catalog.
func (c *Client) CreateNamespace(ctx context.Context, ns icetable.Identifier, _ iceberg.Properties) error {
	_, err := inject(ctx, c.faults, "CreateNamespace", func(context.Context) (*state, error) { return nil, c.server.createNamespace(ns) })
	return err
}

// CreateTable implements table.Catalog.
func (c *Client) CreateTable(ctx context.Context, id icetable.Identifier, schema *iceberg.Schema, opts ...catalog.CreateTableOpt) (*icetable.Table, error) {
	st, err := inject(ctx, c.faults, "CreateTable", func(ctx context.Context) (*state, error) { return c.server.createTable(ctx, id, schema, opts) })
	if err != nil {
		return nil, err
	}
	return c.table(id, st), nil
}

// LoadTable implements table.Catalog.
func (c *Client) LoadTable(ctx context.Context, id icetable.Identifier) (*icetable.Table, error) {
	st, err := inject(ctx, c.faults, "LoadTable", func(context.Context) (*state, error) { return c.server.load(id) })
	if err != nil {
		return nil, err
	}
	return c.table(id, st), nil
}

// CommitTable implements table.Catalog.
func (c *Client) CommitTable(ctx context.Context, id icetable.Identifier, reqs []icetable.Requirement, updates []icetable.Update) (icetable.Metadata, string, error) {
	sent, err := overTheWire(reqs, updates)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", rest.ErrBadRequest, err)
	}
	st, err := inject(ctx, c.faults, "CommitTable", func(ctx context.Context) (*state, error) { return c.server.commit(ctx, id, sent) })
	if err != nil {
		return nil, "", err
	}
	return st.meta, st.location, nil
}

// DropTable implements table.Catalog.
func (c *Client) DropTable(ctx context.Context, id icetable.Identifier) error {
	_, err := inject(ctx, c.faults, "DropTable", func(context.Context) (*state, error) { return nil, c.server.drop(id) })
	return err
}

// table is a handle without access to files, which nobody may need: that a
// catalog gives is access of its own kind.
func (c *Client) table(id icetable.Identifier, st *state) *icetable.Table {
	none := func(context.Context) (iceio.IO, error) {
		return nil, errors.New("tabletest: no files by way of the catalog")
	}
	return icetable.New(id, st.meta, st.location, none, c)
}
