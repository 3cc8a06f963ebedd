package backfill

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestDivide: every object once, in the order of the list; no source without one;
// and none much longer than another.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOf(rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(0, 100), rapid.Int64Range(0, 1<<40))).Draw(t, "sizes")
		parallel := rapid.IntRange(-1, 100).Draw(t, "parallel")
		objects := make([]Object, len(sizes))
		number := map[string]int{}
		largest := int64(0)
		for i, size := range sizes {
			objects[i] = Object{Key: fmt.Sprint(i), Size: size}
			number[objects[i].Key] = i
			largest = max(largest, size)
		}
		sources := Divide(objects, "id", parallel)
		if want := min(len(objects), max(parallel, 1), MaxSources); len(sources) != want {
			t.Fatalf("%d sources, want %d", len(sources), want)
		}
		least, most := int64(1<<62), int64(0)
		for i, s := range sources {
			if s.Name != SourceName("id", i) || len(s.Objects) == 0 {
				t.Fatalf("source %d: %+v", i, s)
			}
			last, load := -1, int64(0)
			for _, o := range s.Objects {
				n, ok := number[o.Key]
				if !ok || n <= last {
					t.Fatalf("object %d after %d, known %v", n, last, ok)
				}
				delete(number, o.Key)
				last, load = n, load+o.Size+perObject
			}
			least, most = min(least, load), max(most, load)
		}
		if len(number) != 0 {
			t.Fatalf("left out: %v", slices.Collect(maps.Keys(number)))
		}
		if len(sources) > 0 && most-least > largest+perObject {
			t.Fatalf("from %d to %d, the largest object has %d", least, most, largest)
		}
		if diff := cmp.Diff(sources, Divide(objects, "id", parallel)); diff != "" {
			t.Fatal(diff)
		}
	})
}
