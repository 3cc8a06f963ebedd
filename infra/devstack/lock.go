package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

const lockFile = "lock"

// lockPatience outlasts the moment for which [Load] takes the lock to look
// whether somebody has it.
const lockPatience = 500 * time.Millisecond

// errLockHeld is what tryLock says when another process has the lock.
var errLockHeld = errors.New("locked")

// LockedError tells that another stack runs on the folder.
type LockedError struct {
	Dir string
	PID int // 0: unknown
}

func (e *LockedError) Error() string {
	return fmt.Sprintf("a stack runs on %s already, in process %d", e.Dir, e.PID)
}

// lockDir takes the folder's lock for as long as the file returned is open. The
// system gives it back when the process dies, however it dies.
func lockDir(dir, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the stack's lock: %w", err)
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for end := time.Now().Add(lockPatience); ; <-tick.C {
		err = tryLock(f, true)
		if !errors.Is(err, errLockHeld) || time.Now().After(end) {
			break
		}
	}
	if errors.Is(err, errLockHeld) {
		err = &LockedError{Dir: dir, PID: holder(path)}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// holder reads the process id that the lock's holder wrote into it.
func holder(path string) int {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(data)))
	return pid
}

// lockHeld tells whether a process has the lock.
func lockHeld(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open the stack's lock: %w", err)
	}
	defer func() { _ = f.Close() }()
	if err := tryLock(f, false); !errors.Is(err, errLockHeld) {
		return false, err
	}
	return true, nil
}
