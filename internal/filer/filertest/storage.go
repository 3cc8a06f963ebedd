package filertest

import (
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
)

// uploadAs: settings that every filer can meet change nothing about the bytes,
// and those that mean nothing are refused.
func uploadAs(_ *testing.T, e *env) {
	data := random(100_000)
	for i, how := range []filer.Storage{{}, {Replication: "000"}, {Fsync: true}, {Replication: "000", Fsync: true}} {
		b, err := e.UploadAs(e.ctx, e.path("f"), data, how)
		e.ok(err)
		f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{b}}
		p := e.path(string(rune('a' + i)))
		e.ok(e.Create(e.ctx, p, f))
		e.wantBytes(e.lookup(p), 0, data)
	}
	for _, bad := range []string{"1", "0001", "00x", "999", "-01"} {
		_, err := e.UploadAs(e.ctx, e.path("f"), data, filer.Storage{Replication: bad})
		e.want(err, filer.ErrInvalid)
	}
	e.ok(filer.TryStorage(e.ctx, e, e.path("f"), filer.Storage{Replication: "000", Fsync: true}))
	e.wantNames(e.list(e.root, "", 0), "a", "b", "c", "d")
}

// nothingExpires: without rules there are none, whether the folder exists or not.
func nothingExpires(t *testing.T, e *env) {
	e.create(e.path("f"), "x")
	for _, dir := range []string{e.root, e.path("nothing/here"), "/buckets/no-such-bucket/x", "/buckets", "/elsewhere"} {
		if rules, err := e.Expiries(e.ctx, dir); err != nil || len(rules) > 0 {
			t.Errorf("%s expires by %v, error %v", dir, rules, err)
		}
	}
	e.ok(filer.CheckExpiry(e.ctx, e, e.root, e.path("nothing")))
}
