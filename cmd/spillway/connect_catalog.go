package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Where tables are if no setting says it.
const (
	defaultNamespace = "spillway"
	defaultWarehouse = "warehouse"
)

// noCatalog is the setting for no tables, also beside a stack that has a catalog.
const noCatalog = "none"

// locateCatalog fills in a stack's catalog. It comes before the stack's S3 keys are
// filled in: those are for no other catalog.
func (c *config) locateCatalog(info devstack.Info) {
	if c.Catalog == "" {
		c.Catalog = info.Catalog.URL
	}
	if c.Catalog == "" || c.Catalog != info.Catalog.URL {
		return
	}
	c.Warehouse = cmp.Or(c.Warehouse, info.Catalog.Warehouse)
	keys := c.S3AccessKey != "" || c.S3SecretKey != ""
	if elsewhere := c.S3 != "" && c.S3 != info.S3.URL; c.CatalogCred == "" && (!keys || elsewhere) {
		c.CatalogCred = info.S3.AccessKey + ":" + info.S3.SecretKey
	}
}

// tableSettings are those of the catalog; ok tells whether there is one.
func (c config) tableSettings() (s table.Settings, ok bool, err error) {
	if c.Catalog == "" || c.Catalog == noCatalog {
		return s, false, nil
	}
	u, err := url.Parse(c.Catalog)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return s, false, fmt.Errorf("catalog %q: want a URL such as http://host:8181, or none", c.Catalog)
	}
	if u.User != nil {
		return s, false, errors.New("catalog: credentials do not belong into its URL; give catalog-credential")
	}
	s = table.Settings{URL: c.Catalog, Warehouse: cmp.Or(c.Warehouse, defaultWarehouse), AccessKey: c.S3AccessKey, SecretKey: c.S3SecretKey}
	if c.CatalogCred != "" {
		if s.AccessKey, s.SecretKey, ok = strings.Cut(c.CatalogCred, ":"); !ok || s.AccessKey == "" || s.SecretKey == "" {
			return s, false, errors.New("catalog-credential: want id:secret")
		}
	}
	return s, true, nil
}

// tables are the tables of the catalog that the settings name; nil: they name none.
// The servers must be located. It does not need the catalog to be there now.
func (a *app) tables(ctx context.Context, store *segment.Store) (*table.Tables, func(), error) {
	s, ok, err := a.cfg.tableSettings()
	if err != nil {
		return nil, nil, &functions.ConfigError{Err: err}
	}
	if !ok {
		return nil, func() {}, nil
	}
	catalog, err := table.Connect(ctx, s)
	if err != nil {
		return nil, nil, explainCatalog(fmt.Errorf("catalog %s: %w", a.cfg.Catalog, err))
	}
	done := func() { catalog.Close() } //nolint:errcheck // nothing is pending
	return table.New(table.Options{
		Catalog: catalog, Store: store.Filer, Warehouse: s.Warehouse, Bucket: cmp.Or(a.cfg.Bucket, defaultBucket),
		Namespace: cmp.Or(a.cfg.Namespace, defaultNamespace), Logger: store.Logger,
	}), done, nil
}

// catalog gives a function the tables of the settings, if there are any.
func (a *app) catalog(ctx context.Context, d *functions.Deps) (done func(), err error) {
	d.Tables, done, err = a.tables(ctx, d.Store)
	return done, err
}

// explainCatalog sorts what working on tables can meet.
func explainCatalog(err error) error { return functions.CatalogOutcome(err) }
