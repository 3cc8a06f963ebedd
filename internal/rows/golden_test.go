package rows_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/rows"
)

// updating tells of the flag -update, which the tests inside the package define.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

// Row numbers never change: what these files give is compared with what it always
// was (testdata/text/*.golden). A difference is a break of FORMAT.
func TestGoldenText(t *testing.T) {
	files, err := filepath.Glob("testdata/text/*.in")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d samples, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		o := rows.Options{Format: rows.Format(strings.TrimPrefix(filepath.Ext(strings.TrimSuffix(file, ".in")), "."))}
		if strings.Contains(file, "semicolon") {
			o.CSV.Comma = ';'
		}
		list, err := all(t, data, o)
		got := show(list)
		if err != nil {
			got += "error: " + err.Error() + "\n"
		}
		golden := strings.TrimSuffix(file, ".in") + ".golden"
		if updating() {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(want) != got {
			t.Errorf("%s: %v, got\n%s", file, err, got)
		}
	}
}
