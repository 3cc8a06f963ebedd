package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/record"
)

func mustAdd(t testing.TB, x *batcher, topic string, value []byte) added {
	t.Helper()
	a, err := x.add(topic, &Record{Value: value}, callOptions{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// values decodes a batch that was not packed.
func values(t testing.TB, b *batch) (vs []string) {
	t.Helper()
	payload, err := record.EncodeBatch(nil, Null, b.rows, b.raw)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := record.DecodeBatch(record.Meta{Time: time.Unix(1, 0), Sequence: 1}, Null, payload)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

func TestAPartialBatchLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatcher(5*time.Millisecond, 1000, 1000)
		start := time.Now()
		go func() {
			time.Sleep(time.Second)
			mustAdd(t, x, "t", []byte("a"))
			time.Sleep(3 * time.Millisecond)
			mustAdd(t, x, "t", []byte("b"))
		}()
		b, err := x.next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(start); waited != time.Second+5*time.Millisecond {
			t.Errorf("left after %v", waited)
		}
		if got := values(t, b); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("got %q", got)
		}
	})
}

func TestEachTopicHasItsOwnLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatcher(5*time.Millisecond, 1000, 1000)
		start := time.Now()
		mustAdd(t, x, "a", []byte("1"))
		time.Sleep(2 * time.Millisecond)
		mustAdd(t, x, "b", []byte("2"))
		for _, want := range []time.Duration{5 * time.Millisecond, 7 * time.Millisecond} {
			if _, err := x.next(t.Context()); err != nil || time.Since(start) != want {
				t.Errorf("left after %v, want %v; %v", time.Since(start), want, err)
			}
		}
	})
}

func TestWhatDoesNotLinger(t *testing.T) {
	full := bytes.Repeat([]byte("x"), 600)
	cases := map[string]struct {
		linger time.Duration
		do     func(*batcher)
		rows   int
	}{
		"no linger": {-1, func(x *batcher) { mustAdd(t, x, "t", nil) }, 1},
		"full": {time.Hour, func(x *batcher) {
			mustAdd(t, x, "t", full)
		}, 1},
		"the next does not fit": {time.Hour, func(x *batcher) {
			mustAdd(t, x, "t", full[:450])
			mustAdd(t, x, "t", full)
		}, 1},
		"flush": {time.Hour, func(x *batcher) {
			mustAdd(t, x, "t", nil)
			mustAdd(t, x, "t", nil)
			x.flush()
		}, 2},
		"asked for": {time.Hour, func(x *batcher) {
			mustAdd(t, x, "t", nil)
			if _, err := x.add("t", &Record{}, callOptions{now: true}, 1); err != nil {
				t.Fatal(err)
			}
		}, 2},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newBatcher(c.linger, 1000, 1000)
				start := time.Now()
				c.do(x)
				b, err := x.next(t.Context())
				if err != nil || time.Since(start) != 0 || b.rows != c.rows {
					t.Errorf("left after %v with %d rows, %v", time.Since(start), b.rows, err)
				}
			})
		})
	}
}

func TestADueBatchFillsUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newBatcher(time.Millisecond, 1000, 1000)
		for i := range 5 {
			mustAdd(t, x, "t", str(i))
			time.Sleep(time.Second) // the sender is busy with another batch
			x.take(time.Now().Add(-time.Hour))
		}
		b, _ := x.take(time.Now())
		if got := values(t, b); len(got) != 5 {
			t.Errorf("got %q", got)
		}
	})
}

func TestABatchIsFullWithItsMostRows(t *testing.T) {
	x := newBatcher(time.Hour, maxBatchBytes, maxBatchBytes)
	for range record.MaxBatchRows {
		mustAdd(t, x, "t", nil)
	}
	b, _ := x.take(time.Now())
	if b == nil || b.rows != record.MaxBatchRows {
		t.Fatalf("batch %v", b)
	}
}

func TestABigRecordGoesAlone(t *testing.T) {
	x := newBatcher(time.Hour, 1000, 9000)
	mustAdd(t, x, "t", []byte("before"))
	a := mustAdd(t, x, "t", make([]byte, 5000))
	mustAdd(t, x, "t", []byte("after"))
	if a.sealed[0] == nil || a.sealed[1] == nil {
		t.Errorf("sealed %v", a.sealed)
	}
	x.flush()
	for _, want := range []int{6, 5000, 5} {
		b, _ := x.take(time.Now())
		if got := values(t, b); len(got) != 1 || len(got[0]) != want {
			t.Errorf("got %d rows, first of %d bytes, want %d", len(got), len(got[0]), want)
		}
	}
}

func TestAFloodedTopicDoesNotHoldUpOthers(t *testing.T) {
	x := newBatcher(time.Hour, 1000, 1000)
	for range 100 {
		mustAdd(t, x, "flood", make([]byte, 900))
	}
	mustAdd(t, x, "quiet", []byte("x"))
	mustAdd(t, x, "calm", []byte("x"))
	x.flush()
	var order []string
	for range 5 {
		b, _ := x.take(time.Now())
		order = append(order, b.topic)
	}
	quiet, calm := slices.Index(order, "quiet"), slices.Index(order, "calm")
	if quiet < 0 || calm < 0 || quiet > 2 || calm > 2 {
		t.Errorf("left in the order %q", order)
	}
}

func TestARefusedRecordLeavesNothing(t *testing.T) {
	x := newBatcher(time.Hour, 1000, 2000)
	refused := func(topic string, r Record) error {
		t.Helper()
		a, err := x.add(topic, &r, callOptions{}, 1)
		if err == nil || a.pending != nil {
			t.Fatalf("accepted %+v", r)
		}
		return err
	}
	bad := Record{Headers: []Header{{Name: "ok", Value: []byte("x")}, {Name: "\xff"}}, Value: []byte("bad")}
	if err := refused("t", bad); !isType[*RecordError](err) {
		t.Error(err)
	}
	if n := len(x.outstanding); n != 0 {
		t.Errorf("%d batches", n)
	}
	mustAdd(t, x, "t", []byte("a"))
	_ = refused("t", bad)
	if err := refused("t", Record{Value: make([]byte, 1999)}); !isType[*RecordTooLargeError](err) {
		t.Error(err)
	}
	mustAdd(t, x, "t", []byte("b"))
	if err := refused("T", Record{}); !isType[*NameError](err) {
		t.Error(err)
	}
	x.flush()
	var all []string
	for b, _ := x.take(time.Now()); b != nil; b, _ = x.take(time.Now()) {
		all = append(all, values(t, b)...)
	}
	if !slices.Equal(all, []string{"a", "b"}) {
		t.Errorf("got %q", all)
	}
	x.close()
	if err := refused("t", Record{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestQuietTopicsAreForgotten(t *testing.T) {
	x := newBatcher(-1, 1000, 1000)
	for i := range 3 * manyQueues {
		mustAdd(t, x, fmt.Sprintf("t%d", i), nil)
	}
	if len(x.queues) != 3*manyQueues {
		t.Errorf("%d queues while all have records", len(x.queues))
	}
	for b, _ := x.take(time.Now()); b != nil; b, _ = x.take(time.Now()) {
		x.forget(b)
	}
	for i := range 3 * manyQueues {
		_, _ = x.add(fmt.Sprintf("u%d", i), &Record{Headers: []Header{{Name: "\xff"}}}, callOptions{}, 1)
	}
	if n := len(x.queues); n > manyQueues {
		t.Errorf("%d queues are left", n)
	}
	if n := len(x.outstanding); n != 0 {
		t.Errorf("%d batches are left", n)
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	x := newBatcher(time.Hour, 1000, 1000)
	mustAdd(t, x, "t", nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(ErrClosed)
	if b, err := x.next(ctx); b != nil || !errors.Is(err, ErrClosed) {
		t.Errorf("next: %v, %v", b, err)
	}
}

// TestBatcherKeepsOrder adds, takes and flushes at random: each record leaves
// once, in its topic's order, in a batch that is not too big.
func TestBatcherKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const full = 400
		x := newBatcher(time.Hour, full, 2000)
		in, out := map[string][]string{}, map[string][]string{}
		takeOne := func() bool {
			b, _ := x.take(time.Now())
			if b == nil {
				return false
			}
			if b.rows == 0 || b.rows > 1 && len(b.raw) > full {
				t.Fatalf("a batch of %d rows and %d bytes", b.rows, len(b.raw))
			}
			payload, err := record.EncodeBatch(nil, Null, b.rows, b.raw)
			if err != nil {
				t.Fatal(err)
			}
			recs, err := record.DecodeBatch(record.Meta{Time: time.Unix(1, 0), Sequence: 1}, Null, payload)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				out[b.topic] = append(out[b.topic], string(r.Key))
			}
			x.forget(b)
			return true
		}
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				topic := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "topic")
				n++
				r := Record{Key: str(n), Value: make([]byte, rapid.IntRange(0, 600).Draw(t, "size"))}
				a, err := x.add(topic, &r, callOptions{now: rapid.Bool().Draw(t, "now")}, 1)
				if err != nil {
					t.Fatal(err)
				}
				if a.pending.row >= uint32(a.pending.batch.rows) {
					t.Fatalf("row %d of %d", a.pending.row, a.pending.batch.rows)
				}
				in[topic] = append(in[topic], string(r.Key))
			},
			"take":  func(t *rapid.T) { takeOne() },
			"flush": func(t *rapid.T) { x.flush() },
		})
		x.flush()
		for takeOne() {
		}
		for topic, want := range in {
			if !slices.Equal(out[topic], want) {
				t.Fatalf("topic %s: got %q, want %q", topic, out[topic], want)
			}
		}
		if len(x.outstanding) != 0 {
			t.Fatalf("%d outstanding", len(x.outstanding))
		}
	})
}
