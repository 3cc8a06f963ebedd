//go:build duckdb

package duckdb

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/lane"
)

// recipes are the statements of SQL that docs/RECIPES.md has under a heading.
func recipes(t *testing.T, heading string) (statements []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "RECIPES.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(data), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/RECIPES.md has no %q", heading)
	}
	text = regexp.MustCompile(`(?m)^##`).Split(text, 2)[0]
	for _, block := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for s := range strings.SplitSeq(block[1], ";\n") {
			if s = strings.TrimSpace(s); s != "" {
				statements = append(statements, s)
			}
		}
	}
	return statements
}

// TestRecipes: what docs/RECIPES.md says was run is run.
func TestRecipes(t *testing.T) {
	w := newWorld(t, "recipes")
	records := w.recipeRecords(t)
	w.ingest(t)
	w.seal(t)
	files := w.compact(t)
	db := open(t)
	local := w.copyTopic(t)
	ways := recipes(t, "### Files of manifests")
	if len(ways) != 3 {
		t.Fatalf("%d statements for files of manifests: %q", len(ways), ways)
	}
	for _, s := range ways {
		db.query(t, strings.Replace(s, "s3://spillway/topics/flights/INCARNATION", local, 1))
	}
	count := "select count(*) as rows, count(distinct (_segment, _offset)) as records from "
	if diff := cmp.Diff(db.query(t, count+ReadParquet(files)), db.query(t, count+"flights")); diff != "" {
		t.Errorf("manifests and table have different files: %s", diff)
	}
	queries := recipes(t, "## Queries (DuckDB)")
	if len(queries) < 14 {
		t.Errorf("only %d queries", len(queries))
	}
	for i, s := range queries {
		rows := db.query(t, s)
		none := strings.Contains(s, "HAVING times > 1") || strings.HasPrefix(s, "CREATE")
		if none != (len(rows) == 0) {
			t.Errorf("%s\ngives %d rows: %v", s, len(rows), rows)
		}
		if i == 0 && rows[0]["records"] != int64(records) {
			t.Errorf("%d records published: %v", records, rows)
		}
	}
}

// recipeRecords publishes what the queries are about, and gives how many records.
func (w *world) recipeRecords(t *testing.T) (n int) {
	t.Helper()
	flights, err := rig.Flights()
	if err != nil {
		t.Fatal(err)
	}
	var records []client.Record
	for i, f := range flights[:1000] {
		r := client.Record{Key: []byte(f.Key), Value: f.Value}
		switch i % 10 {
		case 0:
			r.Key = nil
		case 1:
			r.Key = []byte{}
		case 2:
			r.Headers = []client.Header{{Name: "trace", Value: []byte("a")}, {Name: "trace", Value: []byte("b")}}
		case 3:
			r.Value = fmt.Appendf(nil, `{"id":%d,%s`, i%7, f.Value[1:])
		}
		records = append(records, r)
	}
	w.publish(t, records...)
	js, err := jetstream.New(w.deps.NATS)
	if err != nil {
		t.Fatal(err)
	}
	m := nats.NewMsg(lane.ID{Group: lane.Default}.Subject(w.topic.Name))
	m.Header.Set(lane.HeaderEventTime, "yesterday")
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.submit(t, client.Reference{URL: w.put(t, "payload", []byte("a payload"))}, client.Record{})
	lines := []byte("{\"date\":\"2001-01-01 00:01\",\"delay\":1,\"distance\":2,\"origin\":\"MCI\",\"destination\":\"MDW\"}\nno JSON\n")
	w.submit(t, client.Reference{URL: w.put(t, "lines.ndjson", lines), Batch: &client.Batch{}}, client.Record{})
	w.submit(t, client.Reference{URL: w.put(t, "empty.ndjson", []byte("\n")), Batch: &client.Batch{}}, client.Record{})
	return len(records) + 4
}

// copyTopic copies what is compacted of a topic to disk, as it lies on the filer.
func (w *world) copyTopic(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	segments, err := w.topic.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range segments {
		m, err := s.Manifest(t.Context())
		if err != nil {
			continue // the live ones have none
		}
		w.copyFiles(t, dir, path.Join("segments", string(s.ID), "manifest.json"))
		for _, f := range m.Files {
			w.copyFiles(t, dir, path.Join("data", string(s.ID), f.Name))
		}
	}
	return dir
}

func (w *world) copyFiles(t *testing.T, dir, name string) {
	t.Helper()
	url := "s3://" + strings.TrimPrefix(path.Join(w.topic.Dir(), name), "/buckets/")
	copies, err := Fetch(t.Context(), w.deps.Store.Filer, t.TempDir(), []string{url})
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, path.Dir(name)), 0o755)
	}
	if err == nil {
		err = os.Rename(copies[0], filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMarked: what RECIPES says of other engines than DuckDB names what was run, or that
// nothing was.
func TestMarked(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "docs", "RECIPES.md"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{e.Version, "*Run: DuckDB " + strings.Split(e.Version, "-")[0]} {
		if !strings.Contains(string(data), want) {
			t.Errorf("docs/RECIPES.md does not say %q", want)
		}
	}
	sections := regexp.MustCompile(`(?m)^#+ .*$`).Split(string(data), -1)
	unmarked := slices.IndexFunc(sections, func(s string) bool {
		return strings.Contains(s, "```sql") && !regexp.MustCompile(`\*(Run|Read): `).MatchString(s)
	})
	if unmarked >= 0 {
		t.Errorf("SQL that does not say whether it was run: %.300s", sections[unmarked])
	}
}
