package filertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

// Gateway is how others put objects into a filer's buckets, by S3.
type Gateway interface {
	// MakeBucket makes a bucket of this test's own.
	MakeBucket(t *testing.T, versions bool) string
	// Put returns the version's id, if the bucket has versions. The attributes are
	// metadata whose names begin with [filer.AttrPrefix].
	Put(ctx context.Context, bucket, key string, data []byte, attrs filer.Attrs) (version string, err error)
	Delete(ctx context.Context, n filer.ObjectName) error
	// Get returns all that S3 tells of an object, without our attributes.
	Get(ctx context.Context, n filer.ObjectName) (Seen, error)
}

// Seen is an object as S3 shows it.
type Seen struct {
	Size     int64
	ETag     string
	Version  string
	Modified time.Time // whole seconds
	Data     []byte
	Rest     map[string]string // headers, metadata and tags: whatever else there is
}

// RunObjects tests the view of a filer's buckets, with what was put there through
// its gateway.
func RunObjects(t *testing.T, objects filer.Objects, store filer.Store, gateway Gateway) {
	t.Helper()
	for _, part := range []struct {
		name string
		run  func(*objectEnv)
	}{
		{"look as S3 does", lookAsS3},
		{"nothing there", nothingThere},
		{"odd keys", oddKeys},
		{"hostile names", hostileNames},
		{"keys with a slash at the end", folderKeys},
		{"versions", objectVersions},
		{"our own files", ownFiles},
		{"mark", markOnly},
		{"mark what has changed", markChanged},
		{"mark a version", markVersion},
		{"invalid marks", invalidMarks},
		{"marks race", marksRace},
		{"marks and overwrites race", overwritesRace},
		{"marks and deletes race", deletesRace},
		{"amend", amend},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.run(&objectEnv{Objects: objects, env: newEnv(t, store), gate: gateway})
		})
	}
}

type objectEnv struct {
	filer.Objects
	*env
	gate Gateway
}

func (e *objectEnv) put(bucket, key, data string) string {
	e.t.Helper()
	version, err := e.gate.Put(e.ctx, bucket, key, []byte(data), nil)
	e.ok(err)
	return version
}

func (e *objectEnv) look(n filer.ObjectName) filer.Object {
	e.t.Helper()
	o, err := e.Look(e.ctx, n)
	e.ok(err)
	return o
}

func (e *objectEnv) seen(n filer.ObjectName) Seen {
	e.t.Helper()
	seen, err := e.gate.Get(e.ctx, n)
	e.ok(err)
	return seen
}

// agrees checks that an object is as S3 shows it.
func (e *objectEnv) agrees(n filer.ObjectName) filer.Object {
	e.t.Helper()
	o, seen := e.look(n), e.seen(n)
	if o.Size != seen.Size || o.ETag != seen.ETag || !o.MTime.Truncate(time.Second).Equal(seen.Modified) {
		e.t.Errorf("%s: found %+v, S3 shows %+v", n, o, seen)
	}
	if n.Version == "" && o.Name.Version != seen.Version {
		e.t.Errorf("%s: found version %q, S3 shows %q", n, o.Name.Version, seen.Version)
	}
	return o
}

func (e *objectEnv) missing(n filer.ObjectName) {
	e.t.Helper()
	_, err := e.Look(e.ctx, n)
	e.want(err, filer.ErrNotFound)
	if errors.Is(err, filer.ErrNoBucket) {
		e.t.Errorf("%s: %v", n, err)
	}
}

func lookAsS3(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	for i, size := range []int{0, 10, 70_000, 300_000, 20 << 20} {
		n := filer.ObjectName{Bucket: bucket, Key: fmt.Sprintf("a/b/%d", i)}
		_, err := e.gate.Put(e.ctx, bucket, n.Key, random(size), filer.Attrs{"Sha256": "abc"})
		e.ok(err)
		o := e.agrees(n)
		if o.Name != n || !strings.HasPrefix(o.Path, "/buckets/"+bucket+"/") {
			e.t.Errorf("found %+v", o)
		}
		e.wantAttrs(o.Attrs, filer.Attrs{"Sha256": "abc"})
	}
}

func nothingThere(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	e.put(bucket, "dir/k", "x")
	for _, key := range []string{"no", "dir", "dir/", "dir/k/", "dir/k/below", "dir/k/below/"} {
		e.missing(filer.ObjectName{Bucket: bucket, Key: key})
	}
	for _, version := range []string{strings.Repeat("0", 32), "no-such-version"} {
		e.missing(filer.ObjectName{Bucket: bucket, Key: "dir/k", Version: version})
	}
	for _, version := range []string{"", filer.NullVersion, strings.Repeat("0", 32)} {
		_, err := e.Look(e.ctx, filer.ObjectName{Bucket: "no-" + bucket, Key: "k", Version: version})
		e.want(err, filer.ErrNoBucket)
		e.want(err, filer.ErrNotFound)
	}
	for _, n := range foreignNames() {
		n.Bucket = "no-" + bucket
		_, err := e.Look(e.ctx, n)
		e.want(err, filer.ErrNoBucket)
	}
}

// foreignNames are names that objects of other endpoints can have, and those of a
// filer cannot.
func foreignNames() []filer.ObjectName {
	return []filer.ObjectName{
		{Key: strings.Repeat("k", 300)}, {Key: ".uploads/k"}, {Key: "/"}, {Key: "k", Version: "ab/cd+ef="}, {Key: "k/", Version: "abcd"},
		{Key: "k", Version: "ab cd"}, {Key: "k", Version: strings.Repeat("v", 300)},
	}
}

// oddKeys: each key names what S3 finds under it, and two that name one object
// there do so here.
func oddKeys(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	for i, key := range []string{
		"plain", "a+b c%2B.txt", "emoji 🐟/ÿ", "q?x=1&y#frag", "a%2F..%2Fb", "quotes \"'<>&;", "tilde~star*paren()!@$,:=[]{}^`",
		"dots/...and/.hidden", " space ends ", ".versions/x", "x.versions/y", "v_1", strings.Repeat("k", 255), strings.Repeat("é/", 341) + "x",
		"/leading", "two//slashes///", "three///slashes", `back\slash`, "dir/slash/",
	} {
		e.put(bucket, key, fmt.Sprintf("%0*d", i+1, i))
		if o := e.agrees(filer.ObjectName{Bucket: bucket, Key: key}); o.Size != int64(i+1) {
			e.t.Errorf("%q: found %+v", key, o)
		}
	}
	for key, same := range map[string]string{"/leading": "leading", "three///slashes": `/three/\slashes`, `back\slash`: "back/slash"} {
		if one, two := e.look(filer.ObjectName{Bucket: bucket, Key: key}), e.look(filer.ObjectName{Bucket: bucket, Key: same}); one.Path != two.Path {
			e.t.Errorf("%q is %s and %q is %s", key, one.Path, same, two.Path)
		}
	}
}

// hostileNames lead nowhere, and above all not out of the bucket.
func hostileNames(e *objectEnv) {
	bucket, other := e.gate.MakeBucket(e.t, false), e.gate.MakeBucket(e.t, false)
	e.put(bucket, "k", "x")
	e.put(other, "k", "x")
	for _, n := range []filer.ObjectName{
		{Bucket: bucket}, {Bucket: bucket, Key: "/"}, {Bucket: bucket, Key: `\\`}, {Key: "k"},
		{Bucket: bucket, Key: "."}, {Bucket: bucket, Key: ".."}, {Bucket: bucket, Key: "../" + other + "/k"},
		{Bucket: bucket, Key: `a\..\..\` + other + `\k`}, {Bucket: bucket, Key: "a/../k"}, {Bucket: bucket, Key: "./k"}, {Bucket: bucket, Key: "k/.."},
		{Bucket: bucket, Key: ".uploads/k"}, {Bucket: bucket, Key: "a\x00b"}, {Bucket: bucket, Key: "a\nb"}, {Bucket: bucket, Key: "\xff"},
		{Bucket: bucket, Key: strings.Repeat("k", 256)}, {Bucket: bucket, Key: strings.Repeat("k/", 4000)},
		{Bucket: "..", Key: "k"}, {Bucket: ".", Key: "k"}, {Bucket: "../" + bucket, Key: "k"}, {Bucket: bucket + "/..", Key: bucket + "/k"},
		{Bucket: ".system", Key: "k"}, {Bucket: bucket + "/k", Key: "x"}, {Bucket: strings.ToUpper(bucket), Key: "k"}, {Bucket: "a", Key: "k"},
		{Bucket: bucket, Key: "k", Version: "../k"}, {Bucket: bucket, Key: "k", Version: `..\k`}, {Bucket: bucket, Key: "k", Version: "/"},
		{Bucket: bucket, Key: "k", Version: "a\x00"}, {Bucket: bucket, Key: "k", Version: strings.Repeat("v", 300)},
	} {
		_, err := e.Look(e.ctx, n)
		e.want(err, filer.ErrInvalid)
		if len(err.Error()) > 2000 {
			e.t.Errorf("an error of %d bytes", len(err.Error()))
		}
	}
}

func folderKeys(e *objectEnv) {
	for _, versions := range []bool{false, true} {
		bucket := e.gate.MakeBucket(e.t, versions)
		slash := filer.ObjectName{Bucket: bucket, Key: "dir/"}
		e.put(bucket, "dir/", "folder")
		e.agrees(slash)
		e.put(bucket, "dir/below", "x")
		o := e.agrees(slash)
		e.ok(e.Mark(e.ctx, o, "Test", "1"))
		e.agrees(slash)
		e.agrees(filer.ObjectName{Bucket: bucket, Key: "dir/below"})
		e.wantAttrs(e.look(slash).Attrs, filer.Attrs{"Test": "1"})
	}
	bucket := e.gate.MakeBucket(e.t, false) // and an object below another one
	top := filer.ObjectName{Bucket: bucket, Key: "a"}
	e.put(bucket, "a", "top")
	before := e.look(top)
	e.put(bucket, "a/b", "below")
	e.agrees(filer.ObjectName{Bucket: bucket, Key: "a/b"})
	o := e.agrees(top)
	e.missing(filer.ObjectName{Bucket: bucket, Key: "a/"})
	if o.ETag != before.ETag || o.Size != before.Size {
		e.t.Errorf("found %+v, and before %+v", o, before)
	}
	e.ok(e.Mark(e.ctx, o, "Test", "1"))
	e.agrees(top)
	e.wantAttrs(e.look(top).Attrs, filer.Attrs{"Test": "1"})
}

func objectVersions(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, true)
	n := filer.ObjectName{Bucket: bucket, Key: "a/k"}
	var versions []string
	for i := range 3 {
		versions = append(versions, e.put(bucket, n.Key, strings.Repeat("x", i+1)))
		if o := e.agrees(n); o.Name.Version != versions[i] || o.Size != int64(i+1) {
			e.t.Errorf("version %d, %s: found %+v", i, versions[i], o)
		}
	}
	for i, version := range versions {
		v := filer.ObjectName{Bucket: bucket, Key: n.Key, Version: version}
		if o := e.agrees(v); o.Name != v || o.Size != int64(i+1) {
			e.t.Errorf("version %d: found %+v", i, o)
		}
		// What spells a version's path is no object.
		_, err := e.Look(e.ctx, filer.ObjectName{Bucket: bucket, Key: n.Key + ".versions/v_" + version})
		e.want(err, filer.ErrNotFound)
	}
	n.Version = versions[2]
	e.ok(e.gate.Delete(e.ctx, n))
	e.missing(n)
	n.Version = ""
	if o := e.agrees(n); o.Name.Version != versions[1] {
		e.t.Errorf("after the deletion of the last version: found %+v", o)
	}
	e.ok(e.gate.Delete(e.ctx, n)) // puts a marker
	e.missing(n)
	n.Version = filer.NullVersion
	e.missing(n)
	n.Version = versions[0]
	e.agrees(n)
}

func ownFiles(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	path := "/buckets/" + bucket + "/topics/t/file"
	id := filer.NewID()
	e.ok(e.Create(e.ctx, path, filer.File{ID: id, Content: []byte("ours")}))
	_, err := e.Look(e.ctx, filer.ObjectName{Bucket: bucket, Key: "topics/t/file"})
	e.want(err, filer.ErrInvalid)
	e.put(bucket, "k", "theirs")
	f := filer.File{ID: filer.NewID()}
	e.want(e.Update(e.ctx, "/buckets/"+bucket+"/k", id, f), filer.ErrConflict)
	e.want(e.Create(e.ctx, "/buckets/"+bucket+"/k", f), filer.ErrExists)
}
