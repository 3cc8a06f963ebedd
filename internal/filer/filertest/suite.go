// Package filertest is the conformance suite of [filer.Store]. Every
// implementation passes it, the fake as well as the real one; a behaviour that
// is not in the suite is not promised.
package filertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
)

const (
	// racers is how many writers race for one file.
	racers = 50
	// eventually bounds the wait for what a filer does in the background.
	eventually = 30 * time.Second
)

// Run tests a Store. Open is called once for each part of the suite, which then
// works in a folder of its own and removes it.
func Run(t *testing.T, open func(t *testing.T) filer.Store) {
	t.Helper()
	parts := []struct {
		name string
		run  func(*testing.T, *env)
	}{
		{"create then look up", createLookup},
		{"create is exclusive", createExclusive},
		{"blob of a refused create stays", loserKeepsBlob},
		{"create on what is there", createOnExisting},
		{"appenders race for numbers", appendersRace},
		{"update is conditional", updateConditional},
		{"updates lose nothing", updatesRace},
		{"update frees blobs", updateFrees},
		{"update keeps blobs", updateKeeps},
		{"delete is conditional", deleteConditional},
		{"delete frees blobs", deleteFrees},
		{"delete and tree", deleteTree},
		{"list in order", listOrder},
		{"list in pages", listPages},
		{"list describes", listDescribes},
		{"list has a default limit", listDefault},
		{"attributes", attributes},
		{"content sizes", contentSizes},
		{"blob sizes", blobSizes},
		{"several blobs, any offset", blobOffsets},
		{"discard", discard},
		{"data is not kept", dataNotKept},
		{"names", names},
		{"invalid paths", invalidPaths},
		{"invalid files", invalidFiles},
		{"ended contexts", endedContexts},
		{"read your writes", readYourWrites},
		{"times", times},
		{"storage settings", uploadAs},
		{"nothing expires", nothingExpires},
	}
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.run(t, newEnv(t, open(t)))
		})
	}
}

// env is a Store and a folder in it.
type env struct {
	filer.Store
	t    *testing.T
	ctx  context.Context
	root string
}

func newEnv(t *testing.T, s filer.Store) *env {
	e := &env{Store: s, t: t, ctx: t.Context(), root: "/buckets/conformance/" + filer.Token(12)}
	t.Cleanup(func() {
		if err := s.DeleteTree(context.WithoutCancel(e.ctx), e.root); err != nil {
			t.Errorf("clean up: %v", err)
		}
	})
	return e
}

func (e *env) path(name string) string { return e.root + "/" + name }

// create makes a file with inline content and returns its ID.
func (e *env) create(path, content string) string {
	e.t.Helper()
	f := filer.File{ID: filer.NewID(), Content: []byte(content)}
	e.ok(e.Create(e.ctx, path, f))
	return f.ID
}

func (e *env) upload(path string, data []byte) filer.Blob {
	e.t.Helper()
	b, err := e.Upload(e.ctx, path, data)
	e.ok(err)
	if b.ID == "" || b.Size != int64(len(data)) {
		e.t.Fatalf("uploaded %d bytes, got blob %+v", len(data), b)
	}
	return b
}

func (e *env) lookup(path string) filer.Entry {
	e.t.Helper()
	got, err := e.Lookup(e.ctx, path)
	e.ok(err)
	return got
}

// read returns an entry's bytes from off.
func (e *env) read(entry filer.Entry, off int64) ([]byte, error) {
	r, err := e.Open(e.ctx, entry, off)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	return data, errors.Join(err, r.Close())
}

func (e *env) wantBytes(entry filer.Entry, off int64, want []byte) {
	e.t.Helper()
	got, err := e.read(entry, off)
	e.ok(err)
	if !bytes.Equal(got, want) {
		e.t.Fatalf("read %s from %d: %d bytes that differ from the %d wanted", entry.Path, off, len(got), len(want))
	}
}

func (e *env) ok(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

func (e *env) want(err, target error) {
	e.t.Helper()
	if !errors.Is(err, target) {
		e.t.Fatalf("got error %v, want %v", err, target)
	}
}

func (e *env) wantFile(path, id, content string) {
	e.t.Helper()
	got := e.lookup(path)
	if got.ID != id || string(got.Content) != content || got.IsDir {
		e.t.Fatalf("%s is %+v, want ID %s with content %q", path, got, id, content)
	}
}

func (e *env) wantAttrs(got, want filer.Attrs) {
	e.t.Helper()
	if !maps.Equal(got, want) {
		e.t.Fatalf("attributes are %v, want %v", got, want)
	}
}

// wantGone waits until the bytes of an entry as it was found are gone.
func (e *env) wantGone(entry filer.Entry) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, eventually)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		_, err := e.read(entry, 0)
		if errors.Is(err, filer.ErrNotFound) {
			return
		}
		select {
		case <-ctx.Done():
			e.t.Fatalf("bytes of %s are still there, reading them gives error %v", entry.Path, err)
		case <-tick.C:
		}
	}
}

// together runs n functions at once.
func (e *env) together(n int, do func(i int) error) {
	e.t.Helper()
	start := make(chan struct{})
	var g errgroup.Group
	for i := range n {
		g.Go(func() error { <-start; return do(i) })
	}
	close(start)
	e.ok(g.Wait())
}

// random gives bytes that depend on the size only and do not compress.
func random(size int) []byte {
	var seed [32]byte
	copy(seed[:], fmt.Sprint(size))
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(data) // never fails
	return data
}
