package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// TestScripts runs the scripts against one stack with one resident worker. The
// scripts use topics of their own. $STACK is the stack's folder; `code N cmd…`
// runs a command that must end with exit code N.
func TestScripts(t *testing.T) {
	stack := devtest.Stack(t)
	startWorker(t, stack.Info.Dir)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		Cmds:                map[string]func(*testscript.TestScript, bool, []string){"code": code},
		Setup: func(e *testscript.Env) error {
			e.Setenv("STACK", stack.Info.Dir)
			e.Setenv("NATS", stack.Info.NATS)
			e.Setenv("LONG", strings.Repeat("x", 300))
			return nil
		},
	})
}

// startWorker runs an ingest worker until the test and its scripts are done.
func startWorker(t *testing.T, dir string) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"run", "ingest", "--stack", dir, "--log-level", "warn"}, os.Stdout, os.Stderr)
	}()
	t.Cleanup(func() {
		cancel()
		if c := <-ended; c != 0 {
			t.Errorf("the worker ended with code %d", c)
		}
	})
}

func code(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	switch err := ts.Exec(args[1], args[2:]...); {
	case errors.As(err, &exit):
		got = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}
