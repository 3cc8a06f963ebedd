package segment

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestDeletedWithItsJobs: the checkpoints of a topic's jobs go with it, and no
// others, wherever the deletion is killed.
func TestDeletedWithItsJobs(t *testing.T) {
	for n := 1; ; n++ {
		fs := memfs.New()
		top, _ := newTopic(t, fs, 1)
		store := testStore(fs, nil)
		for _, id := range []string{"a", "b"} {
			if err := store.Filer.Create(t.Context(), path.Join(top.Dir(), "backfills", id, "job.json"), filer.File{ID: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, source := range []string{"backfill.a.0", "backfill.a.1", "backfill.a.10", "backfill.b.0", "backfill.aa.0", "backfill.c.0", "lane.default.0.a"} {
			if err := store.CreateCheckpoint(t.Context(), source); err != nil {
				t.Fatal(err)
			}
		}
		ctx, kill := context.WithCancel(t.Context())
		calls := 0
		dying := testStore(fs, func(memfs.Op) memfs.Fault {
			if calls++; calls >= n {
				kill()
				return memfs.Fault{Before: errors.New("crashed")}
			}
			return memfs.Fault{}
		})
		killed := dying.DeleteTopic(ctx, "orders", noon) != nil
		kill()
		if killed {
			if err := store.DeleteTopic(t.Context(), "orders", noon); err != nil && !errors.Is(err, ErrNoTopic) {
				t.Fatal(err)
			}
		}
		left := slices.DeleteFunc(fs.Paths(), func(p string) bool { return strings.Contains(p, "/active/") })
		want := []string{"backfill.aa.0", "backfill.c.0", "lane.default.0.a"}
		for i, source := range want {
			want[i] = "/buckets/test/checkpoints/" + source + ".json"
		}
		if !slices.Equal(left, want) {
			t.Fatal(fmt.Sprintf("killed at call %d: left", n), left)
		}
		if !killed {
			return
		}
	}
}
