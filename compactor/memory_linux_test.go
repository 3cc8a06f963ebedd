package compactor

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

const memoryChild = "SPILLWAY_COMPACTOR_MEMORY_CHILD"

// A segment of 1 GiB is compacted in at most 256 MiB, with the limit that the program
// gives to the garbage collector. The work is done in a process of its own.
func TestMemory(t *testing.T) {
	if os.Getenv(memoryChild) != "" {
		bigSegment(t)
		return
	}
	self, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), self, "-test.run=^TestMemory$", "-test.v")
	c.Env = append(os.Environ(), memoryChild+"=1", "GOMEMLIMIT=180MiB", "GOGC=100")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func bigSegment(t *testing.T) {
	w, b, _ := bigWorld(t, 128)
	r, took := compactBig(t, w, b)
	if r.Compacted != 1 || r.Files < 2 || r.Bytes < 1<<30 {
		t.Errorf("%+v", r)
	}
	status, err := os.ReadFile("/proc/self/status")
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	line, _, _ := strings.Cut(rest, "\n")
	kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(line), " kB"))
	must(t, err)
	t.Logf("%d records, %d MiB in %s (%.0f rows/s), %d files of %d MiB; peak of memory %d MiB",
		r.Records, r.Bytes>>20, took, float64(r.Records)/took.Seconds(), r.Files, r.FileBytes>>20, kib>>10)
	if kib > 256<<10 {
		t.Errorf("it took %d MiB", kib>>10)
	}
}
