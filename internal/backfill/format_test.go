package backfill

import (
	"os"
	"strings"
	"testing"
)

// TestFormat: docs/FORMAT.md shows the golden files.
func TestFormat(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	doc := strings.ReplaceAll(read("../../docs/FORMAT.md"), ",\n\"", ",\"") // where a long line is broken
	for _, name := range []string{"job.json", "job-expand.json", "state-done.json"} {
		if !strings.Contains(doc, strings.ReplaceAll(read("testdata/"+name), ",\n\"", ",\"")) {
			t.Errorf("docs/FORMAT.md does not show %s", name)
		}
	}
}
