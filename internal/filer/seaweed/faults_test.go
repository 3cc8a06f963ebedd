package seaweed_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

const (
	blobData = "0123456789abcdefghij"
	blobID   = "7,0123456789"
	filePath = "/buckets/fake/f"
)

// upload has the fake take blobData, so that the blob comes with its checksum.
func upload(t *testing.T, f *fakeFiler, c *seaweed.Client) filer.Entry {
	t.Helper()
	host := volume(t, storing)
	f.set(func() {
		f.assign = &filer_pb.AssignVolumeResponse{FileId: blobID, Location: &filer_pb.Location{Url: host}, Auth: "secret"}
	})
	b, err := c.Upload(t.Context(), filePath, []byte(blobData))
	if err != nil {
		t.Fatal(err)
	}
	return filer.Entry{Path: filePath, Size: b.Size, Blobs: []filer.Blob{b}}
}

// storing answers a write as a volume server does.
func storing(w http.ResponseWriter, r *http.Request) {
	data, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"size":%d,"eTag":"%08x"}`, len(data), crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
}

func dead(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// short drops the connection in the middle.
func short(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", fmt.Sprint(len(blobData)))
	_, _ = io.WriteString(w, blobData[:7])
}

func TestReadFromReplicas(t *testing.T) {
	ok, gone, broken := holding(blobData), answering(404, ""), answering(500, "disk trouble")
	rotten := answering(500, "invalid CRC for needle, data on disk corrupted: x")
	flipped := holding(strings.Replace(blobData, "5", "6", 1))
	definite := errors.New("not definite")
	tests := []struct {
		name     string
		replicas []http.HandlerFunc
		want     error // nil: the data; definite: an error that is none of ours
	}{
		{"one", []http.HandlerFunc{ok}, nil},
		{"second after a failure", []http.HandlerFunc{broken, ok}, nil},
		{"second after a dropped connection", []http.HandlerFunc{dead, ok}, nil},
		{"second after a miss", []http.HandlerFunc{gone, ok}, nil},
		{"third after damage and wrong length", []http.HandlerFunc{rotten, holding("short"), ok}, nil},
		{"gone everywhere", []http.HandlerFunc{gone, gone}, filer.ErrNotFound},
		{"gone here and unknown there", []http.HandlerFunc{gone, broken}, definite},
		{"dead", []http.HandlerFunc{dead}, definite},
		{"damaged on disk", []http.HandlerFunc{rotten, gone}, filer.ErrCorrupt},
		{"damaged here and unknown there", []http.HandlerFunc{rotten, dead}, definite},
		{"wrong length", []http.HandlerFunc{holding(blobData + "x")}, filer.ErrCorrupt},
		{"wrong bytes", []http.HandlerFunc{flipped}, filer.ErrCorrupt},
		{"cut short", []http.HandlerFunc{short}, io.ErrUnexpectedEOF},
		{"no servers", nil, definite},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, answering(500, "no proxy"))
			c := f.dial(t, seaweed.Config{})
			e := upload(t, f, c)
			f.set(func() {
				for _, r := range tt.replicas {
					f.hosts = append(f.hosts, volume(t, r))
				}
			})
			got, err := read(t.Context(), c, e, 0)
			switch {
			case tt.want == nil && (err != nil || string(got) != blobData):
				t.Errorf("got %q, error %v", got, err)
			case tt.want == definite && (err == nil || filer.Definite(err)): //nolint:errorlint // a marker
				t.Errorf("got %q, error %v, want one that is not definite", got, err)
			case tt.want != nil && tt.want != definite && !errors.Is(err, tt.want): //nolint:errorlint // a marker
				t.Errorf("got %q, error %v, want %v", got, err, tt.want)
			}
			if tt.want == nil {
				if got, err := read(t.Context(), c, e, 13); err != nil || string(got) != blobData[13:] {
					t.Errorf("from 13: got %q, error %v", got, err)
				}
			}
		})
	}
}

// TestVolumeMoves shows that a miss where a volume was is not taken for a blob
// that is gone.
func TestVolumeMoves(t *testing.T) {
	f := newFake(t, answering(500, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	e := upload(t, f, c)
	here := true
	old := volume(t, func(w http.ResponseWriter, r *http.Request) {
		if here {
			holding(blobData)(w, r)
			return
		}
		http.NotFound(w, r)
	})
	f.set(func() { f.hosts = []string{old} })
	for range 3 {
		if _, err := read(t.Context(), c, e, 0); err != nil {
			t.Fatal(err)
		}
	}
	if f.lookups != 1 {
		t.Errorf("%d look-ups for 3 reads, want 1", f.lookups)
	}
	here = false
	moved := volume(t, holding(blobData))
	f.set(func() { f.hosts = []string{moved} })
	if got, err := read(t.Context(), c, e, 2); err != nil || string(got) != blobData[2:] {
		t.Errorf("after the move: got %q, error %v", got, err)
	}
	if f.lookups != 2 {
		t.Errorf("%d look-ups, want 2", f.lookups)
	}
}

// TestCredentials shows that blobs which a volume server denies us are reached
// through the filer.
func TestCredentials(t *testing.T) {
	f := newFake(t, holding(blobData))
	c := f.dial(t, seaweed.Config{})
	e := upload(t, f, c)
	var auths []string
	strict := volume(t, func(w http.ResponseWriter, r *http.Request) {
		auths = append(auths, r.Method+" "+r.Header.Get("Authorization"))
		http.Error(w, "wrong jwt", http.StatusUnauthorized)
	})
	f.set(func() { f.hosts = []string{strict} })
	if got, err := read(t.Context(), c, e, 5); err != nil || string(got) != blobData[5:] {
		t.Errorf("got %q, error %v", got, err)
	}
	if err := c.Discard(t.Context(), e.Blobs[0]); err != nil {
		t.Error(err)
	}
	if want := []string{"GET ", "DELETE BEARER secret"}; !slices.Equal(auths, want) {
		t.Errorf("the volume server saw %q, want %q", auths, want)
	}
	if want := []string{"GET " + blobID, "DELETE " + blobID}; !slices.Equal(f.proxied, want) {
		t.Errorf("the filer saw %q, want %q", f.proxied, want)
	}
}

func TestUpload(t *testing.T) {
	f := newFake(t, answering(500, "no proxy"))
	c := f.dial(t, seaweed.Config{Collection: "gold", Replication: "001"})
	var seen *http.Request
	host := volume(t, func(w http.ResponseWriter, r *http.Request) { seen = r; storing(w, r) })
	f.set(func() {
		f.assign = &filer_pb.AssignVolumeResponse{FileId: blobID, Location: &filer_pb.Location{Url: host}, Auth: "secret", Fsync: true}
	})
	if _, err := c.Upload(t.Context(), filePath, []byte(blobData)); err != nil {
		t.Fatal(err)
	}
	if seen.Method != http.MethodPut || seen.URL.String() != "/"+blobID+"?fsync=true" || seen.Header.Get("Authorization") != "BEARER secret" {
		t.Errorf("the volume server saw %s %s %v", seen.Method, seen.URL, seen.Header)
	}
	if a := f.asked; a.Path != filePath || a.Collection != "gold" || a.Replication != "001" || a.Count != 1 || a.ExpectedDataSize != uint64(len(blobData)) {
		t.Errorf("the filer saw %v", a)
	}
	for name, handler := range map[string]http.HandlerFunc{
		"failure": answering(500, "x"), "dead": dead, "denied": answering(401, "wrong jwt"), "no JSON": answering(200, "<html>"),
		"other checksum": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"size":20,"eTag":"00000000"}`)
		},
		"other size": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"size":19}`) },
	} {
		f.set(func() { f.assign.Location.Url = volume(t, handler) })
		if _, err := c.Upload(t.Context(), filePath, []byte(blobData)); err == nil || filer.Definite(err) {
			t.Errorf("%s: error %v, want one that is not definite", name, err)
		}
	}
	f.set(func() {
		f.assign = &filer_pb.AssignVolumeResponse{Error: "read only", ErrorCode: filer_pb.FilerError_READ_ONLY}
	})
	if _, err := c.Upload(t.Context(), filePath, []byte(blobData)); !errors.Is(err, filer.ErrReadOnly) {
		t.Errorf("error %v, want %v", err, filer.ErrReadOnly)
	}
	for _, text := range []string{"no writable volumes", ""} {
		f.set(func() { f.assign = &filer_pb.AssignVolumeResponse{Error: text} })
		if _, err := c.Upload(t.Context(), filePath, []byte(blobData)); err == nil || filer.Definite(err) {
			t.Errorf("assignment fails with %q: error %v", text, err)
		}
	}
}

// TestVerdicts shows which answers are definite. To take any other for one
// would lose data.
func TestVerdicts(t *testing.T) {
	f := newFake(t, answering(500, "no proxy"))
	c := f.dial(t, seaweed.Config{})
	file := filer.File{ID: filer.NewID()}
	create := func(code filer_pb.FilerError, text string, err error) error {
		f.set(func() {
			f.create = func() (*filer_pb.CreateEntryResponse, error) {
				return &filer_pb.CreateEntryResponse{ErrorCode: code, Error: text}, err
			}
		})
		return c.Create(t.Context(), filePath, file)
	}
	call := func(err error) (update, lookup error) {
		f.set(func() { f.fail = err })
		_, lookup = c.Lookup(t.Context(), filePath)
		return c.Update(t.Context(), filePath, "x", file), lookup
	}
	gone := status.Error(codes.Unknown, filer_pb.ErrNotFound.Error())
	updateGone, lookupGone := call(gone)
	updateChanged, _ := call(status.Error(codes.FailedPrecondition, "extended attribute changed"))
	updateTold, _ := call(status.Error(codes.NotFound, "not found"))
	updateDown, lookupDown := call(status.Error(codes.Unavailable, filer_pb.ErrNotFound.Error()))
	for name, tt := range map[string]struct{ got, want error }{
		"exists":           {create(filer_pb.FilerError_ENTRY_ALREADY_EXISTS, "there", nil), filer.ErrExists},
		"name too long":    {create(filer_pb.FilerError_ENTRY_NAME_TOO_LONG, "long", nil), filer.ErrInvalid},
		"parent is a file": {create(filer_pb.FilerError_PARENT_IS_FILE, "file", nil), filer.ErrInvalid},
		"is a directory":   {create(filer_pb.FilerError_EXISTING_IS_DIRECTORY, "dir", nil), filer.ErrInvalid},
		"read-only code":   {create(filer_pb.FilerError_READ_ONLY, "", nil), filer.ErrReadOnly},
		"read-only text":   {create(0, "", status.Error(codes.Unknown, "read only: /buckets/b (e.g. bucket over quota)")), filer.ErrReadOnly},
		"text alone":       {create(0, "insert entry: entry already exists", nil), nil},
		"unknown code":     {create(99, "", nil), nil},
		"read-only inside": {create(0, "", status.Error(codes.Unknown, "insert /a/read only: /b: disk full")), nil},
		"create down":      {create(0, "", status.Error(codes.Unavailable, "down")), nil},
		"look-up gone":     {lookupGone, filer.ErrNotFound},
		"look-up down":     {lookupDown, nil},
		"update gone":      {updateGone, filer.ErrNotFound},
		"update told gone": {updateTold, filer.ErrNotFound},
		"update changed":   {updateChanged, filer.ErrConflict},
		"update down":      {updateDown, nil},
	} {
		if tt.want == nil && (tt.got == nil || filer.Definite(tt.got)) {
			t.Errorf("%s: error %v, want one that is not definite", name, tt.got)
		} else if tt.want != nil && !errors.Is(tt.got, tt.want) {
			t.Errorf("%s: error %v, want %v", name, tt.got, tt.want)
		}
	}
}

func TestDialRefuses(t *testing.T) {
	for _, addr := range []string{"", "host", ":8888", "host:", "host:x", "host:70000", "host:60000"} {
		if _, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: addr}); err == nil {
			t.Errorf("address %q was taken", addr)
		}
	}
	f := newFake(t, answering(500, "no proxy"))
	for name, conf := range map[string]*filer_pb.GetFilerConfigurationResponse{
		"encrypting":        {DirBuckets: "/buckets", Cipher: true},
		"buckets elsewhere": {DirBuckets: "/s3"},
	} {
		f.set(func() { f.config = conf })
		if _, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: f.addr, GRPC: f.addr}); err == nil {
			t.Errorf("a filer was taken that is %s", name)
		}
	}
}

// TestFilerComesBack stops the filer under a client and starts it again.
func TestFilerComesBack(t *testing.T) {
	f := &fakeFiler{config: &filer_pb.GetFilerConfigurationResponse{DirBuckets: "/buckets"}}
	stop := f.serve(t, "127.0.0.1:0")
	c := dial(t, seaweed.Config{Filer: f.addr, GRPC: f.addr})
	stop()
	err := c.Create(t.Context(), filePath, filer.File{ID: filer.NewID()})
	if err == nil || filer.Definite(err) {
		t.Errorf("error %v, want one that is not definite", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx, "/buckets/fake"); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting: error %v", err)
	}
	t.Cleanup(f.serve(t, f.addr))
	awaitTrue(t, "the filer to be found again", func() bool { return c.Ping(t.Context()) == nil })
}

// TestTLS talks to a filer and a volume server that are both secured.
func TestTLS(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			storing(w, r)
			return
		}
		holding(blobData)(w, r)
	}))
	t.Cleanup(secure.Close)
	host := strings.TrimPrefix(secure.URL, "https://")
	f := &fakeFiler{
		config: &filer_pb.GetFilerConfigurationResponse{DirBuckets: "/buckets"}, hosts: []string{host},
		assign: &filer_pb.AssignVolumeResponse{FileId: blobID, Location: &filer_pb.Location{Url: host}},
	}
	t.Cleanup(f.serve(t, "127.0.0.1:0", grpc.Creds(credentials.NewServerTLSFromCert(&secure.TLS.Certificates[0]))))
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	conf := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	c := dial(t, seaweed.Config{Filer: host, GRPC: f.addr, TLS: conf, HTTPS: conf})
	b, err := c.Upload(t.Context(), filePath, []byte(blobData))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := read(t.Context(), c, filer.Entry{Path: filePath, Size: b.Size, Blobs: []filer.Blob{b}}, 0); err != nil || string(got) != blobData {
		t.Errorf("got %q, error %v", got, err)
	}
	if _, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: host, GRPC: f.addr, Timeout: time.Second}); err == nil {
		t.Error("a plain connection was taken")
	}
}
