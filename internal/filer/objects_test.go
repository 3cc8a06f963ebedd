package filer_test

import (
	"context"
	"errors"
	"maps"
	pathpkg "path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

var amended = filer.ObjectName{Bucket: "objects", Key: "k"}

// meanwhile is what others do to an object between two tries of ours.
var meanwhile = map[string]func(*testing.T, *memfs.FS){
	"nothing": nil,
	"overwritten": func(t *testing.T, fs *memfs.FS) {
		if _, err := fs.PutObject(amended.Bucket, amended.Key, []byte("x"), nil); err != nil {
			t.Error(err)
		}
	},
	"deleted": func(t *testing.T, fs *memfs.FS) {
		if err := fs.DeleteObject(amended); err != nil {
			t.Error(err)
		}
	},
	"marked": func(t *testing.T, fs *memfs.FS) {
		c := fs.Client("other", nil)
		o, err := c.Look(t.Context(), amended)
		if err != nil {
			t.Error(err)
		}
		if err := c.Mark(t.Context(), o, "Other", "1"); err != nil {
			t.Error(err)
		}
	},
}

// TestAmend: whatever happens to the first three calls, and to the object after
// the first of them, the answer is true, and stays so.
func TestAmend(t *testing.T) {
	for what, change := range meanwhile {
		for _, value := range []string{"mine", ""} {
			sequences(3, func(seq []memfs.Fault) {
				synctest.Test(t, func(t *testing.T) { testAmend(t, what, change, value, seq) })
			})
		}
	}
}

func testAmend(t *testing.T, what string, change func(*testing.T, *memfs.FS), value string, seq []memfs.Fault) {
	fs := memfs.New()
	fs.MakeBucket(amended.Bucket, false)
	if _, err := fs.PutObject(amended.Bucket, amended.Key, []byte("x"), filer.Attrs{"Mark": "old"}); err != nil {
		t.Fatal(err)
	}
	calls := 0
	c := fs.Client("c", func(op memfs.Op) memfs.Fault {
		if op.Name != "Mark" && op.Name != "Look" || calls >= len(seq)+1 {
			return memfs.Fault{}
		}
		calls++
		if calls == 3 && change != nil { // 1 is the look-up below, 2 the first try
			change(t, fs)
		}
		if calls == 1 {
			return memfs.Fault{}
		}
		return seq[calls-2]
	})
	o, err := c.Look(t.Context(), amended)
	if err != nil {
		t.Fatal(err)
	}
	err = filer.Amend(t.Context(), c, o, "Mark", value)
	at, there := marksOf(t, fs)
	fs.Settle()
	after, thereAfter := marksOf(t, fs)
	if !maps.Equal(at, after) || there != thereAfter {
		t.Errorf("%s, %v: afterwards the attributes turned from %v to %v", what, seq, at, after)
	}
	has, ok := after["Mark"]
	done := has == value && ok == (value != "")
	switch {
	case err == nil && !done:
		t.Errorf("%s, %v: no error, and the attributes are %v", what, seq, after)
	case err != nil && !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound):
		t.Errorf("%s, %v: error %v", what, seq, err)
	case err != nil && (done && there || change == nil):
		t.Errorf("%s, %v: error %v, and the attributes are %v", what, seq, err, after)
	}
}

func marksOf(t *testing.T, fs *memfs.FS) (filer.Attrs, bool) {
	t.Helper()
	o, err := fs.Client("check", nil).Look(t.Context(), amended)
	if err != nil && !errors.Is(err, filer.ErrNotFound) {
		t.Fatal(err)
	}
	return o.Attrs, err == nil
}

// TestAmendGivesUp: an outcome that cannot be found out before the context ends
// is said to be unknown.
func TestAmendGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		fs.MakeBucket(amended.Bucket, false)
		if _, err := fs.PutObject(amended.Bucket, amended.Key, []byte("x"), nil); err != nil {
			t.Fatal(err)
		}
		o, err := fs.Client("ok", nil).Look(t.Context(), amended)
		if err != nil {
			t.Fatal(err)
		}
		down := errors.New("down")
		c := fs.Client("c", func(memfs.Op) memfs.Fault { return memfs.Fault{Before: down} })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := filer.Amend(ctx, c, o, "Mark", "x"); !errors.Is(err, down) || filer.Definite(err) {
			t.Errorf("error %v", err)
		}
	})
}

// FuzzPlace: whatever a name is, its place is in the folder of its bucket, or
// nowhere.
func FuzzPlace(f *testing.F) {
	for _, n := range []filer.ObjectName{
		{"bucket", "k", ""}, {"bucket", `a\..\b/`, "v"}, {"bucket", "a//../b", "../v"}, {"..", "k", ""}, {".x", "k", ""}, {"a/..", "..", "null"}, {"bucket", "/", ""},
		{"bucket", "k\x00", "\xff"}, {"bucket", "é/ 🐟/", "1"},
	} {
		f.Add(n.Bucket, n.Key, n.Version)
	}
	f.Fuzz(func(t *testing.T, bucket, key, version string) {
		p, err := filer.ObjectName{Bucket: bucket, Key: key}.Place()
		if err != nil {
			if !errors.Is(err, filer.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		paths := []string{p.Path, p.Versions}
		if path, err := p.Version(version); err == nil {
			paths = append(paths, path)
		} else if !errors.Is(err, filer.ErrInvalid) {
			t.Fatal(err)
		}
		for _, path := range paths {
			rest, inside := strings.CutPrefix(path, "/buckets/"+bucket+"/")
			if !inside || rest == "" || strings.Contains(bucket, "/") || bucket[0] == '.' || path != pathpkg.Clean(path) {
				t.Errorf("%q, %q, %q is at %q", bucket, key, version, path)
			}
		}
	})
}
