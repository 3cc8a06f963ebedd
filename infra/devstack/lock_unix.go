//go:build unix

package devstack

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// tryLock takes the lock of an open file, or says errLockHeld at once. Closing
// the file gives it back.
func tryLock(f *os.File, exclusive bool) error {
	how := syscall.LOCK_SH
	if exclusive {
		how = syscall.LOCK_EX
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errLockHeld
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
