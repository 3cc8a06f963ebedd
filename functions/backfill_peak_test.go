//go:build unix && !linux

package functions

import (
	"runtime"
	"syscall"
	"testing"
)

// ownPeak is the most memory that this process has had resident, in bytes.
func ownPeak(t *testing.T) uint64 {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return uint64(usage.Maxrss)
	}
	return uint64(usage.Maxrss) << 10 // KiB elsewhere
}
