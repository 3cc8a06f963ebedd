package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	pollEvery  = 25 * time.Millisecond
	pollSlowly = 250 * time.Millisecond // where each try leaves a line in weed's log
	probeLimit = 5 * time.Second        // of one try
)

// weedMoved is what weed says when it does not use a port that it was told to.
const weedMoved = "is not available, finding alternative"

// probe is one condition of being ready.
type probe struct {
	what string
	try  func(context.Context) error
}

// errWarmUp is a master that waits for its topology, after a restart.
var errWarmUp = errors.New("SeaweedFS is warming up")

// awaitReady returns when a file can be created and deleted through the filer,
// which is later than the health checks say, and when all servers answer. If weed
// dies first, that is a [*DiedError].
func (w *weed) awaitReady(ctx context.Context) error {
	master, filer := "http://"+hostPort(w.ports.Master), "http://"+hostPort(w.ports.Filer)
	file := fmt.Sprintf("%s/buckets/%s/.ready-%d", filer, w.bucket, w.cmd.Process.Pid)
	for _, p := range []probe{
		{"the filer's health check", expect(http.MethodGet, filer+"/healthz", http.StatusOK)},
		{"the master's assignment of a volume", w.tellWarmUp(expect(http.MethodGet,
			master+"/dir/assign?collection="+w.bucket, http.StatusOK))},
		{"creating a file", expect(http.MethodPut, file, http.StatusCreated)},
		{"deleting a file", expect(http.MethodDelete, file, http.StatusNoContent)},
		{"the admin server's health check", expect(http.MethodGet, "http://"+hostPort(w.ports.Admin)+"/health", http.StatusOK)},
		{"the S3 health check", expect(http.MethodGet, "http://"+hostPort(w.ports.S3)+"/healthz", http.StatusOK)},
		// weed makes it some time after its servers answer.
		{"the table bucket", expect(http.MethodGet, filer+"/buckets/"+warehouse+"/?limit=1", http.StatusOK)},
	} {
		if err := w.await(ctx, p); err != nil {
			return err
		}
	}
	return w.checkPorts()
}

// checkPorts makes sure that weed listens where clients will look for it. A gRPC
// port that is taken it replaces by another, and only its log tells.
func (w *weed) checkPorts() error {
	if words := w.tail(1 << 20); strings.Contains(words, weedMoved) {
		return fmt.Errorf("a gRPC port was taken and weed uses another (%q); the end of %s:\n%s",
			weedMoved, w.spec.Log, w.tail(tailSize))
	}
	return nil
}

// await tries until the probe succeeds, the context ends or the child does.
func (c *child) await(ctx context.Context, p probe) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		tryCtx, cancel := context.WithTimeout(ctx, probeLimit)
		last := p.try(tryCtx)
		cancel()
		if last == nil {
			return nil
		}
		if errors.Is(last, errWarmUp) {
			tick.Reset(pollSlowly)
		}
		select {
		case <-c.gone:
			return c.diedError()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w, waiting for %s (last: %w); the end of %s:\n%s",
				c.spec.Name, context.Cause(ctx), p.what, last, c.spec.Log, c.tail(tailSize))
		case <-tick.C:
		}
	}
}

// tellWarmUp logs, once, why a restart takes so long.
func (w *weed) tellWarmUp(try func(context.Context) error) func(context.Context) error {
	told := false
	return func(ctx context.Context) error {
		err := try(ctx)
		if errors.Is(err, errWarmUp) && !told {
			told = true
			w.log.Info("weed is warming up: after a restart SeaweedFS takes no writes for 15 s")
		}
		return err
	}
}

// expect sends a small request and is satisfied with one status only.
func expect(method, url string, want int) func(context.Context) error {
	return func(ctx context.Context) error {
		var body io.Reader
		if method == http.MethodPut {
			body = strings.NewReader("ready\n")
		}
		req, err := http.NewRequestWithContext(ctx, method, url, body)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(io.LimitReader(resp.Body, 200))
		_ = resp.Body.Close()
		switch {
		case resp.StatusCode == want:
			return err
		case resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "warming up"):
			return errWarmUp
		default:
			return fmt.Errorf("%s %s: %s %s", method, url, resp.Status, text)
		}
	}
}
