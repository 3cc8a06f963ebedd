package seaweed_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// TestLargerCluster runs a SeaweedFS of two volume servers and two filers: an
// upload that asks for two copies gets them, and the filers are seen to have a
// store each. Their gRPC ports are not the usual ones.
func TestLargerCluster(t *testing.T) {
	p := freePorts(t, 10)
	at := func(i int) string { return fmt.Sprint("127.0.0.1:", p[i]) }
	// SeaweedFS writes the gRPC port after a dot, where it is not HTTP's + 10000.
	dotted := func(i int) string { return fmt.Sprintf("127.0.0.1:%d.%d", p[i], p[i+1]) }
	port := func(flag string, i int) []string {
		return []string{fmt.Sprintf("-%s=%d", flag, p[i]), fmt.Sprintf("-%s.grpc=%d", flag, p[i+1])}
	}
	dir := t.TempDir()
	startServer(t, "server", append(append(append([]string{"-dir=" + dir, "-filer", "-volume.max=10", "-volume.minFreeSpace=1MiB",
		"-master.volumeSizeLimitMB=64", "-master.telemetry=false"}, port("master.port", 0)...), port("volume.port", 2)...), port("filer.port", 4)...)...)
	startServer(t, "volume", append([]string{"-mserver=" + dotted(0), "-dir=" + t.TempDir(), "-max=10", "-minFreeSpace=1MiB"}, port("port", 6)...)...)
	startServer(t, "filer", append([]string{"-master=" + dotted(0), "-defaultStoreDir=" + t.TempDir()}, port("port", 8)...)...)
	second, peer := at(6), at(8)
	var c *seaweed.Client
	awaitTrue(t, "the filer", func() bool {
		var err error
		c, err = seaweed.Dial(t.Context(), seaweed.Config{Filer: at(4), GRPC: at(5)})
		return err == nil
	})
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Wait(t.Context(), "/buckets/spillway"); err != nil {
		t.Fatal(err)
	}

	how := filer.Storage{Replication: "001", Fsync: true}
	const path = "/buckets/spillway/topics/orders/f"
	awaitTrue(t, "the second volume server to take copies", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		return filer.TryStorage(ctx, c, path, how) == nil
	})
	data := []byte(strings.Repeat("copied", 1000))
	b, err := c.UploadAs(t.Context(), path, data, how)
	if err != nil {
		t.Fatal(err)
	}
	hosts := holders(t, c, b)
	if len(hosts) != 2 || !strings.Contains(strings.Join(hosts, " "), second) {
		t.Errorf("the bytes are on %v, want two servers, one of them %s", hosts, second)
	}
	for _, host := range hosts {
		if resp, got := request(t, http.MethodGet, "http://"+host+"/"+b.ID, nil); resp.StatusCode != http.StatusOK || string(got) != string(data) {
			t.Errorf("%s gives %s and %d bytes", host, resp.Status, len(got))
		}
	}
	plain, err := c.Upload(t.Context(), path, data)
	if err != nil {
		t.Fatal(err)
	}
	if hosts := holders(t, c, plain); len(hosts) != 1 {
		t.Errorf("bytes that nobody wants copied are on %v", hosts)
	}
	awaitTrue(t, "both filers to be listed", func() bool {
		cl, err := c.Cluster(t.Context())
		return err == nil && len(cl.Filers) == 2
	})
	cl, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stores := map[int32]string{}
	for _, p := range cl.Filers {
		if p.Err != nil || p.Store == 0 {
			t.Errorf("filer %+v", p)
		}
		stores[p.Store] = p.Address
	}
	if len(stores) != 2 || stores[cl.Filers[0].Store] == stores[cl.Filers[1].Store] || !strings.Contains(fmt.Sprint(stores), peer) {
		t.Errorf("the filers' stores are %v, want one each, one of them at %s", stores, peer)
	}
}

// holders are the volume servers that hold a blob.
func holders(t *testing.T, c *seaweed.Client, b filer.Blob) (hosts []string) {
	t.Helper()
	vid, _, _ := strings.Cut(b.ID, ",")
	resp, err := c.RPC().LookupVolume(t.Context(), &filer_pb.LookupVolumeRequest{VolumeIds: []string{vid}})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range resp.LocationsMap[vid].GetLocations() {
		hosts = append(hosts, l.Url)
	}
	return hosts
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	listeners := make([]net.Listener, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports[i], listeners[i] = l.Addr().(*net.TCPAddr).Port, l
	}
	for _, l := range listeners { // after the last one, so that none comes twice
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return ports
}

// startServer runs a server of SeaweedFS until the test ends.
func startServer(t *testing.T, kind string, args ...string) {
	t.Helper()
	args = append([]string{"-logtostderr=true", kind, "-ip=127.0.0.1", "-ip.bind=127.0.0.1"}, args...)
	cmd := exec.Command(weedBinary(t), args...)
	log, err := os.Create(filepath.Join(t.TempDir(), kind+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, t.TempDir()
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "TMPDIR=" + os.TempDir()}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if text, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("the log of weed %s ends with\n%s", kind, text[max(0, len(text)-3000):])
		}
		removeSockets(args)
	})
}

// removeSockets removes what weed leaves in /tmp, named by the numbers of its ports.
func removeSockets(args []string) {
	for _, arg := range args {
		if _, number, ok := strings.Cut(arg, "port"); ok {
			number = number[strings.IndexByte(number, '=')+1:]
			left, _ := filepath.Glob("/tmp/seaweedfs-*-" + number + ".sock") // fails for a bad pattern only
			for _, path := range left {
				_ = os.Remove(path)
			}
		}
	}
}

// weedBinary is what the shared stack runs, as far as the system tells, else what
// it would look for first.
func weedBinary(t *testing.T) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(devtest.Weed(t).Info.Dir, "weed.pid"))
	if err != nil {
		t.Fatal(err)
	}
	if exe, err := os.Readlink("/proc/" + strings.TrimSpace(string(pid)) + "/exe"); err == nil {
		return exe
	}
	if named := os.Getenv(devstack.WeedEnv); named != "" {
		return named
	}
	return "weed"
}

// TestClusterAway: a master and a peer that do not answer are told, and what else
// was learnt is kept.
func TestClusterAway(t *testing.T) {
	f := newFake(t, answering(500, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	if cl, err := c.Cluster(t.Context()); err == nil || cl.Version != "fake 1.0" {
		t.Errorf("no master: %+v, error %v", cl, err)
	}
	f.set(func() { f.config.Masters = []string{"127.0.0.1:1.2", "nonsense"} })
	begin := time.Now()
	cl, err := c.Cluster(t.Context())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1.2") || !strings.Contains(err.Error(), "nonsense") || cl.Version != "fake 1.0" {
		t.Errorf("masters away: %+v, error %v", cl, err)
	}
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
}
