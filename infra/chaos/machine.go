package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// room is an error if the disk does not hold an object of that size.
func room(ctx context.Context, dir string, size int64) error {
	out, err := exec.CommandContext(ctx, "df", "-Pk", dir).Output()
	if err != nil {
		return fmt.Errorf("see how much room is in %s: df: %w", dir, err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	fields := strings.Fields(lines[len(lines)-1])
	if len(fields) < 4 {
		return fmt.Errorf("df printed %q", out)
	}
	free, err := strconv.ParseInt(fields[3], 10, 64)
	if err != nil {
		return fmt.Errorf("df printed %q: %w", out, err)
	}
	if free<<10 < size+spareDisk {
		return fmt.Errorf("an object of %s needs %s on the disk of %s, which has %s: make room, choose a folder on another disk (-dir) or another size (-object)",
			humanize.IBytes(uint64(size)), humanize.IBytes(uint64(size+spareDisk)), dir, humanize.IBytes(uint64(free)<<10))
	}
	return nil
}

// memory tells the most that a process ever took, which is an error if it is too
// much.
func memory(name string, pid int) (string, error) {
	peak, err := peakOf(pid)
	if err != nil {
		return "", err
	}
	if peak > largeMemory {
		return "", fmt.Errorf("%s took %s of memory, more than %s", name, humanize.IBytes(uint64(peak)), humanize.IBytes(largeMemory))
	}
	return fmt.Sprintf("%s took %s of memory", name, humanize.IBytes(uint64(peak))), nil
}

// peakOf is the most memory that a process ever had at once, in bytes.
func peakOf(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("the memory of a process is only known on Linux: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no VmHWM", pid)
}
