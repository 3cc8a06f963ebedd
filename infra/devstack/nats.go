package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// natsStore bounds what all lanes together may be given; each lane sets its
	// own share aside. Nothing is allocated for it.
	natsStore  = 64 << 30
	natsMemory = 256 << 20 // for streams in memory; Spillway has none
	natsReady  = 30 * time.Second
	natsGrace  = 15 * time.Second
)

// natsSpec is what a nats-server of the stack is to be, in this process or in a
// child.
type natsSpec struct {
	Store      string `json:"store"`
	Log        string `json:"log"`
	Port       int    `json:"port"`
	Monitor    int    `json:"monitor"`
	SyncAlways bool   `json:"sync_always,omitempty"`
}

// natsServer is a nats-server in this process, with its log.
type natsServer struct {
	*server.Server
	log *os.File
}

// startNATSServer runs a nats-server in this process until it is closed.
func startNATSServer(spec natsSpec) (*natsServer, error) {
	file, _, err := openLog(spec.Log)
	if err != nil {
		return nil, err
	}
	srv, err := server.NewServer(&server.Options{
		ServerName: "spillway-dev", Host: loopback, Port: spec.Port,
		HTTPHost: loopback, HTTPPort: spec.Monitor,
		JetStream: true, StoreDir: spec.Store, SyncAlways: spec.SyncAlways,
		JetStreamMaxStore: natsStore, JetStreamMaxMemory: natsMemory, NoSigs: true,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure the nats-server: %w", err), file.Close())
	}
	log := &natsLog{log: slog.New(slog.NewTextHandler(file, nil))}
	srv.SetLoggerV2(log, false, false, false)
	go srv.Start() // ends with Shutdown
	n := &natsServer{srv, file}
	for end := time.Now().Add(natsReady); !srv.ReadyForConnections(pollEvery); {
		if msg := log.fatal.Load(); msg != nil {
			return nil, errors.Join(fmt.Errorf("the nats-server did not start: %s", *msg), n.close())
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("the nats-server is not ready after %s, see %s", natsReady, spec.Log), n.close())
		}
	}
	return n, nil
}

func (n *natsServer) close() error {
	n.Shutdown()
	n.WaitForShutdown()
	return n.log.Close()
}

// RunNATS is the other side of [Config.NATSChild]: it runs the nats-server that
// its argument describes, which is the argument that the stack appended to the
// command, until the context ends.
func RunNATS(ctx context.Context, arg string) error {
	var spec natsSpec
	if err := json.Unmarshal([]byte(arg), &spec); err != nil {
		return fmt.Errorf("the argument is not of a stack: %w", err)
	}
	srv, err := startNATSServer(spec)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return srv.close()
}

// ErrInProcess tells that the nats-server cannot be killed without killing this
// process; see [Config.NATSChild].
var ErrInProcess = errors.New("the nats-server runs in this process")

// natsProc is a nats-server of the stack that runs, or ran.
type natsProc interface {
	running() bool
	stop(ctx context.Context, grace time.Duration) (clean bool, err error)
	kill() error
}

// embeddedNATS is the one in this process.
type embeddedNATS struct{ srv *natsServer }

func (e embeddedNATS) running() bool { return e.srv.Running() }

func (e embeddedNATS) stop(context.Context, time.Duration) (bool, error) { return true, e.srv.close() }

func (e embeddedNATS) kill() error { return ErrInProcess }

// startNATS runs the nats-server and returns when JetStream answers.
func (s *Stack) startNATS(ctx context.Context) (natsProc, error) {
	spec := natsSpec{
		Store: filepath.Join(s.Info.Dir, "nats"), Log: filepath.Join(s.Info.Dir, "logs", "nats.log"),
		Port: s.Info.Ports.NATS, Monitor: s.Info.Ports.NATSMonitor, SyncAlways: s.cfg.SyncAlways,
	}
	if err := s.Info.Ports.checkFree("nats", "nats_monitor"); err != nil {
		return nil, err
	}
	if len(s.cfg.NATSChild) == 0 {
		srv, err := startNATSServer(spec)
		if err != nil {
			return nil, err
		}
		return embeddedNATS{srv}, nil
	}
	arg, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("describe the nats-server: %w", err)
	}
	c, err := startChild(childSpec{
		Name: "nats", Argv: append(append([]string{}, s.cfg.NATSChild...), string(arg)), Env: os.Environ(),
		Log: spec.Log, PID: filepath.Join(s.Info.Dir, natsPID),
	}, s.childDied)
	if err != nil {
		return nil, err
	}
	if err := c.await(ctx, probe{"JetStream", jetStreamAnswers(s.Info.NATS)}); err != nil {
		return nil, errors.Join(err, c.kill())
	}
	return c, nil
}

func jetStreamAnswers(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		nc, err := nats.Connect(url, nats.NoReconnect(), nats.Timeout(time.Second))
		if err != nil {
			return err
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		_, err = js.AccountInfo(ctx)
		return err
	}
}
