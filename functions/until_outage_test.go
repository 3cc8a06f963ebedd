package functions

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestOnceUntilTheOutage: the filer works, then does not: what was committed
// before is told, and the rest is left.
func TestOnceUntilTheOutage(t *testing.T) {
	t.Parallel()
	for _, c := range outages {
		if c.name == "slow" {
			continue // as above
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(c.fault)
			b := newBenchOn(t, devtest.NATS(t), memfs.New().Client("worker", o.hook))
			w := b.resident(t, IngestOptions{AutoCreate: true, Once: true, Deadline: 6 * time.Second})
			f := b.flood(t)
			b.awaitCommitted(t, 500)
			o.on.Store(true)
			w.await(t)
			if ExitCode(w.err) != ExitRetry || w.err == nil || !strings.Contains(w.err.Error(), c.why) {
				t.Errorf("%v, exit code %d: want %d and %q", w.err, ExitCode(w.err), ExitRetry, c.why)
			}
			if w.sum.Committed < 500 {
				t.Errorf("the summary tells of %d records only: %+v", w.sum.Committed, w.sum)
			}
			o.on.Store(false)
			b.resident(t, IngestOptions{AutoCreate: true})
			b.whole(t, f.end(t))
		})
	}
}
