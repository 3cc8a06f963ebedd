package functions

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

// TestMemoryInAFlood: the real worker, in a process of its own and on real
// servers, works off 400 MB of records of 100 B to 512 KiB in at most 256 MiB.
// Not parallel: it keeps the machine busy.
func TestMemoryInAFlood(t *testing.T) {
	stack := devtest.Stack(t)
	b, _ := newWeedBench(t, stack, "memory")
	sent, bytesSent := b.backlog(t, 400<<20)
	worker := b.child(t, "run", "ingest", "--auto-create", "--nats", b.NATS.ConnectedUrl(), "--filer", stack.Info.Filer, "--bucket", "memory")
	start := time.Now()
	p, err := client.NewProducer(b.NATS, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.PublishSync(t.Context(), "t", client.Record{Value: []byte("last")}, client.WithAck(client.Stored)); err != nil {
		t.Fatalf("%v\n%s", err, worker.output())
	}
	took, peak := time.Since(start), peakOf(t, worker.cmd.Process.Pid)
	t.Logf("%d records, %d MB in %.1f s; peak of memory %d MiB", sent, bytesSent/1e6, took.Seconds(), peak>>20)
	if peak > 256<<20 {
		t.Errorf("the worker took %d MiB", peak>>20)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := worker.end(); err != nil {
		t.Errorf("after SIGTERM: %v\n%s", err, worker.output())
	}
	top, err := b.Store.Topic(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	end, err := top.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	have := uint64(0)
	for _, offset := range end {
		have += offset
	}
	if have != sent+1 {
		t.Errorf("%d records are there, %d were sent", have, sent+1)
	}
}

// backlog fills the lane with records of random bytes: a fifth of the bytes in
// records of about 100 B, the others in sizes up to 512 KiB, all as likely.
func (b *bench) backlog(t *testing.T, size int) (sent, total uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise)
	p, err := client.NewProducer(b.NATS, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	publish := func(n int) {
		at := random.IntN(len(noise) - n)
		if _, err := p.Publish(t.Context(), "t", client.Record{Value: noise[at : at+n]}); err != nil {
			t.Fatal(err)
		}
		sent++
		total += uint64(n)
	}
	for small := uint64(0); total < uint64(size); {
		if small < total/5 {
			publish(100)
			small += 100
			continue
		}
		publish(int(100 * math.Exp(random.Float64()*math.Log(512<<10/100))))
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return sent, total
}

// child is the real program, running.
type child struct {
	cmd *exec.Cmd
	log *bytes.Buffer
}

func (b *bench) child(t *testing.T, args ...string) *child {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "spillway")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "../cmd/spillway").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	c := &child{cmd: exec.Command(bin, args...), log: &bytes.Buffer{}}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GOMEMLIMIT=") && !strings.HasPrefix(v, "GOGC=") {
			c.cmd.Env = append(c.cmd.Env, v)
		}
	}
	c.cmd.Stdout, c.cmd.Stderr = c.log, c.log
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c.cmd.ProcessState == nil {
			_ = c.cmd.Process.Kill()
			_ = c.cmd.Wait()
		}
	})
	return c
}

// end asks the program to end and waits until it has.
func (c *child) end() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return c.cmd.Wait()
}

// output is what it has printed, once it has ended.
func (c *child) output() string {
	if c.cmd.ProcessState == nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	}
	return c.log.String()
}

// peakOf is the most memory that a running process has had resident, in bytes.
func peakOf(t *testing.T, pid int) uint64 {
	t.Helper()
	peak, err := residentPeak(pid)
	if err != nil {
		t.Fatal(err)
	}
	return peak
}

// residentPeak is the most memory that a process has had so far. What wait4 tells of one
// that has ended counts that of the test, of which it is a child, too.
func residentPeak(pid int) (uint64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d does not tell its peak:\n%s", pid, status)
}
