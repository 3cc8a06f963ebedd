package main

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/infra/devstack"
)

// TestCatalogSettings: which catalog, and whose keys it gets.
func TestCatalogSettings(t *testing.T) {
	stack := devstack.Info{
		S3:      devstack.S3{URL: "http://127.0.0.1:8333", AccessKey: "stack", SecretKey: "key"},
		Catalog: devstack.Catalog{URL: "http://127.0.0.1:8181", Warehouse: "lake"},
	}
	old := stack
	old.Catalog = devstack.Catalog{}
	for _, c := range []struct {
		name string
		info devstack.Info
		cfg  config
		want string // catalog warehouse access secret; "none"; or, after "!", what the error has
	}{
		{"nothing is set", devstack.Info{}, config{}, "none"},
		{"the stack's", stack, config{}, "http://127.0.0.1:8181 lake stack key"},
		{"none beside a stack", stack, config{Catalog: noCatalog}, "none"},
		{"a stack of before there was one", old, config{}, "none"},
		{"another warehouse of the stack", stack, config{Warehouse: "own"}, "http://127.0.0.1:8181 own stack key"},
		{"other keys for the stack's", stack, config{S3AccessKey: "a", S3SecretKey: "b"}, "http://127.0.0.1:8181 lake a b"},
		{"keys of another S3 endpoint", stack, config{S3: "http://x", S3AccessKey: "a", S3SecretKey: "b"}, "http://127.0.0.1:8181 lake stack key"},
		{"a credential for the stack's", stack, config{CatalogCred: "id:se:cret"}, "http://127.0.0.1:8181 lake id se:cret"},
		{"another catalog, which does not get the stack's keys", stack, config{Catalog: "https://x:1"}, "https://x:1 warehouse  "},
		{"another one with the S3 keys", devstack.Info{}, config{Catalog: "https://x:1", S3AccessKey: "a", S3SecretKey: "b"}, "https://x:1 warehouse a b"},
		{"no URL", devstack.Info{}, config{Catalog: "x:1"}, "!want a URL"},
		{"another scheme", devstack.Info{}, config{Catalog: "s3://x"}, "!want a URL"},
		{"no host", devstack.Info{}, config{Catalog: "http://"}, "!want a URL"},
		{"keys in the URL", devstack.Info{}, config{Catalog: "http://a:b@x"}, "!catalog-credential"},
		{"half a credential", devstack.Info{}, config{Catalog: "http://x", CatalogCred: "id"}, "!id:secret"},
		{"half a credential", devstack.Info{}, config{Catalog: "http://x", CatalogCred: "id:"}, "!id:secret"},
		{"half a credential", devstack.Info{}, config{Catalog: "http://x", CatalogCred: ":s"}, "!id:secret"},
	} {
		c.cfg.locateCatalog(c.info)
		s, ok, err := c.cfg.tableSettings()
		got := strings.Join([]string{s.URL, s.Warehouse, s.AccessKey, s.SecretKey}, " ")
		switch says, fails := strings.CutPrefix(c.want, "!"); {
		case fails:
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %q, %v", c.name, got, err)
			}
		case err != nil || ok != (c.want != "none") || ok && got != c.want:
			t.Errorf("%s: %q, %t, %v, want %q", c.name, got, ok, err, c.want)
		}
	}
}

// TestCoverage: each segment counts once, where it is.
func TestCoverage(t *testing.T) {
	list := []compactor.Candidate{
		{State: compactor.Live, Records: 1},
		{State: compactor.Sealed, Do: compactor.Rewrite, Records: 10},
		{State: compactor.Quarantined, Records: 100},
		{State: compactor.Compacted, Do: compactor.Commit, Records: 1000},
		{State: compactor.InTable, Records: 10_000},
		{State: compactor.Trimmed, Records: 100_000},
		{State: compactor.Trimmed, Do: compactor.Commit, Records: 1_000_000}, // without a catalog once
	}
	v := coverageOf(list, true)
	if v.Live.Records != 1 || v.Sealed.Records != 10 || v.Quarantined.Records != 100 || v.Compacted.Records != 1_001_000 || v.InTable.Records != 110_000 || v.InTable.Segments != 2 {
		t.Errorf("with a catalog: %+v", v)
	}
	v = coverageOf(list, false)
	if v.InTable.Segments != 0 || v.Compacted.Records != 1_111_000 || v.Compacted.Segments != 4 {
		t.Errorf("without: %+v", v)
	}
}

// TestTableSQL: names and URLs are quoted.
func TestTableSQL(t *testing.T) {
	v := tableView{Catalog: "http://x:1/", Warehouse: "lake", Table: &tableHas{Name: "spillway.order-lines"}}
	if got, want := v.duckDB(), `ATTACH 'lake' AS lake (TYPE iceberg, ENDPOINT 'http://x:1'); SELECT count(*) FROM lake."spillway"."order-lines";`; got != want {
		t.Errorf("%s", got)
	}
	if got := (tableView{}).duckDB(); got != "" {
		t.Errorf("without a table: %s", got)
	}
	got := readParquet([]fileView{{URL: "s3://a/b"}, {URL: "s3://it's"}})
	if want := "SELECT * FROM read_parquet(['s3://a/b',\n  's3://it''s'])"; got != want {
		t.Errorf("%s", got)
	}
	if got := readParquet(nil); !strings.HasPrefix(got, "--") {
		t.Errorf("without files: %s", got)
	}
}
