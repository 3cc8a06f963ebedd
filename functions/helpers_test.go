package functions

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/verify"
)

func TestMain(m *testing.M) {
	// The tests here wait more than they work. The command line still wins.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	devtest.Main(m)
}

// patience is how long a test waits for what must come.
const patience = 60 * time.Second

var laneID = lane.ID{Group: lane.Default}

// bench is a NATS server and a filer, with the default lane made, and what a
// worker on them says.
type bench struct {
	Deps
	js   jetstream.JetStream
	lane *ingest.JetStream
	log  *journal
	reg  *prometheus.Registry
}

// newBench has a filer in memory, without faults.
func newBench(t *testing.T, laneBytes int64) *bench {
	t.Helper()
	return benchOf(t, devtest.NATS(t), segment.NewStore(memfs.New().Client("worker", nil), "bench"), laneBytes)
}

func newBenchOn(t *testing.T, srv *server.Server, f filer.Store) *bench {
	t.Helper()
	return benchOf(t, srv, segment.NewStore(f, "bench"), 0)
}

func benchOf(t *testing.T, srv *server.Server, store *segment.Store, laneBytes int64) *bench {
	t.Helper()
	quiet := func(*nats.Conn, *nats.Subscription, error) {}
	nc, err := nats.Connect(srv.ClientURL(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.ErrorHandler(quiet))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	opened, err := ingest.OpenLane(t.Context(), nc, store, laneID, lane.Settings{MaxBytes: laneBytes})
	if err != nil {
		t.Fatal(err)
	}
	log := &journal{news: make(chan struct{})}
	b := &bench{Deps{NATS: nc, Store: store, Logger: slog.New(slog.NewTextHandler(log, nil))}, js, opened, log, prometheus.NewRegistry()}
	b.Metrics = b.reg
	return b
}

// journal keeps what is logged, and can be waited on.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{} // closed at the next line
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	close(j.news)
	j.news = make(chan struct{})
	return j.text.Write(line)
}

func (j *journal) now() (string, <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String(), j.news
}

// await returns once all words have been logged.
func (j *journal) await(t *testing.T, words ...string) {
	t.Helper()
	late := time.After(patience)
	for _, w := range words {
		for {
			text, news := j.now()
			if strings.Contains(text, w) {
				break
			}
			select {
			case <-news:
			case <-late:
				t.Fatalf("%q was never logged:\n%s", w, text)
			}
		}
	}
}

// metric is the value of a counter or gauge of the worker, zero before it has
// begun.
func (b *bench) metric(t *testing.T, name string) float64 {
	t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_ingest_"+name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return 0
}

// fresh gives the next worker metrics of its own.
func (b *bench) fresh() {
	b.reg = prometheus.NewRegistry()
	b.Metrics = b.reg
}

// once drains the lane.
func (b *bench) once(t *testing.T, deadline time.Duration) (IngestSummary, error) {
	t.Helper()
	b.fresh()
	return Ingest(t.Context(), b.Deps, IngestOptions{Once: true, Deadline: deadline, AutoCreate: true})
}

// resident is a worker that runs until it is stopped, or ends by itself.
type resident struct {
	stop func()
	done chan struct{}
	sum  IngestSummary // valid then
	err  error
}

func (b *bench) resident(t *testing.T, o IngestOptions) *resident {
	t.Helper()
	b.fresh()
	ctx, stop := context.WithCancel(t.Context())
	r := &resident{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.sum, r.err = Ingest(ctx, b.Deps, o)
	}()
	t.Cleanup(func() { stop(); <-r.done })
	return r
}

// end stops the worker in good order.
func (r *resident) end(t *testing.T) IngestSummary {
	t.Helper()
	r.stop()
	r.await(t)
	if r.err != nil {
		t.Errorf("told to stop, the worker ended with %v", r.err)
	}
	return r.sum
}

// await returns when the worker has ended.
func (r *resident) await(t *testing.T) {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(patience):
		t.Fatal("the worker does not end")
	}
}

func (b *bench) publish(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		if _, err := b.js.Publish(t.Context(), laneID.Subject("t"), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// flood publishes numbered records to topic t until it is told to end, as fast
// as the lane takes them.
type flood struct {
	sent atomic.Int64
	quit chan struct{}
	done chan error
}

func (b *bench) flood(t *testing.T) *flood {
	t.Helper()
	p, err := client.NewProducer(b.NATS, client.Options{BatchBytes: 16 << 10, MaxBuffered: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{quit: make(chan struct{}), done: make(chan error, 1)}
	go func() { f.done <- f.run(t.Context(), p) }()
	return f
}

// pace is how often a flood sends ten records, so that it does not fill the disk
// while a worker cannot work.
const pace = time.Millisecond

func (f *flood) run(ctx context.Context, p *client.Producer) error {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		for range 10 {
			if _, err := p.Publish(ctx, "t", numbered(f.sent.Load())); err != nil {
				return errors.Join(err, p.Close(ctx))
			}
			f.sent.Add(1)
		}
		select {
		case <-tick.C:
		case <-f.quit:
			// Records go into segments in order, so this one is the last.
			_, err := p.PublishSync(ctx, "t", numbered(f.sent.Add(1)-1), client.WithAck(client.Stored))
			return errors.Join(err, p.Close(ctx))
		}
	}
}

func numbered(i int64) client.Record { return client.Record{Value: fmt.Appendf(nil, "%d", i)} }

// end ends the flood and returns how many records there were when all of them
// are stored.
func (f *flood) end(t *testing.T) int {
	t.Helper()
	close(f.quit)
	select {
	case err := <-f.done:
		if err != nil {
			t.Fatalf("the flood: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the last record of the flood is not stored")
	}
	return int(f.sent.Load())
}

// read reads a topic from its start.
func (b *bench) read(t *testing.T, name string) (items []segment.Item) {
	t.Helper()
	top, err := b.Store.Topic(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := top.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		item.Record = item.Clone()
		items = append(items, item)
	}
	return items
}

// whole checks that topic t holds the records of a flood, each once and in
// order, and that its files and the lane agree.
func (b *bench) whole(t *testing.T, want int) {
	t.Helper()
	items := b.read(t, "t")
	for i, item := range items {
		if string(item.Value) != fmt.Sprint(i) || item.Rejected != "" {
			t.Fatalf("record %d is %q (rejected: %q): lost, doubled or out of order", i, item.Value, item.Rejected)
		}
	}
	if len(items) != want {
		t.Fatalf("%d records are there, %d were sent", len(items), want)
	}
	b.verify(t, "t")
}

func (b *bench) verify(t *testing.T, name string) {
	t.Helper()
	report, err := verify.Topic(t.Context(), b.Store, verify.JetStream(b.js), name)
	if err != nil || !report.OK {
		t.Fatalf("verify: %v, %v", report.Violations, err)
	}
}

// count reads topic t, whose records are numbered by one byte.
func (b *bench) count(t *testing.T) int {
	t.Helper()
	items := b.read(t, "t")
	for n, item := range items {
		if len(item.Value) != 1 || item.Value[0] != byte(n) {
			t.Fatalf("record %d is %v: out of order", n, item.Value)
		}
	}
	return len(items)
}
