package functions

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
)

// newWeedBench is a bench on the package's SeaweedFS, whose metadata calls go
// through a line that can be made bad.
func newWeedBench(t *testing.T, stack *devstack.Stack, bucket string) (*bench, *line) {
	t.Helper()
	l := newLine(t, net.JoinHostPort("127.0.0.1", strconv.Itoa(stack.Info.Ports.Filer+10000)))
	f, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: stack.Info.Filer, GRPC: l.addr()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return benchOf(t, devtest.NATS(t), segment.NewStore(f, bucket), 0), l
}

// TestWeedOutages: what befalls a real filer while records flow: slow, cut off,
// read-only, killed, and not there when a worker starts. Not parallel: it has the
// package's SeaweedFS to itself.
func TestWeedOutages(t *testing.T) {
	stack := devtest.Stack(t)
	b, line := newWeedBench(t, stack, "outages")
	w := b.resident(t, IngestOptions{AutoCreate: true})
	f := b.flood(t)
	b.awaitCommitted(t, 200)

	line.delay.Store(int64(100 * time.Millisecond))
	b.awaitCommitted(t, 200)
	line.delay.Store(0)

	line.cut()
	b.awaitCommitted(t, 200)

	storageRules(t, stack, map[string]any{"locationPrefix": b.Store.Root() + "/", "readOnly": true})
	b.log.await(t, "read-only")
	storageRules(t, stack)
	b.awaitCommitted(t, 200)
	if b.metric(t, "restarts_total") == 0 {
		t.Error("the worker does not say that it began again")
	}
	w.end(t)

	// Killed in the middle: a run with a deadline ends by it and says why.
	run := b.resident(t, IngestOptions{AutoCreate: true, Once: true, Deadline: 5 * time.Second})
	b.awaitCommitted(t, 200)
	if err := stack.KillWeed(); err != nil {
		t.Fatal(err)
	}
	run.await(t)
	if ExitCode(run.err) != ExitRetry || run.sum.Committed < 200 {
		t.Errorf("%+v, %v, exit code %d", run.sum, run.err, ExitCode(run.err))
	}

	// The next worker starts before the filer does.
	w = b.resident(t, IngestOptions{AutoCreate: true})
	if err := stack.RestartWeed(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.awaitCommitted(t, 200)
	want := f.end(t)
	w.end(t)
	b.whole(t, want)
}

// storageRules replaces the filer's rules of where what is stored how.
func storageRules(t *testing.T, stack *devstack.Stack, rules ...map[string]any) {
	t.Helper()
	conf, err := json.Marshal(map[string]any{"version": 1, "locations": rules})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+stack.Info.Filer+"/etc/seaweedfs/filer.conf", bytes.NewReader(conf))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= 300 {
		t.Fatalf("set storage rules: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
}

// line passes connections on to a server, slowly if it is told to.
type line struct {
	listener net.Listener
	target   string
	delay    atomic.Int64 // of each packet, each way

	mu    sync.Mutex
	conns []net.Conn
}

func newLine(t *testing.T, target string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{listener: listener, target: target}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { l.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		l.cut()
		all.Wait()
	})
	return l
}

func (l *line) addr() string { return l.listener.Addr().String() }

func (l *line) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.conns = append(l.conns, c, s)
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pass(s, c) })
	both.Go(func() { l.pass(c, s) })
	both.Wait()
}

// pass ends both connections when one has ended.
func (l *line) pass(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if d := time.Duration(l.delay.Load()); d > 0 {
			<-time.After(d)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut breaks all connections; new ones are taken.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}
