package devstack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// What the test binary is when it is not the tests.
const (
	natsChildArg = "nats-child" // a nats-server, as a stack's child
	holderArg    = "holder"     // a process that runs a stack until it is killed
)

func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != natsChildArg && os.Args[1] != holderArg {
		os.Exit(m.Run())
	}
	if err := other(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func other(what, arg string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if what == natsChildArg {
		return RunNATS(ctx, arg)
	}
	if _, err := Start(ctx, natsOnly(arg)); err != nil {
		return err
	}
	fmt.Println("ready")
	<-ctx.Done()
	return nil
}

func natsOnly(dir string) Config {
	return Config{Dir: dir, NATSChild: []string{os.Args[0], natsChildArg}, NoWeed: true}
}

// TestKilled kills a process that runs a stack. Its children must not outlive it
// for long, the folder is known to be stale, and the next start just works.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], holderArg, dir)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the stack's process said %q, %v", line, err)
	}
	info, err := Load(dir)
	must(t, err)
	if info.PID != cmd.Process.Pid {
		t.Errorf("run by process %d, stack.json says %d", cmd.Process.Pid, info.PID)
	}
	store(t, info, "before the kill")
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	var stale *NotRunningError
	if _, err := Load(dir); !errors.As(err, &stale) || stale.PID != cmd.Process.Pid {
		t.Errorf("Load after the kill: %v", err)
	}
	s, err := Start(t.Context(), natsOnly(dir))
	must(t, err)
	stored(t, s.Info, "before the kill")
	if s.Info.Ports != info.Ports {
		t.Errorf("ports %+v, then %+v", info.Ports, s.Info.Ports)
	}
	must(t, s.Close(t.Context()))
}

// TestNATSChildDies has commands for the nats-server that are of no use.
func TestNATSChildDies(t *testing.T) {
	if err := RunNATS(t.Context(), "{"); err == nil {
		t.Error("RunNATS took a bad argument")
	}
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), NATSChild: []string{"/no/such/program"}, NoWeed: true})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}
	_, err = Start(t.Context(), Config{Dir: t.TempDir(), NATSChild: []string{"false"}, NoWeed: true})
	if died := (*DiedError)(nil); !errors.As(err, &died) || died.Name != "nats" {
		t.Errorf("a program that ends at once: %v", err)
	}
}

// TestStack takes one folder through all that may happen to it, in an order in
// which SeaweedFS's 15 s warm-up after a restart is paid for twice only.
func TestStack(t *testing.T) {
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "stack")
	cfg := Config{Dir: dir, NATSChild: []string{os.Args[0], natsChildArg}, Logger: testLogger(t)}
	begin := time.Now()
	s, err := start(ctx, cfg, []string{"-admin.ui=true"})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("new folder: ready after %s", time.Since(begin).Round(time.Millisecond))
	first := s.Info

	t.Run("told", func(t *testing.T) { checkInfo(t, s, dir) })
	t.Run("onlyLoopback", func(t *testing.T) { checkLoopback(t, s) })
	t.Run("s3Keys", func(t *testing.T) { checkS3(t, s.Info) })
	t.Run("jobsOff", func(t *testing.T) { checkJobs(t, s.Info) })
	t.Run("secondRefused", func(t *testing.T) { checkRefused(t, dir) })
	put(t, s.Info, "before-kill")
	store(t, s.Info, "before-kill")

	t.Run("killNATS", func(t *testing.T) {
		must(t, s.KillNATS())
		must(t, s.KillNATS())
		refuses(t, s.Info.Ports.NATS)
		must(t, s.RestartNATS(ctx))
		stored(t, s.Info, "before-kill")
	})
	t.Run("killWeed", func(t *testing.T) {
		must(t, s.KillWeed())
		refuses(t, s.Info.Ports.Filer)
		begin := time.Now()
		must(t, s.RestartWeed(ctx))
		t.Logf("after kill -9: ready after %s", time.Since(begin).Round(time.Millisecond))
		got(t, s.Info, "before-kill")
		put(t, s.Info, "after-kill")
	})
	select {
	case err := <-s.Died():
		t.Errorf("what was killed on purpose was reported as dead: %v", err)
	default:
	}

	begin = time.Now()
	must(t, s.Close(ctx))
	t.Logf("closed after %s", time.Since(begin).Round(time.Millisecond))
	must(t, s.Close(ctx))
	refuses(t, first.Ports.Filer)
	refuses(t, first.Ports.NATS)
	if left, err := filepath.Glob(fmt.Sprintf("/tmp/seaweedfs-*-%d.sock", first.Ports.Filer)); err != nil || len(left) > 0 {
		t.Errorf("sockets left behind: %v, %v", left, err)
	}
	var stopped *NotRunningError
	if _, err := Load(dir); !errors.As(err, &stopped) || stopped.State != Stopped {
		t.Errorf("Load of a stopped stack: %v", err)
	}

	begin = time.Now()
	s, err = Start(ctx, Config{Dir: dir, Logger: testLogger(t)}) // now with the nats-server in-process
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("folder with data: ready after %s", time.Since(begin).Round(time.Millisecond))
	if s.Info.Ports != first.Ports || s.Info.S3 != first.S3 || s.Info.Bucket != first.Bucket {
		t.Errorf("a restart changed what others rely on:\n%+v\n%+v", first, s.Info)
	}
	for _, name := range []string{"before-kill", "after-kill"} {
		got(t, s.Info, name)
	}
	stored(t, s.Info, "before-kill")
	if err := s.KillNATS(); !errors.Is(err, ErrInProcess) {
		t.Errorf("killing the nats-server in this process: %v", err)
	}
	t.Run("diesByItself", func(t *testing.T) { checkDied(t, s) })
	must(t, s.Close(ctx))
}

func checkInfo(t *testing.T, s *Stack, dir string) {
	info, err := Load(dir)
	must(t, err)
	if info != s.Info {
		t.Errorf("Load tells\n%+v, the stack\n%+v", info, s.Info)
	}
	if info.State != Ready || info.PID != os.Getpid() || info.Bucket != defaultBucket || info.WeedVersion == "" {
		t.Errorf("stack.json is wrong: %+v", info)
	}
	for _, name := range []string{infoFile, s3File} {
		st, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if st.Mode().Perm() != 0o600 {
			t.Errorf("%s holds keys and has mode %v", name, st.Mode())
		}
	}
}

// checkLoopback makes sure that nothing listens on addresses other than
// 127.0.0.1: nothing must answer on another loopback address.
func checkLoopback(t *testing.T, s *Stack) {
	p := s.Info.Ports
	for _, r := range p.all() {
		for _, n := range r.numbers() {
			if c, err := net.DialTimeout("tcp", hostPort(n), 5*time.Second); err != nil {
				t.Errorf("%s: nobody listens on %d: %v", r.name, n, err)
			} else {
				_ = c.Close()
			}
			if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.2:%d", n), time.Second); err == nil {
				_ = c.Close()
				t.Errorf("%s listens on port %d of all addresses", r.name, n)
			}
		}
	}
}

func checkS3(t *testing.T, info Info) {
	url := info.S3.URL + "/" + info.Bucket + "/signed"
	if code := s3Put(t, url, "", ""); code != http.StatusForbidden {
		t.Errorf("S3 PUT without a signature: %d", code)
	}
	if code := s3Put(t, url, info.S3.AccessKey, "wrong"); code != http.StatusForbidden {
		t.Errorf("S3 PUT with a wrong secret: %d", code)
	}
	if code := s3Put(t, url, info.S3.AccessKey, info.S3.SecretKey); code != http.StatusOK {
		t.Errorf("S3 PUT with the stack's keys: %d", code)
	}
}

// checkJobs asks SeaweedFS's scheduler what it would run. That vacuum is among
// it shows that the question is the right one.
func checkJobs(t *testing.T, info Info) {
	type job struct {
		Type    string `json:"job_type"`
		Enabled bool   `json:"enabled"`
	}
	enabled := map[string]bool{}
	for end := time.Now().Add(20 * time.Second); len(enabled) < 7 && time.Now().Before(end); {
		var jobs []job
		must(t, json.Unmarshal(get(t, "http://"+hostPort(info.Ports.Admin)+"/api/plugin/scheduler-states"), &jobs))
		for _, j := range jobs {
			enabled[j.Type] = j.Enabled
		}
		<-time.After(pollEvery) // the jobs register one by one
	}
	if !enabled["vacuum"] {
		t.Errorf("the scheduler's jobs are not as expected: %v", enabled)
	}
	for _, name := range jobsOff {
		if on, known := enabled[name]; on || !known {
			t.Errorf("job %s: enabled %v, known %v", name, on, known)
		}
	}
}

func checkRefused(t *testing.T, dir string) {
	_, err := Start(t.Context(), Config{Dir: dir})
	var locked *LockedError
	if !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("a second stack on the folder: %v", err)
	}
	if _, err := Load(dir); err != nil {
		t.Errorf("the refused start disturbed the stack: %v", err)
	}
}

func checkDied(t *testing.T, s *Stack) {
	must(t, killGroup(s.weed.cmd.Process.Pid))
	var died *DiedError
	if err := <-s.Died(); !errors.As(err, &died) || died.Name != "weed" || died.Tail == "" {
		t.Errorf("weed killed by somebody else: %v", err)
	}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fileURL(info Info, name string) string {
	return "http://" + info.Filer + "/buckets/" + info.Bucket + "/" + name
}

func put(t *testing.T, info Info, name string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, fileURL(info, name), strings.NewReader(name))
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("PUT %s: %s", name, resp.Status)
	}
}

func got(t *testing.T, info Info, name string) {
	t.Helper()
	if data := get(t, fileURL(info, name)); !bytes.Equal(data, []byte(name)) {
		t.Errorf("%s holds %q", name, data)
	}
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s %s", url, resp.Status, data)
	}
	return data
}

// refuses waits for nothing: what is down refuses at once.
func refuses(t *testing.T, port int) {
	t.Helper()
	if c, err := net.DialTimeout("tcp", hostPort(port), time.Second); err == nil {
		_ = c.Close()
		t.Errorf("port %d still answers", port)
	}
}

func connect(t *testing.T, info Info) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(info.NATS)
	must(t, err)
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	must(t, err)
	return js
}

func store(t *testing.T, info Info, msg string) {
	t.Helper()
	js := connect(t, info)
	_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	must(t, err)
	_, err = js.Publish(t.Context(), "s", []byte(msg))
	must(t, err)
}

func stored(t *testing.T, info Info, msg string) {
	t.Helper()
	stream, err := connect(t, info).Stream(t.Context(), "S")
	must(t, err)
	m, err := stream.GetLastMsgForSubject(t.Context(), "s")
	must(t, err)
	if string(m.Data) != msg {
		t.Errorf("the stream's last message is %q", m.Data)
	}
}
