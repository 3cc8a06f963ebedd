package seaweed_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

func TestConformance(t *testing.T) {
	filertest.Run(t, func(t *testing.T) filer.Store { return dial(t, seaweed.Config{}) })
}

func TestSelfCheck(t *testing.T) {
	if err := filer.SelfCheck(t.Context(), dial(t, seaweed.Config{}), "/buckets/conformance"); err != nil {
		t.Fatal(err)
	}
}

func TestVersionAndWait(t *testing.T) {
	c := dial(t, seaweed.Config{})
	if v, err := c.Version(t.Context()); err != nil || !strings.Contains(v, ".") || v != strings.TrimSpace(v) {
		t.Errorf("version %q, error %v", v, err)
	}
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	dir := newDir(t, c)
	if err := c.Wait(t.Context(), dir); err != nil {
		t.Error(err)
	}
	if left, err := c.List(t.Context(), dir, "", 0); err != nil || len(left) > 0 {
		t.Errorf("waiting left %v, error %v", left, err)
	}
	if err := c.Wait(t.Context(), "/buckets/conformance/../x"); !errors.Is(err, filer.ErrInvalid) {
		t.Errorf("waiting for an invalid folder: error %v", err)
	}
}

// TestSeenOverHTTP shows what others see of our files.
func TestSeenOverHTTP(t *testing.T) {
	c := dial(t, seaweed.Config{})
	dir := newDir(t, c)
	data := bytes.Repeat([]byte("text that compresses well. "), 10_000)
	blob, err := c.Upload(t.Context(), dir+"/1", data)
	if err != nil {
		t.Fatal(err)
	}
	crc := fmt.Sprintf("%08x", crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	files := []struct {
		name, mime, etag string
		file             filer.File
		data             []byte
	}{
		{"0.json", "application/json", fmt.Sprintf("%x", md5.Sum([]byte("{}"))), filer.File{Content: []byte("{}")}, []byte("{}")},
		{"1.avro", "application/avro", crc, filer.File{Blobs: []filer.Blob{blob}}, data},
		{"2", "application/octet-stream", fmt.Sprintf("%x", md5.Sum(nil)), filer.File{}, nil},
	}
	for _, f := range files {
		f.file.ID, f.file.Attrs = filer.NewID(), filer.Attrs{"Base-Offset": "17"}
		if err := c.Create(t.Context(), dir+"/"+f.name, f.file); err != nil {
			t.Fatal(err)
		}
		resp, body := request(t, http.MethodGet, "http://"+weedFiler(t)+dir+"/"+f.name, nil)
		want := map[string]string{
			"Content-Type": f.mime, "Etag": `"` + f.etag + `"`,
			"X-Amz-Meta-Spillway-Base-Offset": "17", "X-Amz-Meta-Spillway-Entry-Id": f.file.ID,
		}
		for name, value := range want {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: header %s is %q, want %q", f.name, name, got, value)
			}
		}
		if !bytes.Equal(body, f.data) {
			t.Errorf("%s: got %d bytes that differ from the %d written", f.name, len(body), len(f.data))
		}
	}
}

// TestFilesOfOthers reads what was not written by us, in all the ways that the
// filer has of storing it.
func TestFilesOfOthers(t *testing.T) {
	c := dial(t, seaweed.Config{})
	dir := newDir(t, c)
	text := bytes.Repeat([]byte("some text that the filer compresses by itself\n"), 4000)
	put := func(name, query string, data []byte) {
		t.Helper()
		resp, body := request(t, http.MethodPut, "http://"+weedFiler(t)+dir+"/"+name+query, data)
		if resp.StatusCode/100 != 2 {
			t.Fatalf("put %s: %s %s", name, resp.Status, body)
		}
	}
	put("empty.bin", "", nil)
	put("compressed.txt", "", text)
	put("inline.txt", "?saveInside=true", text[:1000])
	put("chunks.bin", "?maxMB=1", bytes.Repeat(text, 16))
	for i := range 3 {
		put("appended.log", "?op=append", text[i:])
	}
	sparse, overlap := strange(t, c, dir, text)
	for name, want := range map[string][]byte{
		"empty.bin": nil, "compressed.txt": text, "inline.txt": text[:1000], "chunks.bin": bytes.Repeat(text, 16),
		"appended.log": bytes.Join([][]byte{text, text[1:], text[2:]}, nil), "sparse": sparse, "overlap": overlap,
	} {
		e, err := c.Lookup(t.Context(), dir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		if e.ID != "" || len(e.Attrs) > 0 || e.Size != int64(len(want)) {
			t.Errorf("%s: ID %q, attributes %v, size %d instead of %d", name, e.ID, e.Attrs, e.Size, len(want))
		}
		for _, off := range []int{0, len(want) / 3, len(want)} {
			if got, err := read(t.Context(), c, e, int64(off)); err != nil || !bytes.Equal(got, want[off:]) {
				t.Errorf("%s from %d: %d bytes that differ from the %d wanted, error %v", name, off, len(got), len(want)-off, err)
			}
		}
		if err := c.Update(t.Context(), e.Path, filer.NewID(), filer.File{ID: filer.NewID()}); !errors.Is(err, filer.ErrConflict) {
			t.Errorf("%s: update gave error %v", name, err)
		}
	}
}

// strange writes entries whose chunks leave a gap, and overlap.
func strange(t *testing.T, c *seaweed.Client, dir string, data []byte) (sparse, overlap []byte) {
	t.Helper()
	conn := rpc(t)
	chunk := func(name string, offset int64, data []byte, ts int64) *filer_pb.FileChunk {
		b, err := c.Upload(t.Context(), dir+"/"+name, data)
		if err != nil {
			t.Fatal(err)
		}
		return &filer_pb.FileChunk{FileId: b.ID, Offset: offset, Size: uint64(len(data)), ModifiedTsNs: ts}
	}
	for name, chunks := range map[string][]*filer_pb.FileChunk{
		"sparse":  {chunk("sparse", 1000, data[:500], 1)},
		"overlap": {chunk("overlap", 0, data[:1000], 1), chunk("overlap", 500, data[:1000], 2)},
	} {
		resp, err := conn.CreateEntry(t.Context(), &filer_pb.CreateEntryRequest{Directory: dir, Entry: &filer_pb.Entry{
			Name: name, Chunks: chunks, Attributes: &filer_pb.FuseAttributes{Mtime: 1, FileMode: 0o660},
		}})
		if err != nil || resp.Error != "" {
			t.Fatal(resp, err)
		}
	}
	return append(make([]byte, 1000), data[:500]...), append(bytes.Clone(data[:500]), data[:1000]...)
}

// TestStorageRules shows that rules for a path hold for what goes straight to
// volume servers too.
func TestStorageRules(t *testing.T) {
	c := dial(t, seaweed.Config{})
	locked, synced := newDir(t, c), newDir(t, c)
	old := filer.File{ID: filer.NewID()}
	if err := c.Create(t.Context(), locked+"/old", old); err != nil {
		t.Fatal(err)
	}
	configure(t, c, fmt.Sprintf(`{"locationPrefix":%q,"readOnly":true}`, locked+"/"), fmt.Sprintf(`{"locationPrefix":%q,"fsync":true}`, synced+"/"))
	awaitTrue(t, "the rules to hold", func() bool {
		_, err := c.Upload(t.Context(), locked+"/x", []byte("x"))
		return errors.Is(err, filer.ErrReadOnly)
	})
	if err := c.Create(t.Context(), locked+"/new", filer.File{ID: filer.NewID()}); !errors.Is(err, filer.ErrReadOnly) {
		t.Errorf("create below a read-only path gave error %v", err)
	}
	if err := c.Wait(t.Context(), locked); !errors.Is(err, filer.ErrReadOnly) {
		t.Errorf("waiting below a read-only path gave error %v", err)
	}
	if _, err := c.Lookup(t.Context(), locked+"/new"); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("the refused file: error %v", err)
	}
	if err := c.Update(t.Context(), locked+"/old", old.ID, filer.File{ID: filer.NewID()}); err != nil {
		t.Errorf("update below a read-only path: %v", err)
	}
	if err := c.Wait(t.Context(), synced); err != nil {
		t.Errorf("write below a path with fsync: %v", err)
	}
}

func newDir(t testing.TB, c *seaweed.Client) string {
	t.Helper()
	dir := "/buckets/conformance/" + filer.Token(12)
	t.Cleanup(func() {
		if err := c.DeleteTree(context.WithoutCancel(t.Context()), dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func rpc(t *testing.T) filer_pb.SeaweedFilerClient {
	t.Helper()
	var port int
	if _, err := fmt.Sscanf(weedFiler(t), "127.0.0.1:%d", &port); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(fmt.Sprint("127.0.0.1:", port+10000), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return filer_pb.NewSeaweedFilerClient(conn)
}

func request(t *testing.T, method, url string, data []byte) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp, body
}

func read(ctx context.Context, c *seaweed.Client, e filer.Entry, off int64) ([]byte, error) {
	r, err := c.Open(ctx, e, off)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func awaitTrue(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		case <-tick.C:
		}
	}
}
