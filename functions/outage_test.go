package functions

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// outage is what befalls a filer while it is on.
type outage struct {
	fault func(memfs.Op) memfs.Fault
	on    atomic.Bool
	hits  chan struct{}
}

func newOutage(fault func(memfs.Op) memfs.Fault) *outage {
	return &outage{fault: fault, hits: make(chan struct{}, 1)}
}

func (o *outage) hook(op memfs.Op) memfs.Fault {
	if !o.on.Load() {
		return memfs.Fault{}
	}
	f := o.fault(op)
	if f != (memfs.Fault{}) {
		select {
		case o.hits <- struct{}{}:
		default:
		}
	}
	return f
}

// strike turns the outage on, and off again when it has hit n calls.
func (o *outage) strike(t *testing.T, n int) {
	t.Helper()
	o.on.Store(true)
	late := time.After(patience)
	for range n {
		select {
		case <-o.hits:
		case <-late:
			t.Fatal("the outage hits nobody")
		}
	}
	o.on.Store(false)
}

// writes tells the calls that a filer refuses when it is read-only.
func writes(op memfs.Op) bool { return op.Name == "Create" || op.Name == "Upload" }

var outages = []struct {
	name  string
	fault func(memfs.Op) memfs.Fault
	why   string // what a worker that runs into it says
	again bool   // and whether it begins again from the checkpoint
	hits  int    // calls that the outage is to hit before it ends
}{
	{"down", func(memfs.Op) memfs.Fault {
		return memfs.Fault{Before: errors.New("connection refused")}
	}, "connection refused", false, 4},
	{"cut off", func(memfs.Op) memfs.Fault {
		return memfs.Fault{After: errors.New("connection reset")}
	}, "connection reset", false, 4},
	{"read-only", func(op memfs.Op) memfs.Fault {
		if writes(op) {
			return memfs.Fault{Before: fmt.Errorf("create: %w", filer.ErrReadOnly)}
		}
		return memfs.Fault{}
	}, "read-only", true, 2},
	{"slow", func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: 300 * time.Millisecond} }, "", false, 4},
	{"stuck", func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: time.Hour} }, "/buckets/bench/", false, 1},
}

// TestOnceInAnOutage: a run that meets a filer that does not work ends before
// its deadline with exit code 75 and says why; the next one finds all there.
func TestOnceInAnOutage(t *testing.T) {
	t.Parallel()
	for _, c := range outages {
		if c.name == "slow" {
			continue // it would do its work
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(c.fault)
			b := newBenchOn(t, devtest.NATS(t), memfs.New().Client("worker", o.hook))
			b.publish(t, 100)
			o.on.Store(true)
			const deadline = 3 * time.Second
			start := time.Now()
			sum, err := b.once(t, deadline)
			took := time.Since(start)
			if ExitCode(err) != ExitRetry || sum.Drained || sum.Committed != 0 {
				t.Errorf("%+v, %v, exit code %d", sum, err, ExitCode(err))
			}
			if err == nil || !strings.Contains(err.Error(), c.why) {
				t.Errorf("%v: does not say %q", err, c.why)
			}
			if took > deadline+time.Second {
				t.Errorf("took %s", took)
			}
			o.on.Store(false)
			if sum, err := b.once(t, 30*time.Second); err != nil || sum.Committed != 100 || !sum.Drained {
				t.Errorf("afterwards: %+v, %v", sum, err)
			}
			if n := b.count(t); n != 100 {
				t.Errorf("%d records of 100", n)
			}
			b.verify(t, "t")
		})
	}
}

// TestFloodThroughAnOutage: a resident worker waits the outage out.
func TestFloodThroughAnOutage(t *testing.T) {
	t.Parallel()
	for _, c := range outages {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(c.fault)
			fs := memfs.New()
			b := newBenchOn(t, devtest.NATS(t), fs.Client("worker", o.hook))
			w := b.resident(t, IngestOptions{AutoCreate: true})
			f := b.flood(t)
			for range 2 {
				b.awaitCommitted(t, 300)
				o.strike(t, c.hits)
			}
			want := f.end(t)
			sum := w.end(t)
			b.whole(t, want)
			if sum.Committed != uint64(want) || b.metric(t, "records_total") != float64(want) {
				t.Errorf("%d records; the summary says %d, the metrics %g", want, sum.Committed, b.metric(t, "records_total"))
			}
			if n := b.metric(t, "restarts_total"); c.again && n == 0 {
				t.Error("the worker says that it did not begin again")
			}
			if text, _ := b.log.now(); c.again && !strings.Contains(text, c.why) {
				t.Errorf("the log does not say %q", c.why)
			}
			if p := fs.Problems(); len(p) > 0 {
				t.Errorf("problems: %q", p)
			}
		})
	}
}

// awaitCommitted returns when n more records have been committed.
func (b *bench) awaitCommitted(t *testing.T, n float64) {
	t.Helper()
	start := b.metric(t, "records_total")
	news, err := b.NATS.SubscribeSync(laneID.CommitSubject())
	if err != nil {
		t.Fatal(err)
	}
	for b.metric(t, "records_total") < start+n {
		if _, err := news.NextMsg(patience); err != nil {
			t.Fatalf("nothing is committed: %v", err)
		}
	}
	if err := news.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
}
