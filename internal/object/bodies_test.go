package object_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
)

// TestBodies: what can happen once an object's bytes are coming.
func TestBodies(t *testing.T) {
	for what, c := range map[string]struct {
		off  int64
		h    http.HandlerFunc
		want error // nil: *UnavailableError
	}{
		"breaks off": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "12345")
		}},
		"stops": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "12345")
			w.(http.Flusher).Flush()
			untilGone(w, r)
		}},
		"no ranges": {off: 5, h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "1234567890") }},
		"another range": {off: 5, h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 4-9/10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "567890")
		}},
		"a range nobody wanted": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Range", "bytes 0-3/10")
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "1234")
		}},
		"another checksum": {want: object.ErrCorrupt, h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Checksum-Crc32", "AAAAAA==")
			_, _ = io.WriteString(w, "1234567890")
		}},
	} {
		_, _, err := read(t, endpoint(t, impatient, c.h), name, c.off, "")
		if c.want == nil {
			checkUnavailable(t, what, err)
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
		checkText(t, what, err)
	}
}

// TestPause: whoever reads may pause for longer than an endpoint may.
func TestPause(t *testing.T) {
	const size, timeout = 1 << 20, 500 * time.Millisecond
	s := endpoint(t, timeout, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		_, _ = w.Write(make([]byte, size))
	})
	body, _, err := s.Get(t.Context(), name, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = body.Close() })
	<-time.After(2 * timeout)
	if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	<-time.After(2 * timeout)
	if n, err := io.Copy(io.Discard, body); err != nil || n != size-1000 {
		t.Errorf("%d bytes more, %v", n, err)
	}
}
