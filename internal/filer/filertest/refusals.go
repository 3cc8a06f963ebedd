package filertest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
)

// invalidPaths shows that no path leads anywhere else than it seems to.
func invalidPaths(t *testing.T, e *env) {
	e.create(e.path("f"), "x")
	paths := []string{
		"", "/", ".", "..", "relative", "buckets/x", e.root + "/", e.root + "//f", e.root + "/./f", e.root + "/..", "/..",
		e.root + "/../other", e.root + "/a/../f", e.root + "/.", "/../etc/f", e.root + "/nul\x00", e.root + "/line\nbreak",
		e.root + "/\x7f", e.root + "/bad\xffutf8", e.path(strings.Repeat("x", filer.MaxName+1)), e.path(strings.Repeat("x/", 2100) + "x"),
		e.path(strings.Repeat("é", filer.MaxName/2+1)), "/buckets/ab/f", "/buckets/UPPER/f", "/buckets/under_score/f", "/buckets/-dash/f",
		"/buckets/two..dots/f", "/buckets/10.0.0.1/f", "/buckets/" + strings.Repeat("x", 64) + "/f", "/buckets/日本語/f",
	}
	f := filer.File{ID: filer.NewID()}
	for _, p := range paths {
		calls := map[string]error{
			"Create":     e.Create(e.ctx, p, f),
			"Update":     e.Update(e.ctx, p, "x", f),
			"Delete":     e.Delete(e.ctx, p, ""),
			"DeleteTree": e.DeleteTree(e.ctx, p),
		}
		_, calls["Lookup"] = e.Lookup(e.ctx, p)
		_, calls["List"] = e.List(e.ctx, p, "", 0)
		_, calls["Upload"] = e.Upload(e.ctx, p, []byte("x"))
		_, calls["Expiries"] = e.Expiries(e.ctx, p)
		for name, err := range calls {
			if !errors.Is(err, filer.ErrInvalid) {
				t.Errorf("%s of %.60q: got error %v, want %v", name, p, err, filer.ErrInvalid)
			}
		}
	}
	e.wantNames(e.list(e.root, "", 0), "f")
}

func invalidFiles(t *testing.T, e *env) {
	b := filer.Blob{ID: "1,0123456789", Size: 3}
	files := map[string]filer.File{
		"no ID":              {Content: []byte("x")},
		"strange ID":         {ID: "line\nbreak"},
		"content and blobs":  {ID: "x", Content: []byte("x"), Blobs: []filer.Blob{b}},
		"huge content":       {ID: "x", Content: make([]byte, filer.MaxInline+1)},
		"blob without ID":    {ID: "x", Blobs: []filer.Blob{{Size: 1}}},
		"blob without size":  {ID: "x", Blobs: []filer.Blob{{ID: b.ID}}},
		"empty name":         {ID: "x", Attrs: filer.Attrs{"": "1"}},
		"lower case name":    {ID: "x", Attrs: filer.Attrs{"base": "1"}},
		"name with space":    {ID: "x", Attrs: filer.Attrs{"Base Offset": "1"}},
		"name with colon":    {ID: "x", Attrs: filer.Attrs{"Base:": "1"}},
		"name of the ID":     {ID: "x", Attrs: filer.Attrs{"Entry-Id": "1"}},
		"value with newline": {ID: "x", Attrs: filer.Attrs{"A": "1\r\nB: 2"}},
		"value not ASCII":    {ID: "x", Attrs: filer.Attrs{"A": "é"}},
	}
	id := e.create(e.path("there"), "x")
	for name, f := range files {
		if err := e.Create(e.ctx, e.path("new"), f); !errors.Is(err, filer.ErrInvalid) {
			t.Errorf("create with %s: got error %v, want %v", name, err, filer.ErrInvalid)
		}
		if err := e.Update(e.ctx, e.path("there"), id, f); !errors.Is(err, filer.ErrInvalid) {
			t.Errorf("update with %s: got error %v, want %v", name, err, filer.ErrInvalid)
		}
	}
	e.wantFile(e.path("there"), id, "x")
	e.wantNames(e.list(e.root, "", 0), "there")
}

// endedContexts shows that a call whose context has ended before has no effect,
// and that reading ends with the context.
func endedContexts(t *testing.T, e *env) {
	path := e.path("f")
	data := random(8 << 20)
	f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(path, data)}}
	e.ok(e.Create(e.ctx, path, f))
	entry := e.lookup(path)
	ctx, cancel := context.WithCancel(e.ctx)
	r, err := e.Open(ctx, entry, 0)
	e.ok(err)
	_, err = io.ReadFull(r, make([]byte, 10))
	e.ok(err)
	cancel()
	_, err = io.Copy(io.Discard, r)
	e.want(err, context.Canceled)
	e.ok(r.Close())

	other := filer.File{ID: filer.NewID(), Content: []byte("other")}
	calls := map[string]error{
		"Create":     e.Create(ctx, e.path("new"), other),
		"Update":     e.Update(ctx, path, f.ID, other),
		"Delete":     e.Delete(ctx, path, f.ID),
		"DeleteTree": e.DeleteTree(ctx, e.root),
	}
	_, calls["Lookup"] = e.Lookup(ctx, path)
	_, calls["List"] = e.List(ctx, e.root, "", 0)
	_, calls["Upload"] = e.Upload(ctx, path, data)
	_, calls["Expiries"] = e.Expiries(ctx, e.root)
	_, calls["Open"] = e.Open(ctx, entry, 0)
	calls["Discard"] = e.Discard(ctx, f.Blobs[0])
	for name, err := range calls {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want %v", name, err, context.Canceled)
		}
	}
	e.wantNames(e.list(e.root, "", 0), "f")
	e.wantBytes(e.lookup(path), 0, data)
}
