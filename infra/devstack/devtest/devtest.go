// Package devtest gives tests the real servers: one stack for all tests of a
// package, and nats-servers of their own in milliseconds. It never skips: where
// weed is missing the test fails and says how to get it.
//
// A package that uses the shared stack needs
//
//	func TestMain(m *testing.M) { devtest.Main(m) }
//
// Tests that share a stack keep apart by using names of their own.
package devtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/spillway-mq/spillway/infra/devstack"
)

const natsChildArg = "devtest-nats-server"

// shared is the package's one stack.
var shared struct {
	once   sync.Once
	inMain bool
	dir    string
	stack  *devstack.Stack
	err    error
}

// Main runs the package's tests and stops the shared stack after them.
func Main(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == natsChildArg {
		os.Exit(natsChild(os.Args[2]))
	}
	shared.inMain = true
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stop the shared stack:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// stop does away with the shared stack. Its data is not needed any more, so weed
// is killed: to end in good order takes it many seconds.
func stop() error {
	if shared.dir == "" {
		return nil
	}
	if shared.stack != nil {
		if err := shared.stack.KillWeed(); err != nil {
			return err
		}
		if err := shared.stack.Close(context.Background()); err != nil {
			return err
		}
	}
	return os.RemoveAll(shared.dir)
}

// Stack returns the package's shared stack, starting it if this is the first
// call. Tests must not stop it.
func Stack(t testing.TB) *devstack.Stack {
	t.Helper()
	if !shared.inMain {
		t.Fatal("add `func TestMain(m *testing.M) { devtest.Main(m) }` to this package: its tests use the shared stack")
	}
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "devtest-") //nolint:usetesting // it outlives this test
		if shared.err != nil {
			return
		}
		shared.stack, shared.err = devstack.Start(context.Background(), devstack.Config{
			Dir: filepath.Join(shared.dir, "stack"), NATSChild: NATSChild(),
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.stack
}

// Weed returns the package's shared stack, for tests that are after its filer.
func Weed(t testing.TB) *devstack.Stack {
	t.Helper()
	return Stack(t)
}

// NATSChild is a [devstack.Config].NATSChild for tests: the test binary itself,
// as far as [Main] is in charge of it.
func NATSChild() []string {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	return []string{self, natsChildArg}
}

func natsChild(arg string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := devstack.RunNATS(ctx, arg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// NATS runs a nats-server with JetStream for this test alone, in this process,
// with its store in a temporary folder. Its ClientURL says where it is.
func NATS(t testing.TB) *server.Server {
	t.Helper()
	return NATSOn(t, t.TempDir(), server.RANDOM_PORT)
}

// NATSOn is NATS with a store and a port of the caller's choice. Once a server
// has been stopped, another one on the same two takes its place, and clients
// find it again.
func NATSOn(t testing.TB, dir string, port int) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		ServerName: strings.ReplaceAll(t.Name(), "/", "-"), Host: "127.0.0.1", Port: port,
		JetStream: true, StoreDir: dir, NoSigs: true, NoLog: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start() // ends with Shutdown
	t.Cleanup(func() { StopNATS(s) })
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the nats-server is not ready")
	}
	return s
}

// StopNATS ends a nats-server and returns its port, for the next one.
func StopNATS(s *server.Server) (port int) {
	if at, ok := s.Addr().(*net.TCPAddr); ok {
		port = at.Port
	}
	s.Shutdown()
	s.WaitForShutdown()
	return port
}
