package functions

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/topic"
)

// publishTo publishes one message by each name.
func (b *bench) publishTo(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := b.js.Publish(t.Context(), laneID.Subject(name), []byte("{}")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuckets: a topic that a worker makes allows the buckets that the worker is
// told, one that was there before is as it was, and the one for messages that name
// no topic allows none.
func TestBuckets(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.create(t, "there")
	b.publishTo(t, "t", "there", "NO-NAME")
	want := []string{"films", "photos/2026/"}
	sum, err := Ingest(t.Context(), b.Deps, IngestOptions{Once: true, Deadline: patience, AutoCreate: true, Buckets: []string{"photos/2026/", "films"}})
	if err != nil || sum.Committed != 3 {
		t.Fatalf("%+v, error %v", sum, err)
	}
	for name, want := range map[string][]string{"t": want, "there": nil, topic.Unrouted: nil} {
		d, err := b.Store.Definition(t.Context(), name)
		if diff := cmp.Diff(want, d.Buckets); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got)\n%s", name, err, diff)
		}
	}
}

// TestBadBuckets: a list that cannot be is a fault of the settings, and is told
// before a message is read.
func TestBadBuckets(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.publishTo(t, "t")
	sum, err := Ingest(t.Context(), b.Deps, IngestOptions{Once: true, Deadline: patience, AutoCreate: true, Buckets: []string{"photos", "X"}})
	if ExitCode(err) != ExitConfig || sum.Messages != 0 {
		t.Errorf("%+v, exit code %d: %v", sum, ExitCode(err), err)
	}
}
