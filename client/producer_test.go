package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestARecordArrivesAsItWas(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	at := time.Date(2026, 11, 30, 4, 20, 0, 123456789, time.FixedZone("", 3600))
	records := map[string]Record{
		"all": {Key: []byte("k"), Value: []byte("v"), EventTime: at, Headers: []Header{
			{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("\xff\x00")}, {Name: "", Value: nil},
		}},
		"nothing": {},
		"empties": {Key: []byte{}, Value: []byte{}},
		"binary":  {Key: []byte("\xff\xfe"), Value: []byte("\x00\xff")},
		"biggest": {Value: bytes.Repeat([]byte("x"), MaxValue)},
		"big key": {Key: bytes.Repeat([]byte("k"), 300<<10), Value: bytes.Repeat([]byte("x"), MaxValue)},
	}
	for name, r := range records {
		topic := strings.ReplaceAll(name, " ", "-")
		receipt, err := p.PublishSync(t.Context(), topic, r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if receipt.Topic != topic || receipt.Lane != "default.0" || receipt.Incarnation != w.lane.Incarnation || receipt.Level != Buffered {
			t.Errorf("%s: receipt %+v", name, receipt)
		}
	}
	seen := 0
	for _, g := range w.read(defaultLane) {
		r := records[strings.ReplaceAll(g.Topic, "-", " ")]
		seen++
		same := bytes.Equal(g.Key, r.Key) && (g.Key == nil) == (r.Key == nil) &&
			bytes.Equal(g.Value, r.Value) && (g.Value == nil) == (r.Value == nil) &&
			len(g.Headers) == len(r.Headers) && g.EventTime.Equal(r.EventTime.Truncate(time.Microsecond))
		for i := range r.Headers {
			same = same && g.Headers[i].Name == r.Headers[i].Name && bytes.Equal(g.Headers[i].Value, r.Headers[i].Value)
		}
		if !same {
			t.Errorf("%s: sent %.200v, got %.200v", g.Topic, r, g.Record)
		}
	}
	if seen != len(records) {
		t.Errorf("%d records of %d", seen, len(records))
	}
}

func TestMessageHeaders(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	for range 2 {
		if _, err := p.PublishSync(t.Context(), "t", Record{Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	all := w.read(defaultLane)
	id := all[0].Header.Get(lane.HeaderProducer)
	if len(id) != 16 {
		t.Errorf("producer %q", id)
	}
	for i, g := range all {
		want := map[string]string{
			lane.HeaderBatch: "1", lane.HeaderCodec: "null", lane.HeaderProducer: id,
			lane.HeaderSequence: fmt.Sprint(i + 1), nats.MsgIdHdr: fmt.Sprintf("%s.%d", id, i+1), lane.HeaderAck: "",
		}
		for name, v := range want {
			if got := g.Header.Get(name); got != v {
				t.Errorf("message %d: %s is %q, want %q", i, name, got, v)
			}
		}
	}
}

func TestBytesAreCopied(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{Linger: time.Minute})
	key, value, header := []byte("key"), []byte("value"), []byte("header")
	pending, err := p.Publish(t.Context(), "t", Record{Key: key, Value: value, Headers: []Header{{Name: "h", Value: header}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{key, value, header} {
		clear(b)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pending.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := w.read(defaultLane)[0]
	if string(g.Key) != "key" || string(g.Value) != "value" || string(g.Headers[0].Value) != "header" {
		t.Errorf("got %q %q %q", g.Key, g.Value, g.Headers[0].Value)
	}
}

func TestBadRecords(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	big := func(n int) []byte { return make([]byte, n) }
	cases := map[string]struct {
		topic string
		r     Record
		as    func(error) bool
	}{
		"no topic":       {"", Record{}, isType[*NameError]},
		"slash":          {"a/b", Record{}, isType[*NameError]},
		"dots":           {"a.b", Record{}, isType[*NameError]},
		"wildcard":       {"*", Record{}, isType[*NameError]},
		"rest":           {">", Record{}, isType[*NameError]},
		"space":          {"a b", Record{}, isType[*NameError]},
		"newline":        {"a\r\nPUB x 0", Record{}, isType[*NameError]},
		"upper case":     {"Flights", Record{}, isType[*NameError]},
		"other script":   {"рейсы", Record{}, isType[*NameError]},
		"not utf-8":      {"\xff", Record{}, isType[*NameError]},
		"300 characters": {strings.Repeat("x", 300), Record{}, isType[*NameError]},
		"value":          {"t", Record{Value: big(MaxValue + 1)}, isType[*ValueTooLargeError]},
		"key":            {"t", Record{Key: big(2 << 20)}, isType[*RecordTooLargeError]},
		"key and value":  {"t", Record{Key: big(MaxValue), Value: big(MaxValue)}, isType[*RecordTooLargeError]},
		"header":         {"t", Record{Headers: []Header{{Name: "x", Value: big(2 << 20)}}}, isType[*RecordTooLargeError]},
		"header name":    {"t", Record{Headers: []Header{{Name: "\xc3\x28"}}}, isType[*RecordError]},
		"many headers":   {"t", Record{Headers: make([]Header, 5000)}, isType[*RecordError]},
		"swarm":          {"t", Record{Headers: make([]Header, 200_000)}, isType[*RecordTooLargeError]},
		"event time":     {"t", Record{EventTime: time.Date(10001, 1, 1, 0, 0, 0, 0, time.UTC)}, isType[*RecordError]},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pending, err := p.Publish(t.Context(), c.topic, c.r)
			if pending != nil || !c.as(err) || !NotStored(err) || len(err.Error()) > 300 {
				t.Errorf("Publish: %v, %v", pending, err)
			}
		})
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Errorf("Flush: %v; refused records are not failed ones", err)
	}
	if _, err := p.PublishSync(t.Context(), "t", Record{Value: []byte("good")}); err != nil {
		t.Error(err)
	}
	if all := w.read(defaultLane); len(all) != 1 {
		t.Errorf("%d records", len(all))
	}
	if !p.room.TryAcquire(DefaultMaxBuffered) {
		t.Error("refused records hold on to the buffer")
	}
}

// TestEventTimesAtTheEdge: a batch must not carry a time that stands for none.
func TestEventTimesAtTheEdge(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{})
	first := time.Time{}.Add(1)
	if _, err := p.PublishSync(t.Context(), "t", Record{EventTime: first}); err != nil && !isType[*RecordError](err) {
		t.Fatal(err)
	}
	w.read(defaultLane) // fails on what does not decode
}

func TestManyGoroutinesKeepTheirOrder(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	for n := range 3 {
		if _, err := lane.Ensure(t.Context(), w.js, lane.ID{Group: "big", N: n}, lane.Settings{MaxBytes: 64 << 20, Lanes: 3}); err != nil {
			t.Fatal(err)
		}
	}
	p := w.producer(Options{Group: "big", Linger: time.Millisecond, BatchBytes: 4 << 10, MaxBuffered: minMaxBuffered})
	const writers, each = 8, 1500
	var g errgroup.Group
	for writer := range writers {
		g.Go(func() error {
			var last *Pending
			for i := range each {
				r := Record{Key: fmt.Appendf(nil, "%d-%d", writer, i%7), Value: str(i)}
				if i%11 == 0 {
					r.Key = nil
				}
				pending, err := p.Publish(t.Context(), fmt.Sprintf("t%d", i%5), r)
				if err != nil {
					return err
				}
				last = pending
			}
			_, err := last.Wait(t.Context())
			return err
		})
	}
	if err := errors.Join(g.Wait(), p.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	total := 0
	laneOf := map[string]int{}
	for n := range 3 {
		all := dedupe(t, w.read(lane.ID{Group: "big", N: n}))
		if len(all) < writers*each/10 {
			t.Errorf("lane %d has %d records", n, len(all))
		}
		total += len(all)
		last := map[string]int{}
		for _, r := range all {
			if r.Key == nil {
				continue
			}
			if in, ok := laneOf[string(r.Key)]; ok && in != n {
				t.Fatalf("key %s is in lanes %d and %d", r.Key, in, n)
			}
			laneOf[string(r.Key)] = n
			if want := topic.SlotOf(r.Key); int(want)*3/topic.Slots != n {
				t.Fatalf("key %s, slot %d is in lane %d", r.Key, want, n)
			}
			var i int
			if _, err := fmt.Sscan(string(r.Value), &i); err != nil {
				t.Fatal(err)
			}
			at := r.Topic + "/" + string(r.Key)
			if prev, ok := last[at]; ok && i <= prev {
				t.Fatalf("%s: %d follows %d", at, i, prev)
			}
			last[at] = i
		}
	}
	if total != writers*each {
		t.Errorf("%d records of %d", total, writers*each)
	}
}

func TestReceiptsNameTheRecord(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{BatchBytes: minBatchBytes})
	var all []*Pending
	for i := range 1000 {
		pending, err := p.Publish(t.Context(), "t", Record{Value: str(i)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
	}
	at := map[string]string{}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, g := range w.read(defaultLane) {
		at[fmt.Sprintf("default.0/%s@%d:%d", w.lane.Incarnation, g.Position.Sequence, g.Position.Row)] = string(g.Value)
	}
	for i, pending := range all {
		<-pending.Done()
		r, err := pending.Wait(t.Context())
		if err != nil || at[r.String()] != fmt.Sprint(i) {
			t.Fatalf("record %d: receipt %v names %q, %v", i, r, at[r.String()], err)
		}
	}
}

// noticed is a context that tells when somebody begins to wait for its end, as
// Publish does when the buffer is full, and only then.
type noticed struct {
	context.Context
	tell func()
}

func (c noticed) Done() <-chan struct{} {
	c.tell()
	return c.Context.Done()
}

func TestPublishBlocksWhenTheBufferIsFull(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{MaxBuffered: minMaxBuffered, Linger: time.Minute, BatchBytes: maxBatchBytes})
	w.stop() // nothing is answered any more
	value := make([]byte, 100<<10)
	ctx, cancel := context.WithCancel(t.Context())
	blocked := make(chan struct{})
	waits := noticed{ctx, sync.OnceFunc(func() { close(blocked) })}
	go func() { <-blocked; cancel() }()
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		_, err = p.Publish(waits, "t", Record{Value: value})
	}
	if !isType[*BlockedError](err) || !errors.Is(err, context.Canceled) || !NotStored(err) {
		t.Fatalf("after %d records: %v", n, err)
	}
	if n < 15 || n > 21 {
		t.Errorf("%d records of 100 KiB fit into 2 MiB", n)
	}
	closed := make(chan error, 1)
	go func() {
		_, err := p.Publish(t.Context(), "t", Record{Value: value})
		closed <- err
	}()
	soon, cancelClose := context.WithCancel(t.Context())
	closing, start := make(chan error, 1), time.Now()
	go func() { closing <- p.Close(soon) }()
	if err := <-closed; !errors.Is(err, ErrClosed) || time.Since(start) > DefaultRetryBudget/2 {
		t.Errorf("a blocked Publish, %v after the producer was to close: %v", time.Since(start), err)
	}
	select {
	case err := <-closing:
		t.Errorf("Close did not wait for what has no outcome: %v", err)
	default:
	}
	cancelClose()
	if err := <-closing; !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
}

func TestClose(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p := w.producer(Options{Linger: time.Minute, Ack: Stored})
	var all []*Pending
	for i := range 10 {
		pending, err := p.Publish(t.Context(), "t", Record{Value: str(i)}, WithAck(Buffered))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pending)
	}
	var g errgroup.Group
	for range 4 {
		g.Go(func() error { return p.Close(t.Context()) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, pending := range all {
		if r, err := pending.Wait(t.Context()); err != nil || r.Level != Buffered {
			t.Errorf("after Close: %v, %v", r, err)
		}
	}
	if _, err := p.Publish(t.Context(), "t", Record{}); !errors.Is(err, ErrClosed) || !NotStored(err) {
		t.Errorf("Publish: %v", err)
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Errorf("Flush: %v", err)
	}
	if w.nc.IsClosed() {
		t.Error("Close closed the caller's connection")
	}
	noGoroutines(t)
}

func TestConnect(t *testing.T) {
	w := newWorld(t, lane.Settings{})
	p, err := Connect(w.srv.ClientURL(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PublishSync(t.Context(), "t", Record{}); err != nil {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil || !p.nc.IsClosed() {
		t.Errorf("Close: %v, connection %v", err, p.nc.Status())
	}
	if _, err := Connect(w.srv.ClientURL(), Options{Group: "absent"}); !errors.Is(err, ErrNoLane) {
		t.Errorf("absent group: %v", err)
	}
	if _, err := Connect("nats://127.0.0.1:1", Options{}); !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("no server: %v", err)
	}
	stream, err := w.js.Stream(t.Context(), w.lane.Stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxAge = time.Hour
	if _, err := w.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := Connect(w.srv.ClientURL(), Options{}); !isType[*MismatchError](err) {
		t.Errorf("a lane that forgets: %v", err)
	}
}
