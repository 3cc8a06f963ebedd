package functions

import (
	"os"
	"testing"
)

// ownPeak is the most memory that this process has had resident, in bytes.
func ownPeak(t *testing.T) uint64 {
	t.Helper()
	return peakOf(t, os.Getpid())
}
