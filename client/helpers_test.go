package client

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/record"
)

// world is a nats-server with a lane, and a connection of the test's own.
type world struct {
	t    testing.TB
	opts server.Options
	srv  *server.Server
	nc   *nats.Conn
	js   jetstream.JetStream
	lane lane.Info
}

var defaultLane = lane.ID{Group: lane.Default}

func newWorld(t testing.TB, settings lane.Settings) *world {
	t.Helper()
	w := &world{t: t, opts: server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true,
	}}
	w.start()
	w.nc = w.connect(w.srv.ClientURL())
	var err error
	if w.js, err = jetstream.New(w.nc); err != nil {
		t.Fatal(err)
	}
	w.makeLane(settings)
	return w
}

func (w *world) start() {
	w.t.Helper()
	o := w.opts
	s, err := server.NewServer(&o)
	if err != nil {
		w.t.Fatal(err)
	}
	go s.Start()
	w.t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(20 * time.Second) {
		w.t.Fatal("the server is not ready")
	}
	w.srv = s
	w.opts.Port = s.Addr().(*net.TCPAddr).Port
}

// stop shuts the server down; start brings it back with what it had stored.
func (w *world) stop() {
	w.srv.Shutdown()
	w.srv.WaitForShutdown()
}

func (w *world) connect(url string, more ...nats.Option) *nats.Conn {
	w.t.Helper()
	quiet := func(*nats.Conn, *nats.Subscription, error) {}
	nc, err := nats.Connect(url, append([]nats.Option{nats.MaxReconnects(-1), nats.ReconnectWait(5 * time.Millisecond),
		nats.ReconnectJitter(0, 0), nats.ErrorHandler(quiet)}, more...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(nc.Close)
	return nc
}

// makeLane makes the default lane, anew if there is one.
func (w *world) makeLane(settings lane.Settings) {
	w.t.Helper()
	err := w.js.DeleteStream(context.Background(), defaultLane.Stream())
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		w.t.Fatal(err)
	}
	if settings.MaxBytes == 0 {
		settings.MaxBytes = 256 << 20
	}
	for end := time.Now().Add(20 * time.Second); ; { // the server may still be at work on the old files
		w.lane, err = lane.Ensure(context.Background(), w.js, defaultLane, settings)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			w.t.Fatal(err)
		}
	}
}

func (w *world) producer(opts Options) *Producer {
	w.t.Helper()
	return w.producerOn(w.nc, opts)
}

func (w *world) producerOn(nc *nats.Conn, opts Options) *Producer {
	w.t.Helper()
	p, err := NewProducer(nc, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.Close(ctx)
	})
	return p
}

// got is a record as it lies in a lane.
type got struct {
	record.Record
	Topic  string
	Header nats.Header
}

// read decodes all that a lane holds.
func (w *world) read(id lane.ID) []got {
	w.t.Helper()
	ctx := context.Background()
	s, err := w.js.Stream(ctx, id.Stream())
	if err != nil {
		w.t.Fatal(err)
	}
	var all []got
	state := s.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			w.t.Fatal(err)
		}
		n, err := strconv.ParseUint(m.Header.Get(lane.HeaderSequence), 10, 64)
		if err != nil || m.Header.Get(lane.HeaderBatch) != "1" {
			w.t.Fatalf("headers %v", m.Header)
		}
		meta := record.Meta{
			Time: m.Time, Sequence: seq, Source: id.Source(w.lane.Incarnation),
			ID: &record.ID{Producer: m.Header.Get(lane.HeaderProducer), Sequence: n},
		}
		recs, err := record.DecodeBatch(meta, m.Header.Get(lane.HeaderCodec), m.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, r := range recs {
			all = append(all, got{Record: r, Topic: id.Topic(m.Subject), Header: m.Header})
		}
	}
	return all
}

// dedupe drops what an ingest worker would drop: batches at or below their
// producer's last sequence. It checks that those are dense.
func dedupe(t testing.TB, all []got) []got {
	t.Helper()
	last := map[string]uint64{}
	seen := map[string]uint64{} // lane sequence that brought the last one
	var kept []got
	for _, g := range all {
		switch id := g.ID; {
		case id.Sequence == last[id.Producer]+1:
			last[id.Producer], seen[id.Producer] = id.Sequence, g.Position.Sequence
		case id.Sequence > last[id.Producer]:
			t.Fatalf("producer %s: %d follows %d", id.Producer, id.Sequence, last[id.Producer])
		case seen[id.Producer] != g.Position.Sequence:
			continue
		}
		kept = append(kept, g)
	}
	return kept
}

// proxy stands between a client and the server, and breaks what passes.
type proxy struct {
	listener net.Listener
	target   string
	muted    atomic.Bool  // drop what the server says
	fuse     atomic.Int64 // > 0: cut the connection when the server said so many bytes
	fuses    func() int64

	mu    sync.Mutex
	conns []net.Conn
}

// proxy starts one. fuses, if not nil, gives each connection's fuse.
func (w *world) proxy(fuses func() int64) *proxy {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	p := &proxy{listener: l, target: w.srv.Addr().String(), fuses: fuses}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(c) })
		}
	})
	w.t.Cleanup(func() { _ = l.Close(); p.cut(); wg.Wait() })
	return p
}

func (p *proxy) url() string { return "nats://" + p.listener.Addr().String() }

func (p *proxy) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.conns = append(p.conns, c, s)
	if p.fuses != nil {
		p.fuse.Store(p.fuses())
	}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	}()
	p.answers(c, s)
	_ = c.Close() // at once; what the client sent before still reaches the server
	<-done
	_ = s.Close()
}

// answers passes on what the server says, as long as it is to.
func (p *proxy) answers(c, s net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := s.Read(buf)
		if err != nil {
			return
		}
		if p.fuse.Load() > 0 && p.fuse.Add(-int64(n)) <= 0 {
			return
		}
		if p.muted.Load() {
			continue
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// ourGoroutines lists the goroutines of this project and those of nats.go that a
// producer starts besides its connection's.
func ourGoroutines() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var ours []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i == 0 { // this one
			continue
		}
		for _, mark := range []string{"client.(*sender)", "client.(*link)", "lane.(*Commits)", "resetPendingAcks"} {
			if strings.Contains(g, mark) {
				ours = append(ours, g)
			}
		}
	}
	return ours
}

// noGoroutines waits for those that were told to end.
func noGoroutines(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; runtime.Gosched() {
		left := ourGoroutines()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
		}
	}
}

func str(v int) []byte { return []byte(strconv.Itoa(v)) }
