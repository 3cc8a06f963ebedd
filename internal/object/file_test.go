package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/object"
)

// served is an object on a server that does what it should, but for the fault.
type served struct {
	data     []byte
	etag     string
	requests atomic.Int64
	// fault does something else with request n, from 1, for the bytes from from to
	// to, if it returns true.
	fault func(w http.ResponseWriter, r *http.Request, n, from, to int64) bool
}

func (s *served) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	from, to := int64(0), int64(len(s.data))-1
	if text := r.Header.Get("Range"); text != "" {
		if _, err := fmt.Sscanf(text, "bytes=%d-%d", &from, &to); err != nil {
			panic(text)
		}
	}
	n := int64(0)
	if r.Method == http.MethodGet {
		n = s.requests.Add(1)
	}
	if s.fault != nil && s.fault(w, r, n, from, to+1) {
		return
	}
	if match := r.Header.Get("If-Match"); match != "" && match != `"`+s.etag+`"` {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	s.answer(w, from, to, s.data[from:to+1])
}

// answer says that it has a range, and sends bytes.
func (s *served) answer(w http.ResponseWriter, from, to int64, data []byte) {
	w.Header().Set("ETag", `"`+s.etag+`"`)
	w.Header().Set("Content-Length", fmt.Sprint(to-from+1))
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, len(s.data)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(data)
}

// file is the object as a File.
func (s *served) file(t *testing.T, ctx context.Context) *object.File {
	t.Helper()
	f := endpoint(t, impatient, s.ServeHTTP).File(ctx, name, int64(len(s.data)), "the-etag").Hasten()
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func newServed(size int) *served { return &served{data: noise(size), etag: "the-etag"} }

// whole reads a file as streams are read.
func whole(f *object.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(f, 0, f.Size()))
}

// TestFileReads: whatever is read in whatever order, by whom and at the same time, is
// what the object has there, in bounded memory.
func TestFileReads(t *testing.T) {
	s := newServed(12<<20 + 12345)
	f := s.file(t, t.Context())
	for _, size := range []int{1, 4096, 100_000, 3 << 20} {
		rng := rand.New(rand.NewPCG(uint64(size), 1))
		var readers errgroup.Group
		for range 4 {
			at := rng.Int64N(int64(len(s.data)))
			readers.Go(func() error {
				p := make([]byte, size)
				for i := range 60 {
					if i%20 == 0 { // a jump, at times beyond the end
						at = (at * 31) % (int64(len(s.data)) + 10_000)
					}
					n, err := f.ReadAt(p, at)
					want := s.data[min(at, int64(len(s.data))):min(at+int64(size), int64(len(s.data)))]
					if !bytes.Equal(p[:n], want) || (n < size) != errors.Is(err, io.EOF) || err != nil && !errors.Is(err, io.EOF) {
						return fmt.Errorf("%d bytes at %d: %d, %w", size, at, n, err)
					}
					at += int64(n)
				}
				return nil
			})
		}
		if err := readers.Wait(); err != nil {
			t.Fatal(err)
		}
		if held := f.Held(); held > 8<<20 {
			t.Errorf("%d bytes are held", held)
		}
	}
}

// TestFileHeld: however many places are read in turn, the memory is bounded, and hardly
// more is fetched than is read.
func TestFileHeld(t *testing.T) {
	const places, apart, step = 120, 240 << 10, 4 << 10
	s := newServed(places * apart)
	sent := atomic.Int64{}
	s.fault = func(_ http.ResponseWriter, _ *http.Request, _, from, to int64) bool {
		sent.Add(to - from)
		return false
	}
	f := s.file(t, t.Context())
	p := make([]byte, step)
	for at := int64(0); at < apart; at += step {
		for place := range int64(places) {
			if n, err := f.ReadAt(p, place*apart+at); err != nil || !bytes.Equal(p[:n], s.data[place*apart+at:][:step]) {
				t.Fatalf("%d bytes at %d: %v", n, place*apart+at, err)
			}
			if held := f.Held(); held > 8<<20 {
				t.Fatalf("%d bytes are held", held)
			}
		}
	}
	if size := int64(len(s.data)); sent.Load() > 2*size {
		t.Errorf("%d bytes came for %d", sent.Load(), size)
	}
}

// TestFileInOrder: a reader from the start may skip a little, and come back.
func TestFileInOrder(t *testing.T) {
	s := newServed(2 << 20)
	f := s.file(t, t.Context())
	for _, at := range []int64{0, 1000, 256 << 10, 257 << 10, 280 << 10, 1 << 20, 5, 300 << 10, 2<<20 - 1000} {
		p := make([]byte, 1000)
		if _, err := f.ReadAt(p, at); err != nil || !bytes.Equal(p, s.data[at:at+1000]) {
			t.Errorf("at %d: %v", at, err)
		}
	}
	if n := s.requests.Load(); n != 6 { // the start, the stream, at 1 MiB, the start again, at 300 KiB and at the end
		t.Errorf("%d requests", n)
	}
	if got, err := whole(f); err != nil || !bytes.Equal(got, s.data) {
		t.Errorf("all of it: %v", err)
	}
	empty := endpoint(t, impatient, nil).File(t.Context(), name, 0, "e")
	if n, err := empty.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("of nothing: %d, %v", n, err)
	}
	if _, err := f.ReadAt(nil, -1); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("before the start: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
