package main

import (
	"context"
	"errors"
	"iter"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verify"
)

// openTable opens a topic's table for a verification; nil: there is none.
type openTable = func(context.Context, *segment.Topic) (verify.Table, error)

// compareTable is how a verification gets at the tables of the catalog; nil: none is
// configured.
func (a *app) compareTable(ctx context.Context, store *segment.Store) (openTable, func(), error) {
	tables, done, err := a.tables(ctx, store)
	if err != nil || tables == nil {
		return nil, func() {}, err
	}
	open := func(ctx context.Context, t *segment.Topic) (verify.Table, error) {
		found, err := tables.Find(ctx, table.Topic{Name: t.Name, Incarnation: t.Incarnation})
		if errors.Is(err, table.ErrNoTable) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return verifiedTable{found}, nil
	}
	return open, done, nil
}

// verifiedTable is a table as a verification looks at it.
type verifiedTable struct{ *table.Table }

// Files implements [verify.Table].
func (t verifiedTable) Files(ctx context.Context) iter.Seq2[verify.TableFile, error] {
	return func(yield func(verify.TableFile, error) bool) {
		for f, err := range t.Table.Files(ctx) {
			if !yield(verify.TableFile{URL: f.URL, Rows: uint64(f.Rows)}, err) || err != nil {
				return
			}
		}
	}
}
