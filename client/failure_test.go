package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/lane"
)

// flood publishes n records one after the other and returns their Pendings.
func flood(t *testing.T, p *Producer, n int) []*Pending {
	t.Helper()
	all := make([]*Pending, n)
	for i := range all {
		var err error
		all[i], err = p.Publish(t.Context(), fmt.Sprintf("t%d", i%2), Record{Key: str(i % 5), Value: str(i)})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// checkOnce compares what was acknowledged with what lies in the lane: each
// record once, those of a topic in order.
func checkOnce(t *testing.T, w *world, all []*Pending) (doubled int) {
	t.Helper()
	raw := w.read(defaultLane)
	kept := dedupe(t, raw)
	where := map[string]string{}
	next := map[string]int{"t0": 0, "t1": 1}
	for _, g := range kept {
		if want := fmt.Sprint(next[g.Topic]); string(g.Value) != want {
			t.Fatalf("topic %s: %s instead of %s", g.Topic, g.Value, want)
		}
		next[g.Topic] += 2
		where[string(g.Value)] = fmt.Sprintf("%d:%d", g.Position.Sequence, g.Position.Row)
	}
	for i, pending := range all {
		r, err := pending.Wait(t.Context())
		if err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
		// A late answer may name a double that the lane's window let in; a
		// receipt for what was dropped would be of no use, but the first counts.
		if got := fmt.Sprintf("%d:%d", r.Sequence, r.Row); got != where[fmt.Sprint(i)] && len(raw) == len(kept) {
			t.Fatalf("record %d is at %s, its receipt says %s", i, where[fmt.Sprint(i)], got)
		}
	}
	if len(kept) != len(all) {
		t.Errorf("%d records, want %d", len(kept), len(all))
	}
	return len(raw) - len(kept)
}

func TestLostAnswers(t *testing.T) {
	const window = 100 * time.Millisecond // in which a lane remembers
	for name, reconnect := range map[string]time.Duration{"resent soon": time.Millisecond, "resent late": 3 * window / 2} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lane.Settings{Duplicates: window})
			px := w.proxy(func() int64 { return 4000 + rand.Int64N(4000) }) // the first 2000 or so go into the handshake
			nc := w.connect(px.url(), nats.ReconnectWait(reconnect))
			p := w.producerOn(nc, Options{BatchBytes: 1 << 10, Linger: time.Millisecond, AckTimeout: 500 * time.Millisecond})
			all := flood(t, p, 20000)
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if cuts := nc.Stats().Reconnects; cuts < 3 {
				t.Errorf("only %d cuts", cuts)
			}
			if doubled := checkOnce(t, w, all); reconnect > window && doubled == 0 {
				t.Error("no record was doubled: nothing was tested")
			}
		})
	}
}

func TestServerRestartsInTheFlood(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{BatchBytes: 2 << 10, Linger: time.Millisecond, AckTimeout: 500 * time.Millisecond})
	var all []*Pending
	for i := range 6000 {
		pending, err := p.Publish(t.Context(), fmt.Sprintf("t%d", i%2), Record{Key: str(i % 5), Value: str(i)})
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, pending); i%2000 == 1000 {
			w.stop()
			w.start()
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkOnce(t, w, all)
}

func TestAFullLanePushesBackThenFails(t *testing.T) {
	w := newWorld(t, lane.Settings{MaxBytes: 16 << 10})
	patient := w.producer(Options{RetryBudget: 30 * time.Second})
	hasty := w.producer(Options{RetryBudget: 200 * time.Millisecond})
	value := make([]byte, 5000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(value)
	n := 0
	var err error
	for ; err == nil && n < 10; n++ {
		_, err = hasty.PublishSync(t.Context(), "t", Record{Value: value})
	}
	full, ok := errors.AsType[*LaneFullError](err)
	if !ok || !NotStored(err) || full.Lane != "default.0" || full.Waited < 200*time.Millisecond || n != 4 {
		t.Fatalf("record %d: %v", n, err)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); !ok || api.ErrorCode != 10077 {
		t.Errorf("the server's error is not in %v", err)
	}
	pending, err := patient.Publish(t.Context(), "t", Record{Value: value})
	if err != nil {
		t.Fatal(err)
	}
	_ = patient.Flush(canceled())
	if _, err := hasty.PublishSync(t.Context(), "t", Record{Value: value}); !isType[*LaneFullError](err) {
		t.Fatal(err) // by now the patient one was told as well
	}
	select {
	case <-pending.Done():
		t.Fatal("the lane is full, yet took a record")
	default:
	}
	s, err := w.js.Stream(t.Context(), w.lane.Stream)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(1)); err != nil { // as the trimmer does
		t.Fatal(err)
	}
	if _, err := pending.Wait(t.Context()); err != nil {
		t.Errorf("after the lane was trimmed: %v", err)
	}
	if _, err := hasty.PublishSync(t.Context(), "t", Record{Value: value}); err != nil {
		t.Errorf("after the lane was trimmed: %v", err)
	}
	var failed *FailedError
	if err := hasty.Flush(t.Context()); !errors.As(err, &failed) || failed.Records != 2 || !isType[*LaneFullError](err) {
		t.Errorf("Flush: %v", err)
	}
	if err := hasty.Flush(t.Context()); err != nil {
		t.Errorf("a second Flush: %v", err)
	}
	if left := w.read(defaultLane); len(left) != 3 {
		t.Errorf("%d records", len(left))
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestAnUnknownOutcomeEndsTheProducerID(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	px := w.proxy(nil)
	p := w.producerOn(w.connect(px.url()), Options{RetryBudget: 400 * time.Millisecond, AckTimeout: 100 * time.Millisecond})
	publish := func(v string) error {
		_, err := p.PublishSync(t.Context(), "t", Record{Value: []byte(v)})
		return err
	}
	if err := publish("known"); err != nil {
		t.Fatal(err)
	}
	px.muted.Store(true)
	err := publish("unknown")
	px.muted.Store(false)
	unknown, ok := errors.AsType[*UnknownOutcomeError](err)
	if !ok || NotStored(err) || unknown.Sequence != 2 {
		t.Fatalf("without answers: %v", err)
	}
	px.cut()
	if err := publish("after"); err != nil {
		t.Fatal(err)
	}
	all := dedupe(t, w.read(defaultLane))
	first, last := all[0], all[len(all)-1]
	if first.ID.Producer != unknown.Producer || last.ID.Producer == unknown.Producer || last.ID.Sequence != 1 || string(last.Value) != "after" {
		t.Errorf("producers: first %v, unknown %v, last %v", first.ID, unknown, last.ID)
	}
}

// TestBatchesBehindALostOne: those whose budget was used up by others fail with
// them, and are known not to be stored.
func TestBatchesBehindALostOne(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	px := w.proxy(nil)
	p := w.producerOn(w.connect(px.url()), Options{Linger: -1, RetryBudget: 100 * time.Millisecond, AckTimeout: time.Second})
	px.muted.Store(true)
	start := time.Now()
	var all []*Pending
	for i := range 40 {
		pending, err := p.Publish(t.Context(), fmt.Sprintf("t%d", i), Record{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
	}
	unknown := 0
	for _, pending := range all {
		switch _, err := pending.Wait(t.Context()); {
		case isType[*UnknownOutcomeError](err):
			unknown++
		case !isType[*UnavailableError](err) || !NotStored(err):
			t.Fatal(err)
		}
	}
	if took := time.Since(start); unknown == 0 || unknown > 10 || took > 20*time.Second {
		t.Errorf("%d outcomes are unknown after %v", unknown, took)
	}
}

// TestProgressRenewsTheBudget: a lane that takes little at a time is no reason to
// fail.
func TestProgressRenewsTheBudget(t *testing.T) {
	w := newWorld(t, lane.Settings{MaxBytes: 16 << 10})
	const budget = 1500 * time.Millisecond
	p := w.producer(Options{RetryBudget: budget, BatchBytes: 4 << 10, Compression: Null})
	start := time.Now()
	for range 30 {
		if _, err := p.Publish(t.Context(), "t", Record{Value: make([]byte, 4000)}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := w.js.Stream(t.Context(), w.lane.Stream)
	if err != nil {
		t.Fatal(err)
	}
	trim := time.NewTicker(60 * time.Millisecond)
	defer trim.Stop()
	stop := make(chan struct{})
	var g errgroup.Group
	g.Go(func() error { // the trimmer
		for {
			select {
			case <-stop:
				return nil
			case <-trim.C:
			}
			if err := s.Purge(t.Context(), jetstream.WithPurgeKeep(2)); err != nil {
				return err
			}
		}
	})
	err = p.Flush(t.Context())
	close(stop)
	if err := errors.Join(err, g.Wait()); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < budget {
		t.Errorf("it took %v, which proves nothing", took)
	}
}

func TestAServerThatIsDown(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{RetryBudget: 200 * time.Millisecond, Linger: -1})
	if _, err := p.PublishSync(t.Context(), "t", Record{Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	w.stop()
	for w.nc.IsConnected() {
		runtime.Gosched()
	}
	for range 3 { // those behind the first do not wait for a budget each
		start := time.Now()
		var all []*Pending
		for i := range 200 {
			pending, err := p.Publish(t.Context(), fmt.Sprintf("t%d", i), Record{})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pending)
		}
		for _, pending := range all {
			if _, err := pending.Wait(t.Context()); !isType[*UnavailableError](err) || !NotStored(err) {
				t.Fatalf("while the server is down: %v", err)
			}
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("200 batches failed in %v", took)
		}
	}
	w.start()
	for {
		_, err := p.PublishSync(t.Context(), "t", Record{Value: []byte("2")})
		if err == nil {
			break
		}
		if !isType[*UnavailableError](err) {
			t.Fatal(err)
		}
	}
	all := dedupe(t, w.read(defaultLane))
	if len(all) != 2 || all[0].ID.Producer != all[1].ID.Producer || all[1].ID.Sequence != 2 {
		t.Errorf("%d records, producers %v, %v; what was never sent uses up nothing", len(all), all[0].ID, all[1].ID)
	}
}

func TestALaneThatIsReset(t *testing.T) {
	for name, restart := range map[string]bool{"while connected": false, "while the server restarts": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, lane.Settings{})
			p := w.producer(Options{})
			for range 5 {
				if _, err := p.PublishSync(t.Context(), "t", Record{}); err != nil {
					t.Fatal(err)
				}
			}
			old := w.lane.Incarnation
			w.makeLane(lane.Settings{})
			if restart {
				for range 10 { // others have published meanwhile: the sequence does not go back
					if _, err := w.js.Publish(t.Context(), defaultLane.Subject("t"), nil); err != nil {
						t.Fatal(err)
					}
				}
				w.stop()
				w.start()
			}
			r, err := p.PublishSync(t.Context(), "t", Record{})
			if err != nil || r.Incarnation != w.lane.Incarnation || r.Incarnation == old {
				t.Errorf("receipt %v, %v; the lane was %s, is %s", r, err, old, w.lane.Incarnation)
			}
			if want := uint64(1); !restart && r.Sequence != want {
				t.Errorf("sequence %d", r.Sequence)
			}
		})
	}
}
