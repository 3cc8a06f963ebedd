package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// proxy stands before a server and goes away once so many bytes have come from
// it: then it breaks its connections and accepts no more.
type proxy struct {
	net.Listener
	target string
	left   atomic.Int64
	mu     sync.Mutex
	conns  []net.Conn
	gone   bool
}

func newProxy(t *testing.T, target string, left int64) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, target: target}
	p.left.Store(left)
	t.Cleanup(p.vanish)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(t.Context(), c)
		}
	}()
	return p
}

func (p *proxy) serve(ctx context.Context, c net.Conn) {
	s, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil || !p.keep(c, s) {
		_ = c.Close()
		return
	}
	go func() {
		_, _ = io.Copy(s, c)
		_ = s.Close()
	}()
	_, _ = io.Copy(&counted{c, p}, s)
	_ = c.Close()
}

// keep notes connections that are to break.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conns...)
	if p.gone {
		for _, c := range conns {
			_ = c.Close()
		}
	}
	return !p.gone
}

func (p *proxy) vanish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	_ = p.Close()
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// counted passes on what is left.
type counted struct {
	net.Conn
	p *proxy
}

func (c *counted) Write(b []byte) (int, error) {
	left := c.p.left.Add(-int64(len(b)))
	if left >= 0 {
		return c.Conn.Write(b)
	}
	if n := int64(len(b)) + left; n > 0 {
		_, _ = c.Conn.Write(b[:n])
	}
	c.p.vanish()
	return 0, io.ErrClosedPipe
}

// forever is more than any command asks for.
const forever = 1 << 40

// behind are flags that lead to the stack through proxies, which let so many bytes
// of NATS and of the filer's gRPC pass.
func behind(t *testing.T, nats, grpc int64) []string {
	t.Helper()
	i := devtest.Stack(t).Info
	host, port, err := net.SplitHostPort(i.Filer)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	f := newProxy(t, net.JoinHostPort(host, strconv.Itoa(n+10000)), grpc)
	s := newProxy(t, strings.TrimPrefix(i.NATS, "nats://"), nats)
	return []string{
		"--nats", "nats://" + s.Addr().String(), "--filer", i.Filer, "--filer-grpc", f.Addr().String(),
		"--bucket", i.Bucket, "--timeout", "1s", "--log-level", "error",
	}
}

// TestServersThatGoAway: whatever a command is at when NATS or the filer goes
// away, it ends within its timeout with exit code 75 and says which it was.
func TestServersThatGoAway(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack)
	input := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(input, bytes.Repeat([]byte("{\"some\":\"record\"}\n"), 2000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"topic", "create", "gone", "--flush-age", "100ms"},
		{"publish", "gone", input, "--ack", "stored"},
	} {
		if code := run(t.Context(), append(args, "--stack", stack.Info.Dir), io.Discard, os.Stderr); code != 0 {
			t.Fatalf("%s: exit code %d", args, code)
		}
	}
	commands := map[string][]string{
		"create":   {"topic", "create", "gone-%d"},
		"list":     {"topic", "list"},
		"describe": {"topic", "describe", "gone"},
		"delete":   {"topic", "delete", "gone-%d", "--yes"},
		"publish":  {"publish", "gone", input},
		"stored":   {"publish", "gone", input, "--ack", "stored"},
		"read":     {"read", "gone"},
		"follow":   {"read", "gone", "--follow"},
		"verify":   {"verify", "gone"},
	}
	for name, args := range commands {
		servers := []string{"filer"}
		switch args[0] {
		case "publish":
			servers = []string{"nats"}
		case "verify", "topic":
			servers = []string{"filer", "nats"} // those of topic that need no NATS end well at once
		}
		for _, server := range servers {
			t.Run(name+"/"+server, func(t *testing.T) {
				t.Parallel()
				goAway(t, server, args)
			})
		}
	}
}

// goAway runs a command with a server that goes away after ever more bytes, until
// the command does not notice any more.
func goAway(t *testing.T, server string, args []string) {
	follow := slices.Contains(args, "--follow") // never ends well
	for n, left := 0, int64(0); n < 8 || !follow; n, left = n+1, max(100, left*3) {
		if n == 15 {
			t.Fatalf("%s never ends well: the test looks at the wrong thing", args)
		}
		allow := map[string]int64{"nats": forever, "filer": forever}
		allow[server] = left
		call := append([]string{}, args...)
		for i, arg := range call {
			if strings.Contains(arg, "%d") {
				call[i] = fmt.Sprintf(arg, n)
			}
		}
		var errs bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context()) // no deadline: commands have none
		timer := time.AfterFunc(40*time.Second, cancel)
		start := time.Now()
		code := run(ctx, append(call, behind(t, allow["nats"], allow["filer"])...), io.Discard, &errs)
		late := ctx.Err() != nil
		timer.Stop()
		cancel()
		switch {
		case late:
			t.Fatalf("%s, %s gone after %d bytes: it did not end:\n%s", call, server, left, errs.String())
		case code == 0, code == 2 && strings.Contains(errs.String(), "no such topic"):
			return
		case code != 75:
			t.Errorf("%s, %s gone after %d bytes: exit code %d:\n%s", call, server, left, code, errs.String())
		case !strings.Contains(strings.ToLower(errs.String()), map[string]string{"filer": "filer 127.0.0.1", "nats": "nats"}[server]):
			t.Errorf("%s, %s gone after %d bytes: it does not say what:\n%s", call, server, left, errs.String())
		}
		t.Logf("%s gone after %d bytes: %.1f s: %s", server, left, time.Since(start).Seconds(), errs.String())
	}
}
