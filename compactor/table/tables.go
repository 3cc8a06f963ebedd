package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/apache/iceberg-go/catalog"
	iceio "github.com/apache/iceberg-go/io"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

// openTries is how often Open starts again because somebody else was first, or
// because the catalog gave no answer.
const openTries = 8

// Options of [New].
type Options struct {
	Catalog   Catalog
	Store     filer.Store
	Warehouse string // the table bucket: metadata of tables is written below it; default "warehouse"
	Bucket    string // where topics live: data files are read below it
	Namespace string // default "spillway"
	Logger    *slog.Logger
	Now       func() time.Time // default time.Now
}

// Tables are the tables of topics in one namespace of a catalog. It holds no
// state and may be used concurrently.
type Tables struct {
	catalog   caller
	store     filer.Store
	warehouse string
	bucket    string
	namespace string
	log       *slog.Logger
	now       func() time.Time
}

// New returns the tables of a catalog. It does no I/O.
func New(o Options) *Tables {
	ts := &Tables{
		catalog: caller{o.Catalog}, store: o.Store,
		warehouse: cmp.Or(o.Warehouse, "warehouse"), bucket: o.Bucket, namespace: cmp.Or(o.Namespace, "spillway"),
		log: o.Logger, now: o.Now,
	}
	if ts.log == nil {
		ts.log = slog.New(slog.DiscardHandler)
	}
	if ts.now == nil {
		ts.now = time.Now
	}
	return ts
}

// Topic is whose table it is: a topic in one of its lives.
type Topic struct{ Name, Incarnation string }

// Table is the table of one topic, as long as it is the same one in the catalog.
// It may be used concurrently.
type Table struct {
	ts    *Tables
	ident icetable.Identifier
	topic Topic
	uuid  string
}

// UUID tells tables apart that were under one name one after the other.
func (t *Table) UUID() string { return t.uuid }

// Name is what SQL calls it: "spillway.orders".
func (t *Table) Name() string { return dotted(t.ident) }

// ident is where the table of a topic is. Each name of a topic is a name that
// catalogs take as it is, so no two topics can share a table.
func (ts *Tables) ident(name string) (icetable.Identifier, error) {
	if err := topic.CheckName(name); err != nil {
		return nil, err
	}
	return icetable.Identifier{ts.namespace, name}, nil
}

// Open loads the table of a topic, or creates it, whoever else does so too.
// *ForeignError and *SchemaError: somebody has to decide, *ConfigError: somebody
// has to change settings, *UnavailableError: try later.
func (ts *Tables) Open(ctx context.Context, t Topic) (*Table, error) {
	ident, err := ts.ident(t.Name)
	if err != nil {
		return nil, err
	}
	for b := (pause{}); ; {
		opened, err := ts.open(ctx, ident, t)
		switch {
		case err == nil:
			return opened, nil
		case !retryable(err):
			return nil, err
		case b.n >= openTries:
			return nil, giveUp("open table "+dotted(ident), err)
		}
		if err := b.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// open is one try: it loads the table, and makes it right.
func (ts *Tables) open(ctx context.Context, ident icetable.Identifier, t Topic) (*Table, error) {
	ice, err := ts.catalog.LoadTable(ctx, ident)
	if isMissing(err) {
		if err := ts.create(ctx, ident, t); err != nil {
			return nil, err
		}
		ice, err = ts.catalog.LoadTable(ctx, ident)
	}
	if err != nil {
		return nil, err
	}
	if err := checkOwner(ident, ice.Metadata(), t); err != nil {
		return nil, err
	}
	if err := ts.giveColumns(ctx, ident, ice.Metadata()); err != nil {
		return nil, err
	}
	return &Table{ts, ident, t, ice.Metadata().TableUUID().String()}, nil
}

// Find loads the table of a topic. [ErrNoTable]: it has none.
func (ts *Tables) Find(ctx context.Context, t Topic) (*Table, error) {
	ident, err := ts.ident(t.Name)
	if err != nil {
		return nil, err
	}
	ice, err := ts.catalog.LoadTable(ctx, ident)
	switch {
	case isMissing(err):
		return nil, fmt.Errorf("%w: %s", ErrNoTable, dotted(ident))
	case err != nil:
		return nil, err
	}
	if err := checkOwner(ident, ice.Metadata(), t); err != nil {
		return nil, err
	}
	return &Table{ts, ident, t, ice.Metadata().TableUUID().String()}, nil
}

// Drop takes the table under a topic's name out of the catalog, whatever life of
// the topic it belongs to, and deletes no data file. *ForeignError: no topic's
// table; it stays. A missing one is no error. After an *UnavailableError it may
// be gone.
func (ts *Tables) Drop(ctx context.Context, name string) error {
	ident, err := ts.ident(name)
	if err != nil {
		return err
	}
	ice, err := ts.catalog.LoadTable(ctx, ident)
	switch {
	case isMissing(err):
		return nil
	case err != nil:
		return err
	case ice.Metadata().Properties()[propTopic] != name:
		return &ForeignError{Table: dotted(ident), Topic: ice.Metadata().Properties()[propTopic]}
	}
	if err := ts.catalog.dropTable(ctx, ident); err != nil && !isMissing(err) {
		return err
	}
	ts.log.Info("dropped a table", "table", dotted(ident), "uuid", ice.Metadata().TableUUID(),
		"incarnation", ice.Metadata().Properties()[propIncarnation])
	return nil
}

// create makes the namespace and the table. That somebody else was first is no error.
func (ts *Tables) create(ctx context.Context, ident icetable.Identifier, t Topic) error {
	if err := ts.catalog.createNamespace(ctx, ts.namespace); err != nil && !errors.Is(err, catalog.ErrNamespaceAlreadyExists) {
		return ts.warehouseError(err)
	}
	schema, err := columns()
	if err != nil {
		return err
	}
	err = ts.catalog.createTable(ctx, ident, schema,
		catalog.WithProperties(properties(t)), catalog.WithSortOrder(sortOrder()))
	switch {
	case errors.Is(err, catalog.ErrTableAlreadyExists):
		return nil
	case err != nil:
		return ts.warehouseError(err)
	}
	ts.log.Info("created a table", "table", dotted(ident), "topic", t.Name, "incarnation", t.Incarnation)
	return nil
}

// warehouseError says what a "not found" means where nothing is looked for.
func (ts *Tables) warehouseError(err error) error {
	if errors.Is(err, catalog.ErrNoSuchNamespace) {
		return &ConfigError{"create in the warehouse", fmt.Sprintf("check the warehouse: is there a table bucket %q?", ts.warehouse), err}
	}
	return err
}

// checkOwner tells whether a table is that of a topic.
func checkOwner(ident icetable.Identifier, meta icetable.Metadata, t Topic) error {
	props := meta.Properties()
	if props[propTopic] == t.Name && props[propIncarnation] == t.Incarnation {
		return nil
	}
	return &ForeignError{dotted(ident), props[propTopic], props[propIncarnation], t.Incarnation}
}

// files gives access to files for one operation.
func (ts *Tables) files(ctx context.Context) *fileIO {
	return &fileIO{ctx: ctx, store: ts.store, warehouse: ts.warehouse, bucket: ts.bucket}
}

// load loads the table of this handle as it is now, with our access to files.
func (t *Table) load(ctx context.Context) (*icetable.Table, *fileIO, error) {
	ice, err := t.ts.catalog.LoadTable(ctx, t.ident)
	switch {
	case isMissing(err):
		return nil, nil, fmt.Errorf("%w: %s", ErrNoTable, t.Name())
	case err != nil:
		return nil, nil, err
	case ice.Metadata().TableUUID().String() != t.uuid:
		return nil, nil, fmt.Errorf("%w: %s is another one now", ErrNoTable, t.Name())
	}
	files := t.ts.files(ctx)
	fsF := func(context.Context) (iceio.IO, error) { return files, nil }
	return icetable.New(t.ident, ice.Metadata(), ice.MetadataLocation(), fsF, t.ts.catalog), files, nil
}

// Iceberg loads the table for iceberg-go, with access to files by way of the filer:
// for scans, and for tests.
func (t *Table) Iceberg(ctx context.Context) (*icetable.Table, error) {
	ice, _, err := t.load(ctx)
	return ice, err
}

// isMissing tells whether a catalog says that it has no such table.
func isMissing(err error) bool {
	return errors.Is(err, catalog.ErrNoSuchTable) || errors.Is(err, catalog.ErrNoSuchNamespace)
}

// retryable tells whether the same call may succeed at once: somebody else was
// first, or there was no answer.
func retryable(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) || errors.Is(err, icetable.ErrCommitFailed) || isMissing(err)
}

// giveUp is the error after the last try.
func giveUp(op string, err error) error {
	if isMissing(err) { // made, and then not there, again and again: it is hidden
		return &ConfigError{op, "the keys may lack the right to read tables", err}
	}
	return err
}
