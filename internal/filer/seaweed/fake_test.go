package seaweed_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// fakeFiler answers what a test tells it to, for cases that a real filer cannot
// be brought into.
type fakeFiler struct {
	filer_pb.UnimplementedSeaweedFilerServer
	addr string // of gRPC
	http *httptest.Server

	mu       sync.Mutex
	config   *filer_pb.GetFilerConfigurationResponse
	create   func() (*filer_pb.CreateEntryResponse, error)
	fail     error // of every other call on entries
	hosts    []string
	lookups  int
	assign   *filer_pb.AssignVolumeResponse
	asked    *filer_pb.AssignVolumeRequest
	proxied  []string // method and chunk id
	entries  map[string]*filer_pb.Entry
	transact func(*filer_pb.ObjectTransactionRequest) (*filer_pb.ObjectTransactionResponse, error)
}

// newFake starts a fake filer, whose HTTP side serves the blobs of proxy.
func newFake(t *testing.T, proxy http.HandlerFunc) *fakeFiler {
	t.Helper()
	f := &fakeFiler{config: &filer_pb.GetFilerConfigurationResponse{DirBuckets: "/buckets", Version: "fake 1.0"}}
	f.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		f.proxied = append(f.proxied, r.Method+" "+r.URL.Query().Get("proxyChunkId"))
		f.mu.Unlock()
		proxy(w, r)
	}))
	t.Cleanup(f.http.Close)
	t.Cleanup(f.serve(t, "127.0.0.1:0"))
	return f
}

// serve listens for gRPC calls until the returned function is called.
func (f *fakeFiler) serve(t *testing.T, addr string, opts ...grpc.ServerOption) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	s := grpc.NewServer(opts...)
	filer_pb.RegisterSeaweedFilerServer(s, f)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	return sync.OnceFunc(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (f *fakeFiler) dial(t *testing.T, cfg seaweed.Config) *seaweed.Client {
	t.Helper()
	cfg.Filer, cfg.GRPC = strings.TrimPrefix(f.http.URL, "http://"), f.addr
	return dial(t, cfg)
}

// set changes what the fake answers.
func (f *fakeFiler) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeFiler) GetFilerConfiguration(context.Context, *filer_pb.GetFilerConfigurationRequest) (*filer_pb.GetFilerConfigurationResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config, nil
}

func (f *fakeFiler) CreateEntry(context.Context, *filer_pb.CreateEntryRequest) (*filer_pb.CreateEntryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.create()
}

func (f *fakeFiler) UpdateEntry(context.Context, *filer_pb.UpdateEntryRequest) (*filer_pb.UpdateEntryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return nil, f.fail
}

func (f *fakeFiler) LookupDirectoryEntry(_ context.Context, req *filer_pb.LookupDirectoryEntryRequest) (*filer_pb.LookupDirectoryEntryResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries != nil {
		return &filer_pb.LookupDirectoryEntryResponse{Entry: f.entries[req.Directory+"/"+req.Name]}, nil
	}
	return nil, f.fail
}

func (f *fakeFiler) ObjectTransaction(_ context.Context, req *filer_pb.ObjectTransactionRequest) (*filer_pb.ObjectTransactionResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.transact(req)
}

func (f *fakeFiler) AssignVolume(_ context.Context, req *filer_pb.AssignVolumeRequest) (*filer_pb.AssignVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = req
	return f.assign, nil
}

func (f *fakeFiler) LookupVolume(_ context.Context, req *filer_pb.LookupVolumeRequest) (*filer_pb.LookupVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lookups++
	locs := &filer_pb.Locations{}
	for _, host := range f.hosts {
		locs.Locations = append(locs.Locations, &filer_pb.Location{Url: host})
	}
	return &filer_pb.LookupVolumeResponse{LocationsMap: map[string]*filer_pb.Locations{req.VolumeIds[0]: locs}}, nil
}

// volume starts a volume server and returns its host:port.
func volume(t *testing.T, handle http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// holding serves data at any id, with ranges, as a volume server does.
func holding(data string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", filer.Entry{}.MTime, strings.NewReader(data))
	}
}

func answering(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, status) }
}
