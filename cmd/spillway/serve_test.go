package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/ingest"
)

// TestHealthz: 200 while all is well, 503 with the reason on one line otherwise.
func TestHealthz(t *testing.T) {
	now := time.Now()
	h := ingest.NewHealth(func() time.Time { return now })
	ask := func(code int, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		healthz(h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", http.NoBody))
		if w.Code != code || w.Body.String() != body {
			t.Errorf("%d %q, want %d %q", w.Code, w.Body.String(), code, body)
		}
	}
	ask(200, "ok\n")
	h.Fault("filer", errors.New("dial:\nrefused"))
	ask(200, "ok\n")
	now = now.Add(31 * time.Second)
	ask(503, "filer has been failing for 31s: dial: refused\n")
	h.OK("filer")
	ask(200, "ok\n")
	h.Stopped("lane default.0", errors.New("it went back"))
	ask(503, "lane default.0 stopped: it went back\n")
}
