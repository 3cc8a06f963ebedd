package main

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestPatience: a command gives up when nothing was answered for its timeout, not
// when answers are refusals or failures are few, and its error has the exit code
// of a server that is away.
func TestPatience(t *testing.T) {
	const path = "/buckets/spillway/x"
	refused := errors.New("connection refused")
	for _, c := range []struct {
		name  string
		fault func(n int) memfs.Fault
		calls int
		gone  bool
	}{
		{"all is well", func(int) memfs.Fault { return memfs.Fault{} }, 100, false},
		{"never an answer", func(int) memfs.Fault { return memfs.Fault{Before: refused} }, 100, true},
		{"now and then", func(n int) memfs.Fault {
			if n%10 == 0 {
				return memfs.Fault{}
			}
			return memfs.Fault{Before: refused}
		}, 100, false},
		{"refusals are answers", func(int) memfs.Fault { return memfs.Fault{Before: filer.ErrReadOnly} }, 100, false},
		{"one call that hangs", func(int) memfs.Fault { return memfs.Fault{Delay: time.Hour} }, 1, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fs := memfs.New()
			if err := fs.Client("setup", nil).Create(t.Context(), path, filer.File{ID: filer.NewID(), Content: []byte("x")}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			p := &patientFiler{
				Store: fs.Client("c", func(o memfs.Op) memfs.Fault { return c.fault(o.N) }),
				name:  "f:1", limit: 30 * time.Second, giveUp: cancel,
			}
			for range c.calls {
				_, err := p.Lookup(ctx, path)
				if ctx.Err() != nil {
					break
				}
				if errors.Is(err, refused) && functions.ExitCode(explain(err)) != functions.ExitRetry {
					t.Errorf("%s: %v has exit code %d", c.name, err, functions.ExitCode(explain(err)))
				}
				<-time.After(time.Second)
			}
			if gone := is[*functions.RetryError](context.Cause(ctx)); gone != c.gone {
				t.Errorf("%s: gave up: %t, want %t", c.name, gone, c.gone)
			}
			cancel(nil)
		})
	}
}

// TestReadingIsMarked: a body that breaks off is a server that went away, and not
// a fault of the data.
func TestReadingIsMarked(t *testing.T) {
	broken := errors.New("connection reset")
	fs := memfs.New()
	setup := fs.Client("setup", nil)
	blob, err := setup.Upload(t.Context(), "/buckets/spillway/x", make([]byte, 1000))
	if err != nil {
		t.Fatal(err)
	}
	if err := setup.Create(t.Context(), "/buckets/spillway/x", filer.File{ID: filer.NewID(), Blobs: []filer.Blob{blob}}); err != nil {
		t.Fatal(err)
	}
	p := &patientFiler{name: "f:1", limit: time.Minute, giveUp: func(error) {}, Store: fs.Client("c", func(o memfs.Op) memfs.Fault {
		if o.Name == "Read" {
			return memfs.Fault{Before: broken}
		}
		return memfs.Fault{}
	})}
	e, err := p.Lookup(t.Context(), "/buckets/spillway/x")
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Open(t.Context(), e, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(r)
	if !errors.Is(err, broken) || functions.ExitCode(explain(err)) != functions.ExitRetry {
		t.Errorf("%v, exit code %d", err, functions.ExitCode(explain(err)))
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
