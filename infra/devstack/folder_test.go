package devstack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestLoad has the folders on which no stack runs. What Load says of them, Start
// must agree with: it takes over a stale stack and refuses what it cannot read.
func TestLoad(t *testing.T) {
	for _, tc := range []struct {
		name, content string
		want          any // pointer to the error's type
		starts        bool
	}{
		{"nothing", "", new(*NoStackError), true},
		{"stale", `{"format": 1, "state": "ready", "pid": 999999999}`, new(*NotRunningError), true},
		{"half started", `{"format": 1, "state": "starting", "pid": 1}`, new(*NotRunningError), true},
		{"newer", `{"format": 2, "state": "ready", "ports": "of another kind"}`, new(*VersionError), false},
		{"older", `{"format": 0, "state": "ready"}`, new(*VersionError), false},
		{"no version", `{"state": "ready"}`, new(*CorruptError), false},
		{"truncated", `{"format": 1, "sta`, new(*CorruptError), false},
		{"wrong type", `{"format": 1, "ports": []}`, new(*CorruptError), false},
		{"not JSON", "\x00\xff\x00", new(*CorruptError), false},
		{"huge", `{"format": 1, "dir": "` + strings.Repeat("x", maxInfoSize) + `"}`, new(*CorruptError), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, infoFile)
			if tc.content != "" {
				must(t, os.WriteFile(path, []byte(tc.content), 0o600))
			}
			_, err := Load(dir)
			if !errors.As(err, tc.want) {
				t.Fatalf("Load: %v, not %T", err, tc.want)
			}
			s, err := Start(t.Context(), Config{Dir: dir, NoWeed: true, NoNATS: true})
			if tc.starts {
				must(t, err)
				must(t, s.Close(t.Context()))
				return
			}
			if !errors.As(err, tc.want) {
				t.Errorf("Start: %v, not %T", err, tc.want)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != tc.content {
				t.Errorf("the refused start touched %s: %v", infoFile, err)
			}
		})
	}
}

// TestLoadAfterKill kills a process that runs a stack: its lock goes with it, so
// that the folder is known to be stale although stack.json says ready.
func TestLoadAfterKill(t *testing.T) {
	dir := t.TempDir()
	s, err := Start(t.Context(), Config{Dir: dir, NoWeed: true, NoNATS: true})
	must(t, err)
	if _, err := Load(dir); err != nil {
		t.Errorf("Load of a running stack: %v", err)
	}
	must(t, s.lock.Close()) // as the system does for a process that dies
	var stale *NotRunningError
	if _, err := Load(dir); !errors.As(err, &stale) || stale.State != Ready || stale.PID != os.Getpid() {
		t.Errorf("Load of a stale stack: %v", err)
	}
}

func TestS3Keys(t *testing.T) {
	dir := t.TempDir()
	first, err := s3Keys(dir)
	must(t, err)
	again, err := s3Keys(dir)
	must(t, err)
	other, err := s3Keys(t.TempDir())
	must(t, err)
	if first != again || first.SecretKey == other.SecretKey || len(first.SecretKey) < 32 {
		t.Errorf("keys %v, then %v, of another folder %v", first, again, other)
	}
	for _, bad := range []string{"", "{", "{}", `{"identities":[{"credentials":[]}]}`} {
		must(t, os.WriteFile(filepath.Join(dir, s3File), []byte(bad), 0o600))
		var corrupt *CorruptError
		if _, err := s3Keys(dir); !errors.As(err, &corrupt) {
			t.Errorf("keys from %q: %v", bad, err)
		}
	}
}

func TestPorts(t *testing.T) {
	given := Ports{NATS: 12001, Filer: 12002}
	chosen, err := given.choose()
	must(t, err)
	must(t, chosen.validate())
	if chosen.NATS != 12001 || chosen.Filer != 12002 {
		t.Errorf("given %+v, chosen %+v", given, chosen)
	}
	for _, r := range chosen.all() {
		if *r.port == 0 {
			t.Errorf("no port for %s", r.name)
		}
	}
	for _, bad := range []Ports{
		{NATS: -1}, {NATS: 65536}, {Filer: 55536}, // the last one's gRPC port is too high
		{NATS: 12001, Master: 12001}, {Filer: 12001, NATS: 22001}, {Filer: 12001, S3: 22001},
	} {
		_, err := Start(t.Context(), Config{Dir: t.TempDir(), Ports: bad, NoWeed: true, NoNATS: true})
		if err == nil {
			t.Errorf("ports %+v were accepted", bad)
		}
	}
}

// TestPortTaken: a port that was given is never silently replaced, and one that
// is taken is an error at once.
func TestPortTaken(t *testing.T) {
	taken := listen(t)
	for name, cfg := range map[string]Config{
		"nats":    {Ports: Ports{NATS: taken}, NoWeed: true},
		"monitor": {Ports: Ports{NATSMonitor: taken}, NoWeed: true},
		"s3":      {Ports: Ports{S3: taken}, NoNATS: true},
		"filer":   {Ports: Ports{Filer: taken - grpcOffset}, NoNATS: true}, // its gRPC port
	} {
		t.Run(name, func(t *testing.T) {
			cfg.Dir = t.TempDir()
			_, err := Start(t.Context(), cfg)
			var e *PortTakenError
			if !errors.As(err, &e) || e.Port != taken {
				t.Errorf("%v", err)
			}
			var stopped *NotRunningError
			if _, err := Load(cfg.Dir); !errors.As(err, &stopped) {
				t.Errorf("Load after a failed start: %v", err)
			}
		})
	}
}

// TestPortTakenLate has the servers themselves find a port taken, as happens when
// somebody takes it after we looked: each error must be known as such, for Start
// to choose other ports.
func TestPortTakenLate(t *testing.T) {
	taken := listen(t)
	spec := natsSpec{Store: t.TempDir(), Log: filepath.Join(t.TempDir(), "log")}
	for _, set := range []*int{&spec.Port, &spec.Monitor} {
		*set = taken
		begin := time.Now()
		if _, err := startNATSServer(spec); err == nil || !portTaken(err) || time.Since(begin) > natsReady/2 {
			t.Errorf("the nats-server on a port that is taken: %v after %s", err, time.Since(begin))
		}
		*set = 0
	}
	for _, says := range []string{
		"gRPC port 22222 for Filer " + weedMoved + "...", // and goes on
		"Port allocation failed: port 12222 for Filer (specified by flag filer.port) is not available on 127.0.0.1 and cannot be used",
	} {
		log := filepath.Join(t.TempDir(), "log")
		must(t, os.WriteFile(log, []byte(says), 0o600))
		w := &weed{child: &child{spec: childSpec{Log: log}}}
		if err := w.checkPorts(); !portTaken(errors.Join(err, w.diedError())) {
			t.Errorf("weed says %q: not known as a port that is taken", says)
		}
	}
}

// TestPortsChosenAgain: when the first choice turns out to be taken, Start makes
// another.
func TestPortsChosenAgain(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "weed")
	count := filepath.Join(t.TempDir(), "count")
	script := "#!/bin/sh\n[ \"$1\" = version ] && echo version 30GB 4.60 && exit\n" +
		"echo \"$@\" >>" + count + "\necho Port 1 is not available on 127.0.0.1\nexit 1\n"
	must(t, os.WriteFile(fake, []byte(script), 0o700))
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Weed: fake})
	if err == nil {
		t.Fatal("started")
	}
	data, err := os.ReadFile(count)
	must(t, err)
	starts := strings.Split(strings.TrimSpace(string(data)), "\n")
	if len(starts) != portTries || starts[0] == starts[1] {
		t.Errorf("weed was started with\n%s", data)
	}
}

func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func TestBadFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, dir := range []string{file, filepath.Join(file, "below"), "a,b"} {
		if _, err := Start(t.Context(), Config{Dir: dir, NoWeed: true, NoNATS: true}); err == nil {
			t.Errorf("a stack started in %q", dir)
		}
	}
}

func TestWeedVersion(t *testing.T) {
	for out, want := range map[string]string{
		"version 30GB 4.53  linux amd64\n":              "4.53",
		"version 8000GB 4.53 abcdef linux amd64":        "4.53",
		"a banner\nversion 30GB 5.00  darwin arm64\nx":  "5.00",
		"version 30GB 10.1  linux amd64":                "10.1",
		"version 30GB 4.52  linux amd64":                "",
		"version 30GB 3.99  linux amd64":                "",
		"version 30GB 4.99999999999999999999999  linux": "",
		"git version 4.60":                              "",
		"":                                              "",
		"version":                                       "",
	} {
		if got, ok := parseWeedVersion(out); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %v", out, got, ok)
		}
	}
}

// TestFindWeed: with no usable weed anywhere, the error says what to do.
func TestFindWeed(t *testing.T) {
	old := filepath.Join(t.TempDir(), "weed")
	must(t, os.WriteFile(old, []byte("#!/bin/sh\necho version 30GB 4.20  linux amd64\n"), 0o700))
	t.Setenv(WeedEnv, "")
	t.Setenv("PATH", filepath.Dir(old)+":/bin:/usr/bin")
	t.Setenv("SPILLWAY_CACHE", t.TempDir())
	for _, path := range []string{"", old, "/no/such/weed", t.TempDir()} {
		_, err := Start(t.Context(), Config{Dir: t.TempDir(), Weed: path})
		var missing *WeedNotFoundError
		if !errors.As(err, &missing) || !strings.Contains(err.Error(), "make weed") {
			t.Errorf("weed %q: %v", path, err)
		}
	}
	must(t, os.WriteFile(old, []byte("#!/bin/sh\necho version 30GB 4.54  linux amd64\n"), 0o700))
	bin, err := findWeed(t.Context(), "")
	must(t, err)
	if bin != (weedBinary{old, "4.54"}) {
		t.Errorf("found %+v", bin)
	}
}

// TestWeedDies has a weed that ends at once: its last words must be in the error.
func TestWeedDies(t *testing.T) {
	fake := filepath.Join(t.TempDir(), "weed")
	script := "#!/bin/sh\n[ \"$1\" = version ] && echo version 30GB 4.60 && exit\necho my last words\nexit 3\n"
	must(t, os.WriteFile(fake, []byte(script), 0o700))
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Weed: fake, NoNATS: true})
	var died *DiedError
	if !errors.As(err, &died) || !strings.Contains(err.Error(), "my last words") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("%v", err)
	}
}

func TestPinnedWeed(t *testing.T) {
	for _, mod := range []string{"../seaweedfs/go.mod", "../../go.mod"} {
		data, err := os.ReadFile(mod)
		must(t, err)
		if !strings.Contains(string(data), "github.com/seaweedfs/seaweedfs "+PinnedWeed) {
			t.Errorf("PinnedWeed is not the version in %s", mod)
		}
	}
}

// TestReapOrphan: a child that outlived its stack is killed, a process that only
// has its number is not.
func TestReapOrphan(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	cmd := exec.Command("sleep", "600")
	cmd.Args = append(cmd.Args, "0"+strings.Repeat("0", 3)) // sleep adds its arguments up
	cmd.SysProcAttr = childAttr()
	must(t, cmd.Start())
	pidFile := filepath.Join(t.TempDir(), "pid")
	must(t, os.WriteFile(pidFile, []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600))
	must(t, reapOrphan(t.Context(), pidFile, mark))
	if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("a process that is none of ours was killed: %v", err)
	}
	must(t, reapOrphan(t.Context(), pidFile, "600 0000"))
	if err := cmd.Process.Signal(syscall.Signal(0)); err == nil && commandHas(t.Context(), cmd.Process.Pid, "600 0000") {
		t.Error("the orphan still runs")
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("the orphan: %v", err)
	}
	for _, bad := range []string{"", "x", "0", "1", "-1", fmt.Sprint(cmd.Process.Pid)} {
		must(t, os.WriteFile(pidFile, []byte(bad), 0o600))
		must(t, reapOrphan(t.Context(), pidFile, ""))
	}
}

func TestLogSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	must(t, os.WriteFile(path, make([]byte, maxLogSize+1), 0o600))
	f, at, err := openLog(path)
	must(t, err)
	must(t, f.Close())
	if _, err := os.Stat(path + ".1"); err != nil || at != 0 {
		t.Errorf("a large log was not set aside: %v, at %d", err, at)
	}
}
