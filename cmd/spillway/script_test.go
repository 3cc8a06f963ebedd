package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/lane"
)

// TestScripts runs the scripts against one stack with one resident worker. The
// scripts use topics of their own. $STACK is the stack's folder. Commands of our
// own are in commands_test.go.
func TestScripts(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Cmds:                commands,
		Setup: func(e *testscript.Env) error {
			e.Setenv("STACK", stack.Info.Dir)
			e.Setenv("NATS", stack.Info.NATS)
			for _, name := range []string{devstack.WeedEnv, "HOME", "XDG_CACHE_HOME"} { // where weed may be
				e.Setenv(name, os.Getenv(name))
			}
			e.Setenv("LONG", strings.Repeat("x", 300))
			return nil
		},
	})
}

// startWorker runs an ingest worker until the test and its scripts are done. The
// lane is there when it returns.
func startWorker(t *testing.T, stack *devstack.Stack) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"run", "ingest", "--stack", stack.Info.Dir, "--log-level", "warn"}, os.Stdout, os.Stderr)
	}()
	t.Cleanup(func() {
		cancel()
		if c := <-ended; c != 0 {
			t.Errorf("the worker ended with code %d", c)
		}
	})
	nc, err := nats.Connect(stack.Info.NATS)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for limit := time.After(time.Minute); ; {
		if _, err = lane.Open(t.Context(), js, lane.ID{Group: lane.Default}); err == nil {
			return
		}
		select {
		case <-limit:
			t.Fatalf("the worker makes no lane: %v", err)
		case <-look.C:
		}
	}
}
