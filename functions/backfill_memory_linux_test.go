package functions

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestMemoryOfABackfill: the real program takes in 16 files at a time in at most 256
// MiB. Not parallel: it keeps the machine busy.
func TestMemoryOfABackfill(t *testing.T) {
	const files, rows = 16, 50_000
	stack := devtest.Stack(t)
	b, _ := newWeedBench(t, stack, "backfill-memory")
	if _, err := b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
	}, 4, time.Now()); err != nil {
		t.Fatal(err)
	}
	dir, size := t.TempDir(), 0
	for i := range files {
		data := lines(i*rows, rows)
		size += len(data)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.ndjson.gz", i)), zipped(t, data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	c := b.child(t, "backfill", "run", "t", dir, "--key", "origin", "--parallel", fmt.Sprint(files),
		"--nats", b.NATS.ConnectedUrl(), "--filer", stack.Info.Filer, "--bucket", "backfill-memory")
	ended := make(chan error, 1)
	var g errgroup.Group
	g.Go(func() error { ended <- c.cmd.Wait(); return nil })
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	peak, err := uint64(0), error(nil)
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-look.C:
			if now, err := residentPeak(c.cmd.Process.Pid); err == nil { // else it is ending
				peak = max(peak, now)
			}
		}
	}
	if err != nil || peak == 0 {
		t.Fatalf("%v, peak %d\n%s", err, peak, c.output())
	}
	took := time.Since(start)
	t.Logf("%d rows, %d MB in %.1f s; peak of memory %d MiB\n%s", files*rows, size/1e6, took.Seconds(), peak>>20, c.output())
	if peak > 256<<20 {
		t.Errorf("the backfill took %d MiB", peak>>20)
	}
	if n := len(b.read(t, "t")); n != files*rows {
		t.Errorf("%d records of %d rows", n, files*rows)
	}
}
