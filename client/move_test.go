package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/lane"
)

// makeGroup makes a group's lanes.
func (w *world) makeGroup(group string, n int, settings lane.Settings) {
	w.t.Helper()
	settings.MaxBytes, settings.Lanes = max(settings.MaxBytes, 64<<20), n
	for i := range n {
		if _, err := lane.Ensure(context.Background(), w.js, lane.ID{Group: group, N: i}, settings); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) bind(topic, group string, n int) {
	w.t.Helper()
	if err := lane.Bind(context.Background(), w.js, topic, lane.Binding{Group: group, Lanes: n}); err != nil {
		w.t.Fatal(err)
	}
}

// moved waits until the producer has moved a topic.
func moved(t *testing.T, p *Producer, topic, group string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); p.routes.of(topic).group != group; {
		if time.Now().After(end) {
			t.Fatalf("topic %s is in group %s, want %s", topic, p.routes.of(topic).group, group)
		}
		<-time.After(time.Millisecond)
	}
}

func TestTopicsGoWhereTheyAreBound(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	w.makeGroup("big", 4, lane.Settings{})
	w.bind("t", "big", 4)
	p := w.producer(Options{})
	lanes := map[string]bool{}
	for i := range 40 {
		r, err := p.PublishSync(t.Context(), "t", Record{Key: str(i)})
		if err != nil {
			t.Fatal(err)
		}
		lanes[r.Lane] = true
		if want := fmt.Sprintf("big.%d", lane.Choose(str(i), 4)); r.Lane != want {
			t.Errorf("key %d went to lane %s, want %s", i, r.Lane, want)
		}
	}
	if len(lanes) != 4 {
		t.Errorf("40 keys went to lanes %v", lanes)
	}
	if r, err := p.PublishSync(t.Context(), "other", Record{}); err != nil || r.Lane != "default.0" {
		t.Errorf("a topic that is not bound: %+v, %v", r, err)
	}
	fixed := w.producer(Options{Group: "default"})
	if r, err := fixed.PublishSync(t.Context(), "t", Record{}); err != nil || r.Lane != "default.0" {
		t.Errorf("a producer with a group of its own: %+v, %v", r, err)
	}
	w.bind("lost", "nowhere", 2)
	if _, err := NewProducer(w.nc, Options{}); !errors.Is(err, ErrNoLane) {
		t.Errorf("a topic is bound to a group that is not there: %v", err)
	}
}

func TestKeylessRecordsAreSpreadEvenly(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	w.makeGroup("big", 4, lane.Settings{})
	w.bind("t", "big", 4)
	p := w.producer(Options{})
	for range 4 * 1024 {
		if _, err := p.Publish(t.Context(), "t", Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		if got := len(w.read(lane.ID{Group: "big", N: n})); got < 700 || got > 1300 {
			t.Errorf("lane %d got %d of 4096 records", n, got)
		}
	}
}

// replay takes the messages of lanes in as workers do: each lane in order, in an
// order of lanes that chance decides, and no message before what it must come
// after. It fails if that comes to a standstill.
func replay(t *testing.T, lanes map[lane.ID][]got) []got {
	t.Helper()
	var all []got
	checkpoint, at := map[lane.ID]uint64{}, map[lane.ID]int{}
	ids := make([]lane.ID, 0, len(lanes))
	for id := range lanes {
		ids = append(ids, id)
	}
	ready := func(g got) bool {
		text := g.Header.Get(lane.HeaderAfter)
		if text == "" {
			return true
		}
		afters, err := lane.ParseAfters(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range afters {
			if checkpoint[a.Lane] < a.Sequence {
				return false
			}
		}
		return true
	}
	for {
		progress, left := false, false
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			for n := rand.IntN(400); n >= 0 && at[id] < len(lanes[id]); n-- {
				g := lanes[id][at[id]]
				if !ready(g) {
					break
				}
				all = append(all, g)
				at[id]++
				progress = true
				if at[id] == len(lanes[id]) || lanes[id][at[id]].Position.Sequence != g.Position.Sequence {
					checkpoint[id] = g.Position.Sequence
				}
			}
			left = left || at[id] < len(lanes[id])
		}
		switch {
		case !left:
			return all
		case !progress && len(ids) > 0:
			stuck := true
			for _, id := range ids {
				stuck = stuck && (at[id] == len(lanes[id]) || !ready(lanes[id][at[id]]))
			}
			if stuck {
				t.Fatalf("the lanes wait for each other: %v", at)
			}
		}
	}
}

// TestMovesKeepTheOrderOfKeys moves a topic between groups, back and forth, while
// several goroutines publish.
func TestMovesKeepTheOrderOfKeys(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	groups := map[string]int{"default": 1, "big": 4, "small": 2}
	w.makeGroup("big", 4, lane.Settings{})
	w.makeGroup("small", 2, lane.Settings{})
	p := w.producer(Options{Linger: time.Millisecond, BatchBytes: 2 << 10})
	var stop atomic.Bool
	var g errgroup.Group
	counts := make([]int, 6)
	for k := range counts {
		g.Go(func() error {
			for ; !stop.Load(); counts[k]++ {
				if _, err := p.Publish(t.Context(), "t", Record{Key: str(k), Value: str(counts[k])}); err != nil {
					return err
				}
				if counts[k]%50 == 0 {
					if _, err := p.PublishSync(t.Context(), "u", Record{Key: str(k)}); err != nil { // of another topic
						return err
					}
				}
			}
			return nil
		})
	}
	for _, to := range []string{"big", "default", "small", "big", "small", "default", "big"} {
		w.bind("t", to, groups[to])
		moved(t, p, "t", to)
	}
	stop.Store(true)
	if err := errors.Join(g.Wait(), p.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	lanes, waits := map[lane.ID][]got{}, 0
	for group, n := range groups {
		for i := range n {
			id := lane.ID{Group: group, N: i}
			lanes[id] = dedupe(t, w.read(id))
			for _, r := range lanes[id] {
				if r.Header.Get(lane.HeaderAfter) != "" {
					waits++
				}
			}
		}
	}
	if waits == 0 {
		t.Error("no message waits for another: the test shows nothing")
	}
	for range 20 {
		next := map[string]int{}
		for _, r := range replay(t, lanes) {
			if r.Topic != "t" {
				continue
			}
			if want := next[string(r.Key)]; string(r.Value) != strconv.Itoa(want) {
				t.Fatalf("key %s: %s comes where %d should", r.Key, r.Value, want)
			}
			next[string(r.Key)]++
		}
		for k, n := range counts {
			if next[strconv.Itoa(k)] != n {
				t.Fatalf("key %d: %d records of %d", k, next[strconv.Itoa(k)], n)
			}
		}
	}
}

// TestAMoveWaitsForTheOldLane: what the old lane has not answered holds back what
// comes after it.
func TestAMoveWaitsForTheOldLane(t *testing.T) {
	w := newWorld(t, lane.Settings{MaxBytes: 4 << 10}) // soon full
	w.makeGroup("big", 2, lane.Settings{})
	p := w.producer(Options{RetryBudget: time.Second, Compression: Null})
	fits := Record{Key: []byte("k"), Value: make([]byte, 1000)}
	if _, err := p.PublishSync(t.Context(), "t", fits); err != nil {
		t.Fatal(err)
	}
	stuck, err := p.Publish(t.Context(), "t", Record{Key: []byte("k"), Value: make([]byte, 8000)})
	if err != nil {
		t.Fatal(err)
	}
	w.bind("t", "big", 2)
	moved(t, p, "t", "big")
	later, err := p.Publish(t.Context(), "t", fits)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-later.Done():
		t.Fatal("a record overtook one that is on its way")
	case <-stuck.Done():
	}
	if _, err := stuck.Wait(t.Context()); !isType[*LaneFullError](err) {
		t.Errorf("the old lane is full: %v", err)
	}
	r, err := later.Wait(t.Context())
	if err != nil || !strings.HasPrefix(r.Lane, "big.") {
		t.Errorf("%+v, %v", r, err)
	}
	id, _ := lane.ParseID(r.Lane)
	want := fmt.Sprintf("default.0=%s:1", w.lane.Incarnation)
	if g := w.read(id)[0]; g.Header.Get(lane.HeaderAfter) != want {
		t.Errorf("headers %v, want after %s", g.Header, want)
	}
	if _, err := p.PublishSync(t.Context(), "t", fits); err != nil {
		t.Fatal(err)
	}
	if g := w.read(id)[1]; g.Header.Get(lane.HeaderAfter) != "" {
		t.Errorf("the second batch: headers %v", g.Header)
	}
}

// TestCloseDuringAMove: nothing hangs, and everything has an outcome.
func TestCloseDuringAMove(t *testing.T) {
	w := newWorld(t, lane.Settings{MaxBytes: 4 << 10})
	w.makeGroup("big", 2, lane.Settings{})
	p := w.producer(Options{RetryBudget: time.Minute, Compression: Null})
	stuck, err := p.Publish(t.Context(), "t", Record{Key: []byte("k"), Value: make([]byte, 8000)})
	if err != nil {
		t.Fatal(err)
	}
	w.bind("t", "big", 2)
	moved(t, p, "t", "big")
	later, err := p.Publish(t.Context(), "t", Record{Key: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := p.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close: %v", err)
	}
	for name, pending := range map[string]*Pending{"stuck": stuck, "later": later} {
		if _, err := pending.Wait(t.Context()); err == nil || !NotStored(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	noGoroutines(t)
}

// TestAGroupThatIsNotThereIsNotMovedTo, and is as soon as it is.
func TestAGroupThatIsNotThereIsNotMovedTo(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	change := lane.BindingChange{Topic: "t", Binding: lane.Binding{Group: "big", Lanes: 2}, Bound: true}
	if err := p.rebind(t.Context(), change); !errors.Is(err, ErrNoLane) {
		t.Errorf("no group: %v", err)
	}
	w.makeGroup("big", 2, lane.Settings{})
	if err := w.js.DeleteStream(t.Context(), lane.ID{Group: "big", N: 1}.Stream()); err != nil {
		t.Fatal(err)
	}
	if _, is := errors.AsType[*lane.IncompleteError](p.rebind(t.Context(), change)); !is {
		t.Error("half a group was moved to")
	}
	if r, err := p.PublishSync(t.Context(), "t", Record{}); err != nil || r.Lane != "default.0" {
		t.Errorf("%+v, %v", r, err)
	}
	w.makeGroup("big", 2, lane.Settings{})
	w.bind("t", "big", 2)
	moved(t, p, "t", "big")
	if err := lane.Unbind(t.Context(), w.js, "t"); err != nil {
		t.Fatal(err)
	}
	moved(t, p, "t", "default")
	kv, err := w.js.KeyValue(t.Context(), lane.BindingsBucket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kv.PutString(t.Context(), "t", `{"group":"../x"}`); err != nil { // garbage moves nothing
		t.Fatal(err)
	}
	w.bind("u", "big", 2)
	moved(t, p, "u", "big")
	if g := p.routes.of("t").group; g != "default" {
		t.Errorf("garbage moved the topic to %q", g)
	}
}

// TestAHeldQueueSendsNothing drives the batcher alone, in virtual time.
func TestAHeldQueueSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatcher(5*time.Millisecond, 1000, 100_000)
		x.hold("t")
		for range 3 {
			if _, err := x.add("t", &Record{Value: make([]byte, 400)}, callOptions{}, 1); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute)
		if b, _ := x.take(time.Now()); b != nil {
			t.Fatal("a held queue gave a batch")
		}
		x.flush()
		if b, _ := x.take(time.Now()); b != nil {
			t.Fatal("a held queue gave a batch when it was flushed")
		}
		x.release("t", "big.0=abc:1")
		now, rows := time.Now(), 0
		for {
			b, _ := x.take(time.Now())
			if b == nil {
				break
			}
			rows += b.rows
			if b.after != "big.0=abc:1" || !b.ready.Equal(now) {
				t.Errorf("after %q, ready %v", b.after, b.ready)
			}
		}
		if rows != 3 {
			t.Errorf("%d records of 3", rows)
		}
		if waits := x.leave("t"); len(waits) != len(x.outstanding) {
			t.Errorf("%d batches to wait for, %d are outstanding", len(waits), len(x.outstanding))
		}
		if _, err := x.add("t", &Record{}, callOptions{}, 1); !errors.Is(err, errMoved) {
			t.Errorf("a record for a topic that has left: %v", err)
		}
		x.hold("t") // and comes back
		x.release("t", "")
		if _, err := x.add("t", &Record{}, callOptions{}, 1); err != nil {
			t.Error(err)
		}
	})
}
