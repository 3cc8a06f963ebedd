//go:build unix

package backfill

import (
	"os"
	"syscall"
)

// inode numbers the file itself, which one that was put in its place does not share.
func inode(info os.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino) //nolint:unconvert // it has other sizes on other systems
	}
	return 0
}
