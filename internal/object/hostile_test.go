package object_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
)

const (
	secret = "the-secret-key"
	token  = "the-session-token"
	// impatient is the timeout of an attempt at servers that do not do what they
	// should; being too early changes nothing.
	impatient = 150 * time.Millisecond
)

// endpoint is a store on a server that does what h does.
func endpoint(t *testing.T, timeout time.Duration, h http.HandlerFunc) *object.Store {
	t.Helper()
	return at(t, timeout, server(t, h))
}

func server(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // then the server sees when the client is gone
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func at(t *testing.T, timeout time.Duration, url string) *object.Store {
	t.Helper()
	return open(t, object.Hasty(object.Config{
		Endpoint: url, AccessKey: "the-access-key", SecretKey: secret, SessionToken: token, Timeout: timeout,
	}))
}

var name = object.Name{Bucket: "bucket", Key: "the/key"}

// everything does all that a store can do, and returns the errors.
func everything(ctx context.Context, s *object.Store) map[string]error {
	errs := map[string]error{}
	_, errs["head"] = s.Head(ctx, name.Bucket, name.Key, "")
	body, _, err := s.Get(ctx, name, 0, "etag")
	if err == nil {
		_, err = io.Copy(io.Discard, body)
		_ = body.Close()
	}
	errs["get"] = err
	_, errs["put"] = s.Put(ctx, name, strings.NewReader("data"), 4, object.PutOptions{})
	_, errs["put parts"] = s.Put(ctx, name, zeros{}, object.PartSize+1, object.PutOptions{})
	errs["list"] = nil
	for _, err := range s.List(ctx, name.Bucket, name.Key, "") {
		errs["list"] = err
	}
	return errs
}

type zeros struct{}

func (zeros) ReadAt(p []byte, _ int64) (int, error) { clear(p); return len(p), nil }

func endless(w http.ResponseWriter, r *http.Request, start string) {
	more := strings.Repeat("<Key>garbage</Key>", 1000)
	_, err := io.WriteString(w, start)
	for err == nil && r.Method != http.MethodHead {
		_, err = io.WriteString(w, more)
	}
}

func untilGone(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

// TestHostile: whatever an endpoint does, each call ends soon, in bounded memory,
// with an error that says where it was, and no secret.
func TestHostile(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"500": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"503 with text": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<Error><Code>SlowDown</Code><Message>"+token+"</Message></Error>")
		},
		"never answers": untilGone,
		"headers and nothing more": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead { // it needs no more
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			w.Header().Set("Content-Length", "100")
			w.(http.Flusher).Flush()
			untilGone(w, r)
		},
		"a trickle": func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			if r.Method == http.MethodGet && !r.URL.Query().Has("list-type") {
				w.WriteHeader(http.StatusBadGateway) // what trickles in as an object's bytes is the caller's business
			}
			for tick := time.Tick(impatient / 10); ; {
				select {
				case <-tick:
					_, _ = io.WriteString(w, " ")
					w.(http.Flusher).Flush()
				case <-r.Context().Done():
					return
				}
			}
		},
		"a web site": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush() // no Content-Length
			_, _ = io.WriteString(w, "<html><body>Welcome!</body></html>")
		},
		"endless XML": func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			endless(w, r, "<ListBucketResult><Contents>")
		},
		"endless errors": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			endless(w, r, "<Error><Message>")
		},
		"endless headers": hijacked(endlessHeaders),
		"no HTTP":         hijacked(func(c net.Conn) { _, _ = io.WriteString(c, "220 mail.example ESMTP\r\n") }),
		"hangs up":        hijacked(func(net.Conn) {}),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			for op, err := range everything(t.Context(), endpoint(t, impatient, h)) {
				checkUnavailable(t, op, err)
			}
			// Five calls, 11 requests with their bodies, each up to three times.
			if took := time.Since(begin); took > 60*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		for op, err := range everything(t.Context(), at(t, impatient, "http://"+l.Addr().String())) {
			checkUnavailable(t, op, err)
		}
	})
}

func hijacked(do func(net.Conn)) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = bufio.NewWriter(rw).Flush()
		do(conn)
		_ = conn.Close()
	}
}

func checkUnavailable(t *testing.T, op string, err error) {
	t.Helper()
	var u *object.UnavailableError
	if !errors.As(err, &u) {
		t.Errorf("%s: %v", op, err)
		return
	}
	checkText(t, op, err)
}

func checkText(t *testing.T, op string, err error) {
	t.Helper()
	text := err.Error()
	if !strings.Contains(text, name.String()) || len(text) > 600 || strings.ContainsAny(text, "\r\n") {
		t.Errorf("%s: %q", op, text)
	}
	for _, hidden := range []string{secret, token, "Signature", "AWS4-HMAC"} {
		if strings.Contains(text, hidden) {
			t.Errorf("%s: the error holds %q: %q", op, hidden, text)
		}
	}
}

// TestUnread: an upload that nobody reads is given up.
func TestUnread(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			<-t.Context().Done()
		}
	}))
	t.Cleanup(srv.Close)
	_, err := at(t, impatient, srv.URL).Put(t.Context(), name, zeros{}, object.PartSize, object.PutOptions{})
	checkUnavailable(t, "put", err)
}

// TestMemory: answers that do not end take no memory.
func TestMemory(t *testing.T) {
	for what, h := range map[string]http.HandlerFunc{
		"error": func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusBadGateway)
			endless(w, r, "<Error><Message>")
		},
		"headers": hijacked(endlessHeaders),
	} {
		s := endpoint(t, 5*time.Second, h)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 3 {
			_, _, err := s.Get(t.Context(), name, 0, "")
			checkUnavailable(t, "get", err)
		}
		runtime.ReadMemStats(&after)
		// Three calls with three tries each; the server's memory counts too.
		if total := after.TotalAlloc - before.TotalAlloc; total > 16<<20 {
			t.Errorf("%s: %d MiB allocated", what, total>>20)
		}
	}
}

func endlessHeaders(c net.Conn) {
	line := "X-Amz-Meta-A: " + strings.Repeat("a", 1000) + "\r\n"
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n")
	for err == nil {
		_, err = io.WriteString(c, line)
	}
}

// TestRedirects are not followed, to no host.
func TestRedirects(t *testing.T) {
	var visits atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visits.Add(1) }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		s := endpoint(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, status)
		})
		for op, err := range everything(t.Context(), s) {
			checkUnavailable(t, op, err)
			if !strings.Contains(err.Error(), "redirect to 127.0.0.1") {
				t.Errorf("%d, %s: %v", status, op, err)
			}
		}
	}
	if n := visits.Load(); n != 0 {
		t.Errorf("%d requests went elsewhere", n)
	}
}

// TestVerdicts: which error an answer is.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   error // nil: *UnavailableError
	}{
		{400, "InvalidArgument", object.ErrInvalid},
		{400, "ExpiredToken", object.ErrForbidden},
		{400, "BadDigest", object.ErrCorrupt},
		{401, "Unauthorized", object.ErrForbidden},
		{403, "AccessDenied", object.ErrForbidden},
		{404, "NoSuchKey", object.ErrNotFound},
		{404, "NoSuchVersion", object.ErrNotFound},
		{404, "NoSuchBucket", object.ErrNoBucket},
		{404, "NoSuchUpload", nil},
		{408, "RequestTimeout", nil},
		{409, "OperationAborted", nil},
		{409, "ConditionalRequestConflict", object.ErrChanged},
		{412, "PreconditionFailed", object.ErrChanged},
		{416, "InvalidRange", object.ErrChanged},
		{429, "SlowDown", nil},
		{500, "InternalError", nil},
		{501, "NotImplemented", object.ErrInvalid},
		{503, "SlowDown", nil},
	} {
		s := endpoint(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Signature %s</Message></Error>", c.code, token)
		})
		_, _, err := s.Get(t.Context(), name, 0, "")
		if c.want == nil {
			checkUnavailable(t, c.code, err)
			continue
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%d %s: %v", c.status, c.code, err)
			continue
		}
		checkText(t, c.code, err)
	}
}

// TestTries: what may pass is tried again, what is definite is not.
func TestTries(t *testing.T) {
	var requests atomic.Int64
	status := http.StatusServiceUnavailable
	s := endpoint(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) < object.Tries {
			w.WriteHeader(status)
			return
		}
		w.Header().Set("ETag", `"e"`)
		_, _ = io.WriteString(w, "data")
	})
	if got, info, err := read(t, s, name, 0, ""); err != nil || got != "data" || info.ETag != "e" || info.Size != 4 {
		t.Errorf("%q, %+v, %v", got, info, err)
	}
	if n := requests.Load(); n != object.Tries {
		t.Errorf("%d requests", n)
	}
	requests.Store(0)
	status = http.StatusForbidden
	if _, _, err := read(t, s, name, 0, ""); !errors.Is(err, object.ErrForbidden) || requests.Load() != 1 {
		t.Errorf("%d requests: %v", requests.Load(), err)
	}
}

// TestCanceled: a context that ends is what the error says, and not that the
// endpoint is to blame.
func TestCanceled(t *testing.T) {
	s := endpoint(t, time.Minute, untilGone)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for op, err := range everything(ctx, s) {
		var u *object.UnavailableError
		if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &u) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestEndlessList: listings that do not end by themselves do so here.
func TestEndlessList(t *testing.T) {
	var pages atomic.Int64
	for what, next := range map[string]func() string{
		"the same page": func() string { return "again" },
		"empty pages":   func() string { return fmt.Sprint(pages.Load()) },
	} {
		pages.Store(0)
		s := endpoint(t, time.Minute, func(w http.ResponseWriter, _ *http.Request) {
			pages.Add(1)
			_, _ = fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken></ListBucketResult>", next())
		})
		var last error
		for _, err := range s.List(t.Context(), name.Bucket, name.Key, "") {
			last = err
		}
		checkUnavailable(t, what, last)
		if n := pages.Load(); n > 200 {
			t.Errorf("%s: %d pages", what, n)
		}
	}
}
