package filertest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
)

// markOnly: a mark comes and goes, and nothing else about an object changes.
func markOnly(e *objectEnv) {
	for _, versions := range []bool{false, true} {
		bucket := e.gate.MakeBucket(e.t, versions)
		for _, size := range []int{0, 10, 200_000, 20 << 20} {
			data := random(size)
			n := filer.ObjectName{Bucket: bucket, Key: fmt.Sprintf("dir/%d", size)}
			_, err := e.gate.Put(e.ctx, bucket, n.Key, data, filer.Attrs{"Sha256": "abc"})
			e.ok(err)
			before := e.seen(n)
			for _, step := range []struct{ name, value string }{
				{"Test", "one"}, {"Test", "two"}, {"Other", "1"}, {"Test", ""}, {"Test", ""}, {"Other", ""},
			} {
				want := maps.Clone(e.look(n).Attrs)
				if want[step.name] = step.value; step.value == "" {
					delete(want, step.name)
				}
				e.ok(e.Mark(e.ctx, e.look(n), step.name, step.value))
				o := e.agrees(n)
				e.wantAttrs(o.Attrs, want)
			}
			e.unchanged(before, e.seen(n))
			if size == 20<<20 {
				e.deletionsDone()
				e.unchanged(before, e.seen(n))
			}
		}
	}
}

// deletionsDone waits until the filer has deleted the bytes that it meant to.
func (e *objectEnv) deletionsDone() {
	e.t.Helper()
	path := e.path("deleted")
	e.ok(e.Create(e.ctx, path, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(path, random(70_000))}}))
	last := e.lookup(path)
	e.ok(e.Delete(e.ctx, path, last.ID))
	e.wantGone(last)
}

func (e *objectEnv) unchanged(before, after Seen) {
	e.t.Helper()
	if !bytes.Equal(before.Data, after.Data) {
		e.t.Errorf("S3 shows other bytes, %d before and %d now", len(before.Data), len(after.Data))
	}
	before.Data, after.Data = nil, nil // comparing them the slow way takes seconds
	if diff := cmp.Diff(before, after); diff != "" {
		e.t.Errorf("S3 shows another object:\n%s", diff)
	}
}

func markChanged(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	for what, change := range map[string]func(old filer.Object){
		"overwritten":         func(filer.Object) { e.put(bucket, "k", "other") },
		"the same, put again": func(filer.Object) { e.put(bucket, "k", "bytes") },
		"deleted":             func(filer.Object) { e.ok(e.gate.Delete(e.ctx, n)) },
		"deleted and put again": func(filer.Object) {
			e.ok(e.gate.Delete(e.ctx, n))
			e.put(bucket, "k", "bytes")
		},
		"marked":                  func(o filer.Object) { e.ok(e.Mark(e.ctx, o, "Test", "1")) },
		"marked with another one": func(o filer.Object) { e.ok(e.Mark(e.ctx, o, "Other", "1")) },
		"marked, and not any more": func(o filer.Object) {
			e.ok(e.Mark(e.ctx, o, "Test", "1"))
			e.ok(e.Mark(e.ctx, e.look(n), "Test", ""))
		},
		"an object below it": func(filer.Object) { e.put(bucket, "k/below", "x") },
	} {
		e.put(bucket, "k", "bytes")
		old := e.look(n)
		change(old)
		before, gone := e.Look(e.ctx, n)
		for _, value := range []string{"late", ""} {
			if err := e.Mark(e.ctx, old, "Test", value); !errors.Is(err, filer.ErrConflict) {
				e.t.Errorf("%s: mark %q gave error %v", what, value, err)
			}
		}
		after, stillGone := e.Look(e.ctx, n)
		if !maps.Equal(before.Attrs, after.Attrs) || (gone == nil) != (stillGone == nil) {
			e.t.Errorf("%s: a refused mark has changed %v (%v) to %v (%v)", what, before.Attrs, gone, after.Attrs, stillGone)
		}
		if gone == nil {
			e.ok(e.gate.Delete(e.ctx, n))
		}
		e.ok(e.gate.Delete(e.ctx, filer.ObjectName{Bucket: bucket, Key: "k/below"}))
	}
}

// markVersion: a mark is on one version, whichever is the current one.
func markVersion(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, true)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	one := filer.ObjectName{Bucket: bucket, Key: "k", Version: e.put(bucket, "k", "one")}
	current := e.look(n)
	two := filer.ObjectName{Bucket: bucket, Key: "k", Version: e.put(bucket, "k", "the other")}
	// It is still there, but S3 may have noted that it is not the current one.
	if err := e.Mark(e.ctx, current, "Test", "1"); err != nil {
		e.want(err, filer.ErrConflict)
		e.ok(e.Mark(e.ctx, e.look(one), "Test", "1"))
	}
	e.ok(e.Mark(e.ctx, e.look(two), "Test", "2"))
	e.wantAttrs(e.agrees(one).Attrs, filer.Attrs{"Test": "1"})
	e.wantAttrs(e.agrees(n).Attrs, filer.Attrs{"Test": "2"})
	old := e.look(one)
	e.ok(e.gate.Delete(e.ctx, one))
	e.want(e.Mark(e.ctx, old, "Test", "3"), filer.ErrConflict)
	e.missing(one)
}

func invalidMarks(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	e.put(bucket, "k", "x")
	o := e.look(n)
	for name, value := range map[string]string{
		"": "x", "Entry-Id": "x", "lower": "x", "With Space": "x", "With\r\nLine": "x", "Ünicode": "x", "A": "line\nbreak", "B": "ünicode", "C": strings.Repeat("x", 513),
	} {
		e.want(e.Mark(e.ctx, o, name, value), filer.ErrInvalid)
	}
	e.want(e.Mark(e.ctx, filer.Object{Name: n, Path: o.Path}, "Test", "x"), filer.ErrInvalid)
	e.ok(e.Mark(e.ctx, o, "Test", strings.Repeat("x", 512)))
}

// marksRace: each of many that want the same next mark wins once.
func marksRace(e *objectEnv) {
	const each = 5
	bucket := e.gate.MakeBucket(e.t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	e.put(bucket, "k", "x")
	before := e.seen(n)
	var conflicts atomic.Int64
	e.together(8, func(int) error {
		for left := each; left > 0; {
			o, err := e.Look(e.ctx, n)
			if err != nil {
				return err
			}
			err = e.Mark(e.ctx, o, "Count", o.Attrs["Count"]+"x")
			switch {
			case err == nil:
				left--
			case errors.Is(err, filer.ErrConflict):
				conflicts.Add(1)
			default:
				return err
			}
		}
		return nil
	})
	if got := len(e.look(n).Attrs["Count"]); got != 8*each {
		e.t.Errorf("%d marks, want %d (%d conflicts)", got, 8*each, conflicts.Load())
	}
	e.unchanged(before, e.seen(n))
}

// overwritesRace: an overwrite by S3 is never undone by a mark, and a mark that
// was set is never on an object that came later.
func overwritesRace(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	e.put(bucket, "k", "0")
	const writes = 60
	var done atomic.Bool
	var marks, conflicts atomic.Int64
	e.together(5, func(i int) error {
		if i == 0 {
			defer done.Store(true)
			for w := range writes {
				data := strings.Repeat(fmt.Sprint(w%10), 1+w*w*40) // inline, and in blobs
				if _, err := e.gate.Put(e.ctx, bucket, "k", []byte(data), nil); err != nil {
					return err
				}
				seen, err := e.gate.Get(e.ctx, n)
				if err != nil {
					return err
				}
				if string(seen.Data) != data {
					return fmt.Errorf("%d bytes after a put of %d", len(seen.Data), len(data))
				}
			}
			return nil
		}
		for !done.Load() {
			o, err := e.Look(e.ctx, n)
			if err != nil {
				return err
			}
			if was, ok := o.Attrs["Etag"]; ok && was != o.ETag {
				return fmt.Errorf("the mark of %s is on %s", was, o.ETag)
			}
			switch err := e.Mark(e.ctx, o, "Etag", o.ETag); {
			case err == nil:
				marks.Add(1)
			case errors.Is(err, filer.ErrConflict):
				conflicts.Add(1)
			default:
				return err
			}
		}
		return nil
	})
	e.t.Logf("%d marks, %d conflicts", marks.Load(), conflicts.Load())
	if marks.Load() == 0 {
		e.t.Error("no marks")
	}
	e.agrees(n)
}

func amend(e *objectEnv) {
	bucket := e.gate.MakeBucket(e.t, false)
	n := filer.ObjectName{Bucket: bucket, Key: "k"}
	e.put(bucket, "k", "x")
	o := e.look(n)
	e.ok(filer.Amend(e.ctx, e, o, "Test", "1"))
	e.ok(filer.Amend(e.ctx, e, o, "Test", "1")) // as after a lost reply
	e.want(filer.Amend(e.ctx, e, o, "Test", "2"), filer.ErrConflict)
	e.want(filer.Amend(e.ctx, e, o, "Test", ""), filer.ErrConflict)
	e.ok(filer.Amend(e.ctx, e, e.look(n), "Test", ""))
	e.ok(filer.Amend(e.ctx, e, o, "Test", ""))
	e.wantAttrs(e.look(n).Attrs, filer.Attrs{})
	e.ok(e.gate.Delete(e.ctx, n))
	e.ok(filer.Amend(e.ctx, e, o, "Test", ""))
	if err := filer.Amend(e.ctx, e, o, "Test", "3"); !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound) {
		e.t.Errorf("of a deleted object: %v", err)
	}
}

// deletesRace: what S3 has deleted is not brought back by a mark.
func deletesRace(e *objectEnv) {
	const rounds = 30
	for _, versions := range []bool{false, true} {
		bucket := e.gate.MakeBucket(e.t, versions)
		for range rounds {
			n := filer.ObjectName{Bucket: bucket, Key: "k", Version: e.put(bucket, "k", "x")}
			var gone atomic.Bool
			e.together(4, func(i int) error {
				if i == 0 {
					defer gone.Store(true)
					return e.gate.Delete(e.ctx, n)
				}
				for count := 0; !gone.Load(); count++ {
					o, err := e.Look(e.ctx, n)
					if err == nil {
						err = e.Mark(e.ctx, o, "Test", fmt.Sprint(i, count))
					}
					if err != nil && !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound) {
						return err
					}
				}
				return nil
			})
			e.missing(n)
		}
	}
}
