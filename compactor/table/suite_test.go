package table_test

import (
	"testing"

	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func TestSuiteOnTheFake(t *testing.T) {
	tabletest.Run(t, func(t *testing.T) tabletest.Env {
		t.Parallel()
		fs := memfs.New()
		t.Cleanup(func() {
			if problems := fs.Problems(); len(problems) > 0 {
				t.Errorf("problems: %q", problems)
			}
			if n := fs.Blobs(); n > 0 {
				t.Errorf("%d blobs are left that no file names", n)
			}
		})
		return tabletest.Env{
			Catalog: tabletest.NewServer(fs.Client("catalog", nil), "warehouse").Client(nil),
			Store:   fs.Client("tables", nil), Warehouse: "warehouse", Bucket: "spillway",
		}
	})
}

func TestSuiteOnSeaweedFS(t *testing.T) {
	cat, store := connect(t), dial(t)
	tabletest.Run(t, func(t *testing.T) tabletest.Env {
		info := devtest.Weed(t).Info
		return tabletest.Env{Catalog: cat, Store: store, Warehouse: info.Catalog.Warehouse, Bucket: info.Bucket}
	})
}
