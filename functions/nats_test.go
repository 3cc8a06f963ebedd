package functions

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
)

// TestNATSRestarts: the nats-server goes and comes back while a worker reads.
// The worker notices, looks at the lane again and goes on.
func TestNATSRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := devtest.NATSOn(t, dir, server.RANDOM_PORT)
	b := newBenchOn(t, srv, memfs.New().Client("worker", nil))
	w := b.resident(t, IngestOptions{AutoCreate: true})
	f := b.flood(t)
	for range 3 {
		b.awaitCommitted(t, 300)
		srv = devtest.NATSOn(t, dir, devtest.StopNATS(srv))
	}
	want := f.end(t)
	sum := w.end(t)
	b.whole(t, want)
	if b.metric(t, "restarts_total") == 0 {
		t.Error("the worker did not begin again from its checkpoint")
	}
	if sum.Committed != uint64(want) {
		t.Errorf("%d records, the summary says %d", want, sum.Committed)
	}
}

// TestNATSWiped: the nats-server comes back with an empty store. A worker that
// ran commits nothing and says why.
func TestNATSWiped(t *testing.T) {
	t.Parallel()
	srv := devtest.NATS(t)
	b := newBenchOn(t, srv, memfs.New().Client("worker", nil))
	w := b.resident(t, IngestOptions{AutoCreate: true})
	b.publish(t, 50)
	b.awaitCheckpoint(t, 50)
	devtest.NATSOn(t, t.TempDir(), devtest.StopNATS(srv))
	b.await(t)
	b.log.await(t, lane.ErrNoLane.Error())
	w.stop()
	w.await(t)
	if !errors.Is(w.err, lane.ErrNoLane) || ExitCode(w.err) == ExitDone {
		t.Errorf("the worker ended with %v, exit code %d", w.err, ExitCode(w.err))
	}
	if n := b.count(t); n != 50 {
		t.Errorf("%d records, want the 50 that were committed before", n)
	}
}

// await returns when the connection works again.
func (b *bench) await(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		_, err := b.js.AccountInfo(t.Context())
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// awaitCheckpoint returns when all up to a message is committed.
func (b *bench) awaitCheckpoint(t *testing.T, sequence uint64) {
	t.Helper()
	commits, err := lane.Watch(t.Context(), b.NATS, b.js, laneID)
	if err != nil {
		t.Fatal(err)
	}
	defer commits.Close()
	if err := commits.Wait(t.Context(), b.lane.Incarnation, sequence); err != nil {
		t.Fatal(err)
	}
}
