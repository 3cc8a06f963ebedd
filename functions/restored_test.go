package functions

import (
	"errors"
	"os"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestNATSRestored: the nats-server comes back with an older copy of its store.
// What is published then has numbers that are committed already, so nothing is
// read until somebody has looked at it.
func TestNATSRestored(t *testing.T) {
	t.Parallel()
	dir, backup := t.TempDir(), t.TempDir()
	srv := devtest.NATSOn(t, dir, server.RANDOM_PORT)
	b := newBenchOn(t, srv, memfs.New().Client("worker", nil))
	b.publish(t, 50)
	if _, err := b.once(t, 0); err != nil {
		t.Fatal(err)
	}
	port := devtest.StopNATS(srv)
	if err := os.CopyFS(backup, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	srv = devtest.NATSOn(t, dir, port)
	b.await(t)
	w := b.resident(t, IngestOptions{AutoCreate: true})
	for i := range 50 {
		b.send(t, byte(50+i))
	}
	b.awaitCheckpoint(t, 100)
	devtest.StopNATS(srv)
	devtest.NATSOn(t, backup, port)
	b.await(t)
	w.await(t)
	var back *ingest.LaneBackError
	if !errors.As(w.err, &back) || ExitCode(w.err) != ExitConfig {
		t.Errorf("the worker that ran ended with %v, exit code %d", w.err, ExitCode(w.err))
	}
	for _, more := range []int{20, 200} { // below the checkpoint, then above it
		b.publish(t, more)
		sum, err := b.once(t, 0)
		if !errors.As(err, &back) || ExitCode(err) != ExitConfig || sum.Messages != 0 {
			t.Errorf("%d messages later: %+v, %v, exit code %d", more, sum, err, ExitCode(err))
		}
	}
	if n := b.count(t); n != 100 {
		t.Errorf("%d records, want the 100 that were committed before", n)
	}
}

func (b *bench) send(t *testing.T, value byte) {
	t.Helper()
	if _, err := b.js.Publish(t.Context(), laneID.Subject("t"), []byte{value}); err != nil {
		t.Fatal(err)
	}
}
