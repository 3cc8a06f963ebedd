package devstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxLogSize = 16 << 20 // a log larger than this is set aside at the next start
	tailSize   = 4 << 10
)

// DiedError tells that a process of the stack ended by itself, and with what
// last words.
type DiedError struct {
	Name string // weed, nats
	Err  error  // how it ended; nil: with exit code 0
	Log  string // path of its log
	Tail string // the log's end
}

func (e *DiedError) Error() string {
	how := "exit status 0"
	if e.Err != nil {
		how = e.Err.Error()
	}
	return fmt.Sprintf("%s died: %s; the end of %s:\n%s", e.Name, how, e.Log, e.Tail)
}

// Unwrap gives the process's exit status.
func (e *DiedError) Unwrap() error { return e.Err }

// childSpec is how to run a child.
type childSpec struct {
	Name string
	Argv []string
	Env  []string // nil: ours
	Dir  string   // working directory
	Log  string   // file for all that it prints
	PID  string   // file for its process id, see reapOrphan
	Gone func()   // called when it has ended, however; nil: nothing
}

// child is a process that belongs to a stack.
type child struct {
	spec   childSpec
	cmd    *exec.Cmd
	logAt  int64         // where this run begins in the log
	gone   chan struct{} // closed when the process has ended
	err    error         // how it ended; to be read after gone
	wanted atomic.Bool   // we ended it
}

// startChild runs a child. When it ends by itself, died is called with the
// reason.
func startChild(spec childSpec, died func(*DiedError)) (*child, error) {
	log, at, err := openLog(spec.Log)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env, cmd.Dir = spec.Env, spec.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttr()
	c := &child{spec: spec, cmd: cmd, logAt: at, gone: make(chan struct{})}
	started := make(chan error)
	// The kernel kills the child when the thread that started it ends, so this
	// goroutine keeps its thread for as long as the child lives.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer func() { _ = log.Close() }()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		started <- nil
		c.err = cmd.Wait()
		if spec.Gone != nil {
			spec.Gone()
		}
		close(c.gone)
		if !c.wanted.Load() {
			died(c.diedError())
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", spec.Name, err)
	}
	if err := writeFile(spec.PID, []byte(strconv.Itoa(cmd.Process.Pid)+"\n")); err != nil {
		return nil, errors.Join(fmt.Errorf("note the process id of %s: %w", spec.Name, err), c.kill())
	}
	return c, nil
}

// stop asks the child to end and kills it when it has not within the grace, or
// when the context ends first. It reports whether the child ended by itself.
func (c *child) stop(ctx context.Context, grace time.Duration) (clean bool, err error) {
	c.wanted.Store(true)
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return false, errors.Join(err, c.kill())
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-c.gone:
		return true, nil
	case <-ctx.Done():
		return false, c.kill()
	}
}

// kill ends the child and all that it started at once (SIGKILL), and returns
// when it is gone.
func (c *child) kill() error {
	c.wanted.Store(true)
	err := killGroup(c.cmd.Process.Pid)
	if err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill %s: %w", c.spec.Name, err)
	}
	<-c.gone
	return nil
}

func (c *child) running() bool {
	select {
	case <-c.gone:
		return false
	default:
		return true
	}
}

// diedError may be called once gone is closed.
func (c *child) diedError() *DiedError {
	return &DiedError{Name: c.spec.Name, Err: c.err, Log: c.spec.Log, Tail: c.tail(tailSize)}
}

// tail is the end of what the child has printed in this run, at most n bytes.
func (c *child) tail(n int64) string {
	f, err := os.Open(c.spec.Log)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = f.Close() }()
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err.Error()
	}
	data, err := io.ReadAll(io.NewSectionReader(f, max(c.logAt, end-n), n))
	if err != nil {
		return err.Error()
	}
	return strings.ToValidUTF8(string(bytes.TrimSpace(data)), "?")
}

// openLog opens a log to append to and tells where its end is.
func openLog(path string) (*os.File, int64, error) {
	if s, err := os.Stat(path); err == nil && s.Size() > maxLogSize {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, 0, fmt.Errorf("set the old log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the log: %w", err)
	}
	s, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("open the log: %w", err), f.Close())
	}
	return f, s.Size(), nil
}

// reapOrphan kills a child that a killed stack left behind and waits until it is
// gone. Where the kernel kills children this only waits. It goes by the process
// id that the stack wrote down and makes sure, by a part of the command line,
// that the process is the child and not another one that has got its number.
func reapOrphan(ctx context.Context, pidFile, mark string) error {
	data, err := os.ReadFile(pidFile)
	if err != nil {
		return nil // no child was written down
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || pid <= 1 {
		return nil // nor is this the number of one
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for commandHas(ctx, pid, mark) {
		if err := killGroup(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("kill process %d, left by a killed stack (%s): %w", pid, filepath.Base(pidFile), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d, left by a killed stack, does not end: %w", pid, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// commandHas tells whether the process exists and has the mark in its command
// line. A zombie has no command line any more.
func commandHas(ctx context.Context, pid int, mark string) bool {
	out, err := exec.CommandContext(ctx, "ps", "-ww", "-o", "command=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && strings.Contains(string(out), mark)
}
