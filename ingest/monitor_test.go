package ingest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// watched is a lane of which only the state is asked.
type watched struct {
	Lane
	last atomic.Uint64
	down atomic.Bool
}

func (l *watched) State(context.Context) (State, error) {
	if l.down.Load() {
		return State{}, errors.New("no answer")
	}
	return State{Incarnation: "i", First: 1, Last: l.last.Load(), Bytes: 7}, nil
}

// rig runs a monitor over a lane and a filer, in virtual time.
type rig struct {
	lane    watched
	filer   atomic.Bool // down
	health  *Health
	metrics *Metrics
	reg     *prometheus.Registry
	store   *segment.Store
	source  string
}

func newRig(t *testing.T) *rig {
	r := &rig{health: NewHealth(nil), reg: prometheus.NewRegistry()}
	hook := func(memfs.Op) memfs.Fault {
		if r.filer.Load() {
			return memfs.Fault{Before: errors.New("connection refused")}
		}
		return memfs.Fault{}
	}
	id := lane.ID{Group: lane.Default}
	r.source = id.Source("i")
	r.store = segment.NewStore(memfs.New().Client("worker", hook), "bench")
	if err := r.store.CreateCheckpoint(t.Context(), r.source); err != nil {
		t.Fatal(err)
	}
	r.metrics = NewMetrics(r.reg, id.String())
	r.metrics.Health = r.health
	m := &Monitor{Lane: &r.lane, ID: id, Store: r.store, Metrics: r.metrics, Health: r.health}
	go m.Run(t.Context())
	return r
}

// commit moves the checkpoint, as a worker does.
func (r *rig) commit(t *testing.T, sequence uint64) {
	t.Helper()
	file := r.store.CheckpointFile(r.source)
	c, version, err := file.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Save(t.Context(), c.Advance(sequence, time.Now(), nil), version); err != nil {
		t.Fatal(err)
	}
}

// gauge reads what is exported.
func (r *rig) gauge(t *testing.T, name string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_ingest_"+name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func (r *rig) expect(t *testing.T, words string) {
	t.Helper()
	got := fmt.Sprint(r.health.Err())
	if words == "" && r.health.Err() != nil || !strings.Contains(got, words) {
		t.Errorf("at %s: %s, want %q", time.Now().Format("04:05"), got, words)
	}
}

// TestGaugesWithoutCommits: the lag is true while nothing is committed.
func TestGaugesWithoutCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, last := range []uint64{0, 3, 1000} {
			r.lane.last.Store(last)
			<-time.After(lookEvery + time.Second)
			if got := r.gauge(t, "lag_messages"); got != float64(last) {
				t.Errorf("lag %v, want %d", got, last)
			}
		}
		r.commit(t, 900)
		<-time.After(lookEvery + time.Second)
		if lag, at, size := r.gauge(t, "lag_messages"), r.gauge(t, "checkpoint"), r.gauge(t, "lane_bytes"); lag != 100 || at != 900 || size != 7 {
			t.Errorf("lag %v, checkpoint %v, bytes %v", lag, at, size)
		}
	})
}

// TestMonitor: what a probe hears through the life of a worker.
func TestMonitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		wait := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		wait(time.Hour)
		r.expect(t, "") // idle

		r.lane.down.Store(true)
		wait(20 * time.Second)
		r.expect(t, "")
		wait(30 * time.Second)
		r.expect(t, "lane default.0 has been failing for")
		r.expect(t, "no answer")
		r.lane.down.Store(false)
		wait(10 * time.Second)
		r.expect(t, "")

		r.filer.Store(true)
		wait(time.Minute)
		r.expect(t, "filer has been failing")
		r.filer.Store(false)
		wait(15 * time.Second)
		r.expect(t, "")

		// A worker that starts again and again with messages waiting.
		r.lane.last.Store(10)
		for range 50 {
			r.metrics.restart(errors.New("create x: read-only"))
			wait(time.Second)
		}
		r.expect(t, "worker of lane default.0 has been failing")
		r.metrics.flush(Counts{}, 0)
		r.expect(t, "")

		// Messages wait longer than any flush age and nothing fails.
		r.commit(t, 5)
		wait(stuck - 10*time.Second)
		r.expect(t, "")
		wait(time.Minute)
		r.expect(t, "5 messages wait, and it has stood at 5 for")
		r.commit(t, 6)
		wait(6 * time.Second)
		r.expect(t, "")

		// Another worker did the rest: whatever failed here is over.
		r.metrics.restart(errors.New("lost a race"))
		wait(time.Second)
		r.commit(t, 10)
		wait(40 * time.Second)
		r.expect(t, "")
	})
}
