package functions

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

// group makes a lane group.
func (b *bench) group(t *testing.T, name string, n int) {
	t.Helper()
	if _, err := ingest.CreateGroup(t.Context(), b.NATS, b.Store, name, lane.Settings{MaxBytes: 64 << 20, Lanes: n}); err != nil {
		t.Fatal(err)
	}
}

// spread makes a topic of several segments.
func (b *bench) spread(t *testing.T, name string, segments int) {
	t.Helper()
	def := topic.Definition{Name: name, Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default}
	if _, err := b.Store.CreateTopic(t.Context(), def, segments, time.Now()); err != nil {
		t.Fatal(err)
	}
}

// run runs a resident function until the returned function is called. Metrics
// are its own.
func (b *bench) run(t *testing.T, group string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := b.Deps
	d.Metrics = nil
	var g errgroup.Group
	g.Go(func() error { _, err := Ingest(ctx, d, IngestOptions{Group: group}); return err })
	var once atomic.Bool
	stop = func() {
		if once.Swap(true) {
			return
		}
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("group %s: %v", group, err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// inOrder reads a topic and checks that the values of each key are 0, 1, 2 and so
// on, as many as were published.
func (b *bench) inOrder(t *testing.T, name string, counts map[string]int) {
	t.Helper()
	tp, err := b.Store.Topic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := tp.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	next, wrong := map[string]int{}, 0
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if want := next[string(item.Key)]; string(item.Value) != strconv.Itoa(want) && wrong < 5 {
			wrong++
			t.Errorf("key %s: %s comes where %d should", item.Key, item.Value, want)
		}
		next[string(item.Key)]++
	}
	for key, n := range counts {
		if next[key] != n {
			t.Errorf("key %s: %d records, want %d", key, next[key], n)
		}
	}
}

func TestOnceDrainsAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	if _, err := Ingest(t.Context(), b.Deps, IngestOptions{Group: "big", Once: true}); ExitCode(err) != ExitConfig || !errors.Is(err, lane.ErrNoLane) {
		t.Errorf("a group that is not there: %v", err)
	}
	b.group(t, "big", 8)
	b.spread(t, "t", 4)
	if _, err := ingest.MoveTopic(t.Context(), b.NATS, b.Store, "t", "big"); err != nil {
		t.Fatal(err)
	}
	p, err := client.NewProducer(b.NATS, client.Options{BatchBytes: 1 << 10})
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	for i := range 3000 {
		key := fmt.Sprint("k", i%97)
		if _, err := p.Publish(t.Context(), "t", client.Record{Key: []byte(key), Value: []byte(strconv.Itoa(counts[key]))}); err != nil {
			t.Fatal(err)
		}
		counts[key]++
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	sum, err := Ingest(t.Context(), b.Deps, IngestOptions{Group: "big", Once: true, Deadline: 50 * time.Second})
	if err != nil || !sum.Drained || sum.Committed != 3000 || len(sum.Lanes) != 8 {
		t.Fatalf("%+v, %v", sum, err)
	}
	for _, l := range sum.Lanes {
		if l.Committed == 0 || !l.Drained {
			t.Errorf("lane %s: %+v", l.Lane, l)
		}
	}
	b.inOrder(t, "t", counts)
}

// holders counts the leases that each worker has.
func (b *bench) holders(t *testing.T, group string, n int) map[string]int {
	t.Helper()
	held := map[string]int{}
	for i := range n {
		holder, _, err := ingest.Holder(t.Context(), b.js, lane.ID{Group: group, N: i})
		if err != nil {
			t.Fatal(err)
		}
		held[holder]++
	}
	return held
}

func TestProcessesShareTheLanesOfAGroup(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.group(t, "big", 8)
	stop := b.run(t, "big")
	until(t, "one process has all lanes", func() bool {
		held := b.holders(t, "big", 8)
		return len(held) == 1 && held[""] == 0
	})
	b.run(t, "big")
	until(t, "two processes have half of them each", func() bool {
		held := b.holders(t, "big", 8)
		for _, n := range held {
			if n != 4 {
				return false
			}
		}
		return held[""] == 0 && len(held) == 2
	})
	stop()
	until(t, "the other one has them all", func() bool {
		held := b.holders(t, "big", 8)
		return len(held) == 1 && held[""] == 0
	})
}

// TestOneLaneThatStopsDoesNotStopTheOthers, and is read again when it is mended.
func TestOneLaneThatStopsDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.group(t, "big", 2)
	b.spread(t, "t", 1)
	ids := []lane.ID{{Group: "big", N: 0}, {Group: "big", N: 1}}
	publish := func(id lane.ID) {
		if _, err := b.js.Publish(t.Context(), id.Subject("t"), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	publish(ids[0])
	if _, err := Ingest(t.Context(), b.Deps, IngestOptions{Group: "big", Once: true}); err != nil {
		t.Fatal(err)
	}
	if err := b.js.DeleteStream(t.Context(), ids[0].Stream()); err != nil { // the checkpoint of its successor is lost
		t.Fatal(err)
	}
	if _, err := lane.Ensure(t.Context(), b.js, ids[0], lane.Settings{MaxBytes: 1 << 20, Lanes: 2}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := b.Deps
	d.Metrics = nil
	ended := make(chan error, 1)
	go func() { _, err := Ingest(ctx, d, IngestOptions{Group: "big"}); ended <- err }()
	publish(ids[1])
	info, err := lane.Open(t.Context(), b.js, ids[1])
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the other lane is read", func() bool {
		c, _, err := b.Store.CheckpointFile(ids[1].Source(info.Incarnation)).Load(t.Context())
		return err == nil && c.Sequence == 1
	})
	cancel()
	if err := <-ended; !errors.Is(err, ingest.ErrNoCheckpoint) || ExitCode(err) != ExitConfig {
		t.Errorf("it ends with %v", err)
	}
}

// TestMovesUnderLoad moves a topic between groups while producers publish and
// workers read. The order of every key holds, also of producers that stay where
// they are.
func TestMovesUnderLoad(t *testing.T) {
	t.Parallel()
	b := newBench(t, 0)
	b.group(t, "big", 4)
	b.group(t, "small", 2)
	b.spread(t, "t", 3)
	for _, group := range []string{lane.Default, "big", "small"} {
		b.run(t, group)
	}
	var stop atomic.Bool
	var g errgroup.Group
	counts := make([]map[string]int, 3)
	for i := range counts {
		counts[i] = map[string]int{}
		o := client.Options{Linger: time.Millisecond, BatchBytes: 2 << 10}
		if i == 0 {
			o.Group = lane.Default // one that never notices
		}
		p, err := client.NewProducer(b.NATS, o)
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			for n := 0; !stop.Load(); n++ {
				key := fmt.Sprintf("p%d-%d", i, n%20)
				r := client.Record{Key: []byte(key), Value: []byte(strconv.Itoa(counts[i][key]))}
				if _, err := p.Publish(t.Context(), "t", r); err != nil {
					return err
				}
				counts[i][key]++
				if n%200 == 0 {
					if err := p.Flush(t.Context()); err != nil {
						return err
					}
				}
			}
			return p.Close(t.Context())
		})
	}
	for _, to := range []string{"big", "small", lane.Default, "big", lane.Default, "small"} {
		m, err := ingest.MoveTopic(t.Context(), b.NATS, b.Store, "t", to)
		if err != nil || len(m.From) != 1 || len(m.After) == 0 {
			t.Fatalf("%+v, %v", m, err)
		}
		if to != "small" { // and sometimes on at once
			if err := m.Wait(t.Context(), b.js, b.Store, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop.Store(true)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	all, total := map[string]int{}, 0
	for _, c := range counts {
		for k, n := range c {
			all[k] = n
			total += n
		}
	}
	for _, group := range []string{lane.Default, "big", "small"} {
		infos, err := lane.OpenGroup(t.Context(), b.js, group)
		if err != nil {
			t.Fatal(err)
		}
		for _, info := range infos {
			until(t, "lane "+info.ID.String()+" is committed", func() bool {
				c, _, err := b.Store.CheckpointFile(info.ID.Source(info.Incarnation)).Load(t.Context())
				return err == nil && c.Sequence >= info.Last
			})
		}
	}
	t.Logf("%d records", total)
	b.inOrder(t, "t", all)
	tp, err := b.Store.Topic(t.Context(), "t")
	if err != nil || tp.Lanes != "small" {
		t.Errorf("bound to %s, %v", tp.Lanes, err)
	}
	if m, err := ingest.MoveTopic(t.Context(), b.NATS, b.Store, "t", "small"); err != nil || len(m.From) != 0 {
		t.Errorf("to where it is: %+v, %v", m, err)
	}
	if _, err := ingest.MoveTopic(t.Context(), b.NATS, b.Store, "t", "nowhere"); !errors.Is(err, lane.ErrNoLane) {
		t.Errorf("to a group that is not there: %v", err)
	}
}
