package rows

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var updateGolden = flag.Bool("update-parquet", false, "write the golden rows anew")

// sample gives a file of testdata.
func sample(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// golden compares rows with a file that has one in each line.
func golden(t *testing.T, name string, got []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	text := strings.Join(got, "\n") + "\n"
	if *updateGolden {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(string(sample(t, name)), text); d != "" {
		t.Error(d)
	}
}

// TestParquetFlights reads a sample of the real flights of 2001, of which DuckDB
// gives the same sums.
func TestParquetFlights(t *testing.T) {
	got, err := readRows(t, newFile(sample(t, "flights.parquet")), Options{Format: Parquet})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"date":"2001-01-01T00:01:00.000000Z","delay":33,"distance":2176,"origin":"LAS","destination":"PHL"}`; got[0] != want {
		t.Errorf("the first row is %s, not %s", got[0], want)
	}
	var delay, distance int
	origins := map[string]bool{}
	for _, row := range got {
		var f struct {
			Delay, Distance int
			Origin          string
		}
		if err := json.Unmarshal([]byte(row), &f); err != nil {
			t.Fatal(err)
		}
		delay, distance, origins[f.Origin] = delay+f.Delay, distance+f.Distance, true
	}
	if got, want := fmt.Sprint(len(got), delay, distance, len(origins)), "6000 49788 4750821 206"; got != want {
		t.Errorf("rows, delays, distances and origins are %s, not %s", got, want)
	}
}

// TestParquetOfDuckDB reads files that DuckDB 1.5.6 wrote: all of its types, packed by
// snappy, and the delta encodings of its second version.
func TestParquetOfDuckDB(t *testing.T) {
	for _, name := range []string{"duckdb-types", "duckdb-delta"} {
		got, err := readRows(t, newFile(sample(t, name+".parquet")), Options{Format: Parquet})
		if err != nil {
			t.Fatal(err)
		}
		for i, row := range got {
			if !json.Valid([]byte(row)) {
				t.Fatalf("row %d is no JSON: %s", i, row)
			}
		}
		if name == "duckdb-types" {
			golden(t, name+".golden.ndjson", got)
			continue
		}
		for i, row := range got {
			want := fmt.Sprintf(`{"id":%d,"s":"prefix/long/shared/%d","n":%d,"d":%d,"l":[%d,%d]}`, i, i, 3*i, i, i, i+1)
			if row != want {
				t.Fatalf("row %d is %s, not %s", i, row, want)
			}
		}
		if len(got) != 3000 {
			t.Errorf("%d rows of 3000", len(got))
		}
	}
}
