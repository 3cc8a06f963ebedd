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

// Worker is an ingest worker in a process of its own.
type Worker struct {
	Log  string // the file that it logs to
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended
	err  error         // valid then
}

// StartWorker starts `spillway run ingest`. It returns at once; the worker waits
// for its lease by itself.
func (e *Env) StartWorker() (*Worker, error) {
	log, err := os.OpenFile(filepath.Join(e.Dir, "logs", "ingest.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the worker's log: %w", err)
	}
	defer func() { _ = log.Close() }()                      // the child has its own
	cmd := e.command(context.Background(), "run", "ingest") // ended by Kill or Stop
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttr()
	w := &Worker{Log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the process
		// The kernel kills the child when the thread that started it ends, so this
		// goroutine keeps its thread for as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			w.err = cmd.Wait()
			close(w.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start an ingest worker: %w", err)
	}
	return w, nil
}

// PID is the worker's process id.
func (w *Worker) PID() int { return w.cmd.Process.Pid }

// Done is closed once the worker has ended.
func (w *Worker) Done() <-chan struct{} { return w.done }

// Kill ends the worker with SIGKILL and waits until it is gone. It tells whether
// the worker had ended by itself before.
func (w *Worker) Kill() (before bool) {
	select {
	case <-w.done:
		return true
	default:
	}
	_ = w.cmd.Process.Kill() // fails if it has just ended, which the wait shows
	<-w.done
	status, ok := w.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return !ok || !status.Signaled()
}

// Stop ends the worker with SIGTERM, so that it finishes its flush, and after a
// while with SIGKILL.
func (w *Worker) Stop() error {
	select {
	case <-w.done:
		return nil
	default:
	}
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // as in Kill
	t := time.NewTimer(30 * time.Second)
	defer t.Stop()
	select {
	case <-w.done:
		return nil
	case <-t.C:
		w.Kill()
		return errors.New("the ingest worker did not end within 30 s of SIGTERM")
	}
}

// Retry tells, of a worker that has ended by itself, whether it is to be started
// again, as a scheduler would.
func (w *Worker) Retry() bool {
	return w.cmd.ProcessState.ExitCode() == functions.ExitRetry
}

// Err is how a worker that has ended did so.
func (w *Worker) Err() error {
	return fmt.Errorf("the ingest worker ended by itself, see %s: %w", w.Log, w.err)
}
