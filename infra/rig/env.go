package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/segment"
)

// natsChildArg makes a program that uses this package a nats-server.
const natsChildArg = "rig-nats-server"

// Config is what a rig is to be.
type Config struct {
	Dir    string // the stack's folder; empty: a temporary one, removed by Close
	Bin    string // the spillway binary
	Logger *slog.Logger
}

// Env is a running stack with connections to it. Its methods may be called
// concurrently.
type Env struct {
	Dir   string
	Stack *devstack.Stack
	NATS  *nats.Conn
	JS    jetstream.JetStream
	Store *segment.Store
	Keep  bool // keep the folder at Close, temporary or not

	bin   string
	filer *seaweed.Client
	log   *slog.Logger
	temp  bool
}

// Main runs a program of this rig until it ends or is told to (SIGINT, SIGTERM)
// and exits with what it returns. The program may also have been started as the
// nats-server of its own stack; then that is what it is.
func Main(program func(context.Context) int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := 0
	if len(os.Args) == 3 && os.Args[1] == natsChildArg {
		if err := devstack.RunNATS(ctx, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	} else {
		code = program(ctx)
	}
	stop()
	os.Exit(code)
}

// Open starts the stack, its nats-server in a process of its own.
func Open(ctx context.Context, cfg Config) (_ *Env, err error) {
	bin, err := filepath.Abs(cfg.Bin)
	if err == nil {
		_, err = os.Stat(bin)
	}
	if err != nil {
		return nil, fmt.Errorf("the spillway binary (run `make build`): %w", err)
	}
	e := &Env{Dir: cfg.Dir, bin: bin, log: cfg.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.Dir == "" {
		e.temp = true
		if e.Dir, err = os.MkdirTemp("", "spillway-"); err != nil {
			return nil, fmt.Errorf("make a folder for the stack: %w", err)
		}
	}
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func (e *Env) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to run it as the nats-server: %w", err)
	}
	e.Stack, err = devstack.Start(ctx, devstack.Config{Dir: e.Dir, NATSChild: []string{self, natsChildArg}, Logger: e.log})
	if err != nil {
		return err
	}
	if e.NATS, err = nats.Connect(e.Stack.Info.NATS, nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond)); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if e.JS, err = jetstream.New(e.NATS); err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	if e.filer, err = seaweed.Dial(ctx, seaweed.Config{Filer: e.Stack.Info.Filer, Logger: e.log}); err != nil {
		return err
	}
	e.Store = segment.NewStore(e.filer, e.Stack.Info.Bucket)
	return nil
}

// Filer is the rig's own connection to the filer.
func (e *Env) Filer() *seaweed.Client { return e.filer }

// Close stops the stack. A temporary folder is removed with what is in it, so
// weed is killed then: to end in good order takes it many seconds.
func (e *Env) Close() error {
	var errs []error
	if e.NATS != nil {
		e.NATS.Close()
	}
	if e.filer != nil {
		errs = append(errs, e.filer.Close())
	}
	remove := e.temp && !e.Keep
	if e.Stack != nil {
		if remove {
			errs = append(errs, e.Stack.KillWeed())
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		errs = append(errs, e.Stack.Close(ctx))
	}
	if remove {
		errs = append(errs, os.RemoveAll(e.Dir))
	}
	return errors.Join(errs...)
}

// CLI runs a spillway command on the stack and gives what it printed. An error
// holds what it printed to its standard error.
func (e *Env) CLI(ctx context.Context, args ...string) ([]byte, error) {
	var out, diag bytes.Buffer
	cmd := e.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("spillway %s %s: %w: %s", args[0], args[1], err, bytes.TrimSpace(diag.Bytes()))
	}
	return out.Bytes(), nil
}

func (e *Env) command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, e.bin, append(args, "--stack", e.Dir)...)
}
