package object_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/object"
)

// TestFileGoesOn: bodies that break off, in each way, are read on where they did.
func TestFileGoesOn(t *testing.T) {
	for what, fault := range map[string]func(s *served) func(http.ResponseWriter, *http.Request, int64, int64, int64) bool{
		"each is cut": func(s *served) func(http.ResponseWriter, *http.Request, int64, int64, int64) bool {
			return func(w http.ResponseWriter, _ *http.Request, _, from, to int64) bool {
				s.answer(w, from, to-1, s.data[from:min(to, from+100<<10)])
				return true
			}
		},
		"some stop": func(s *served) func(http.ResponseWriter, *http.Request, int64, int64, int64) bool {
			return func(w http.ResponseWriter, r *http.Request, n, from, to int64) bool {
				if n%2 == 0 || to-from < 1000 {
					return false
				}
				s.answer(w, from, to-1, s.data[from:from+1000])
				w.(http.Flusher).Flush()
				untilGone(w, r)
				return true
			}
		},
		"most fail": func(*served) func(http.ResponseWriter, *http.Request, int64, int64, int64) bool {
			return func(w http.ResponseWriter, _ *http.Request, n, _, _ int64) bool {
				if n%7 != 0 {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
				return n%7 != 0
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newServed(1 << 20)
			s.fault = fault(s)
			if got, err := whole(s.file(t, t.Context())); err != nil || !bytes.Equal(got, s.data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
}

// TestFileFails: what an endpoint answers from its second request on. Never are there
// bytes that are not the object's, or an end before its end.
func TestFileFails(t *testing.T) {
	s := newServed(1 << 20)
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
	}
	header := func(name, value string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for n, v := range map[string]string{"ETag": `"the-etag"`, "Content-Length": "786432", "Content-Range": "bytes 262144-1048575/1048576", name: value} {
				if v != "" {
					w.Header().Set(n, v)
				}
			}
			w.WriteHeader(http.StatusPartialContent)
			_, _ = w.Write(make([]byte, 786432))
		}
	}
	for what, c := range map[string]struct {
		do   http.HandlerFunc
		want error // nil: *UnavailableError
		says string
	}{
		"gone":                    {status(http.StatusNotFound), object.ErrNotFound, ""},
		"forbidden":               {status(http.StatusForbidden), object.ErrForbidden, ""},
		"down":                    {status(http.StatusBadGateway), nil, "502"},
		"hangs":                   {untilGone, nil, "no progress"},
		"hangs up":                {hijacked(func(net.Conn) {}), nil, ""},
		"changed":                 {changed(http.StatusPreconditionFailed), object.ErrChanged, `should be "the-etag" and is "another"`},
		"cut short":               {changed(http.StatusRequestedRangeNotSatisfiable), object.ErrChanged, "its size should be 1048576 and is 7"},
		"If-Match is not heeded":  {header("ETag", `"another"`), object.ErrChanged, `is "another"`},
		"grown, with its ETag":    {header("Content-Range", "bytes 262144-1048575/1048577"), object.ErrChanged, "is 1048577"},
		"ranges are not heeded":   {func(w http.ResponseWriter, _ *http.Request) { s.all(w) }, nil, "asked for the bytes 262144 to 1048575"},
		"another range":           {header("Content-Range", "bytes 262143-1048574/1048576"), nil, "262143"},
		"another range's length":  {header("Content-Range", "bytes 262144-1048574/1048576"), nil, "1048574"},
		"no range":                {header("Content-Range", ""), object.ErrChanged, ""},
		"no sense":                {header("Content-Range", "bytes */*"), nil, `the range "bytes */*"`},
		"no ETag":                 {header("ETag", ""), nil, "no ETag"},
		"changed, and it has not": {unchanged, nil, "that it has not"},
		"no length":               {chunked, nil, "no size"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newServed(1 << 20)
			var well atomic.Bool
			s.fault = func(w http.ResponseWriter, r *http.Request, n, _, _ int64) bool {
				if n == 1 || well.Load() {
					return false
				}
				c.do(w, r)
				return true
			}
			f := s.file(t, t.Context())
			got, err := whole(f)
			if err == nil || len(got) > 256<<10 || !bytes.Equal(got, s.data[:len(got)]) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			checkText(t, what, err)
			if c.want == nil {
				checkUnavailable(t, what, err)
			} else if !errors.Is(err, c.want) || s.requests.Load() != 2 {
				t.Errorf("%v after %d requests", err, s.requests.Load())
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			well.Store(true)
			if got, err := whole(f); err != nil || !bytes.Equal(got, s.data) {
				t.Errorf("once all is well again: %d bytes, %v", len(got), err)
			}
		})
	}
}

// all is what an endpoint sends that does not know of ranges.
func (s *served) all(w http.ResponseWriter) {
	w.Header().Set("ETag", `"the-etag"`)
	w.Header().Set("Content-Length", fmt.Sprint(len(s.data)))
	_, _ = w.Write(s.data)
}

// changed refuses, and has an object of 7 bytes to be seen.
func changed(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodHead {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("ETag", `"another"`)
		w.Header().Set("Content-Length", "7")
	}
}

func unchanged(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodHead {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	w.Header().Set("ETag", `"the-etag"`)
	w.Header().Set("Content-Length", "1048576")
}

func chunked(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("ETag", `"the-etag"`)
	w.Header().Set("Content-Range", "bytes 262144-1048575/1048576")
	w.WriteHeader(http.StatusPartialContent)
	w.(http.Flusher).Flush()
	_, _ = w.Write(make([]byte, 2<<20))
}

// TestFileNoRanges: where an endpoint knows no ranges, small objects can be read.
func TestFileNoRanges(t *testing.T) {
	s := newServed(1000)
	s.fault = func(w http.ResponseWriter, _ *http.Request, _, _, _ int64) bool { s.all(w); return true }
	if got, err := whole(s.file(t, t.Context())); err != nil || !bytes.Equal(got, s.data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestFileGivesUp: a body from which nothing comes is asked for FileTries times, and
// then again when somebody reads.
func TestFileGivesUp(t *testing.T) {
	s := newServed(1 << 20)
	s.fault = func(w http.ResponseWriter, _ *http.Request, n, from, to int64) bool {
		if n > 1 {
			s.answer(w, from, to-1, s.data[from:from+10])
		}
		return n > 1
	}
	f := s.file(t, t.Context())
	for again := range int64(2) {
		_, err := io.Copy(io.Discard, io.NewSectionReader(f, again*256<<10, f.Size()))
		checkUnavailable(t, "read", err)
		if n := s.requests.Load(); n != 1+(again+1)*object.FileTries {
			t.Errorf("%d requests", n)
		}
	}
}

// TestFileETag: without an ETag, that of the first answer is asked for.
func TestFileETag(t *testing.T) {
	s := newServed(1 << 20)
	f := endpoint(t, impatient, s.ServeHTTP).File(t.Context(), name, int64(len(s.data)), "")
	if _, err := f.ReadAt(make([]byte, 10), 0); err != nil {
		t.Fatal(err)
	}
	s.etag = "another"
	if _, err := f.ReadAt(make([]byte, 10), 500_000); !errors.Is(err, object.ErrChanged) {
		t.Error(err)
	}
	odd := endpoint(t, impatient, s.ServeHTTP).File(t.Context(), name, 10, "a\nb")
	if _, err := odd.ReadAt(make([]byte, 10), 0); !errors.Is(err, object.ErrChanged) {
		t.Errorf("an ETag that is none: %v", err)
	}
}

// TestFileEnds: a read that waits ends with its context, and with Close.
func TestFileEnds(t *testing.T) {
	for what, end := range map[string]func(*object.File, context.CancelFunc){
		"context": func(_ *object.File, cancel context.CancelFunc) { cancel() },
		"close":   func(f *object.File, _ context.CancelFunc) { _ = f.Close() },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		s, begun := newServed(1000), make(chan struct{})
		s.fault = func(w http.ResponseWriter, r *http.Request, _, _, _ int64) bool {
			close(begun)
			untilGone(w, r)
			return true
		}
		f := endpoint(t, time.Minute, s.ServeHTTP).File(ctx, name, 1000, "the-etag")
		var reader errgroup.Group
		reader.Go(func() error {
			_, err := f.ReadAt(make([]byte, 10), 0)
			return err
		})
		<-begun
		end(f, cancel)
		if err := reader.Wait(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", what, err)
		}
		cancel()
	}
}

// TestFileCheck: what was not read can be looked at.
func TestFileCheck(t *testing.T) {
	s := newServed(0)
	f := endpoint(t, impatient, func(w http.ResponseWriter, r *http.Request) { changed(200)(w, r) }).File(t.Context(), name, 0, "the-etag")
	var c *object.ChangedError
	if err := f.Check(t.Context()); !errors.As(err, &c) || c.Found != "another" || c.Actual != 7 {
		t.Error(err)
	}
	same := endpoint(t, impatient, func(w http.ResponseWriter, _ *http.Request) { s.all(w) }).File(t.Context(), name, 0, "the-etag")
	if err := same.Check(t.Context()); err != nil {
		t.Error(err)
	}
}
