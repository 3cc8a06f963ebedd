package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/functions"
)

// Process is a function of Spillway in a process of its own.
type Process struct {
	Name string // "ingest worker", "planner", "backfill"
	Log  string // the file that it logs to
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
	err  error         // valid then
}

// StartBackfill starts `spillway backfill resume` on a job, also while another run has
// it. It returns at once.
func (e *Env) StartBackfill(topic, id string, flags ...string) (*Process, error) {
	return e.Start("backfill", "backfill-"+id, append([]string{"backfill", "resume", topic, id, "--force"}, flags...)...)
}

// StartWorker starts `spillway run ingest`. It returns at once; the worker waits
// for its lease by itself.
func (e *Env) StartWorker() (*Process, error) { return e.function("ingest worker", "ingest") }

// StartPlanner starts a resident `spillway run plan`, with flags such as --period.
// It returns at once; any number may run.
func (e *Env) StartPlanner(flags ...string) (*Process, error) {
	return e.function("planner", "plan", flags...)
}

// function runs a function as a process. All processes of a function log to one file.
func (e *Env) function(name, function string, flags ...string) (*Process, error) {
	return e.Start(name, function, append([]string{"run", function}, flags...)...)
}

// Start runs a spillway command as a process that logs to a file of this name. It
// returns at once.
func (e *Env) Start(name, file string, args ...string) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(e.Dir, "logs", file+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of the %s: %w", name, err)
	}
	defer func() { _ = log.Close() }()              // the child has its own
	cmd := e.command(context.Background(), args...) // ended by Kill or Stop
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttr()
	p := &Process{Name: name, Log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the process
		// The kernel kills the child when the thread that started it ends, so this
		// goroutine keeps its thread for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	return p, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once it has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process with SIGKILL and waits until it is gone. It tells whether
// it had ended by itself before.
func (p *Process) Kill() (before bool) {
	select {
	case <-p.done:
		return true
	default:
	}
	_ = p.cmd.Process.Kill() // fails if it has just ended, which the wait shows
	<-p.done
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return !ok || !status.Signaled()
}

// Stop ends the process with SIGTERM, so that it finishes what it has in hand, and
// after a while with SIGKILL.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // as in Kill
	t := time.NewTimer(30 * time.Second)
	defer t.Stop()
	select {
	case <-p.done:
		return nil
	case <-t.C:
		p.Kill()
		return fmt.Errorf("the %s did not end within 30 s of SIGTERM", p.Name)
	}
}

// Retry tells, of a process that has ended by itself, whether it is to be started
// again, as a scheduler would.
func (p *Process) Retry() bool {
	return p.cmd.ProcessState.ExitCode() == functions.ExitRetry
}

// Err is how a process that has ended did so.
func (p *Process) Err() error {
	return fmt.Errorf("the %s ended by itself, see %s: %w", p.Name, p.Log, p.err)
}

// Again tells of an error of [Env.CLI] whether the command is to be tried again.
func Again(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() == functions.ExitRetry
}
