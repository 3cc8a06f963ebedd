package filer_test

import (
	"errors"
	"path"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/filer"
)

// FuzzCheckPath: whatever is let through stays below where it seems to be.
func FuzzCheckPath(f *testing.F) {
	for _, seed := range []string{"/buckets/abc/x", "/a/../b", "/buckets/../etc", "//", "/a\x00", "/\xff", "a", "/buckets/a..b/c", "/é/日本"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, p string) {
		err := filer.CheckPath(p)
		if err != nil {
			if !errors.Is(err, filer.ErrInvalid) {
				t.Errorf("%q: error %v", p, err)
			}
			return
		}
		if path.Clean("/"+p) != p || p == "/" || !utf8.ValidString(p) || strings.ContainsAny(p, "\x00\n\r") {
			t.Errorf("%q was let through", p)
		}
		for name := range strings.SplitSeq(p[1:], "/") {
			if name == "" || name == "." || name == ".." || len(name) > filer.MaxName {
				t.Errorf("%q was let through", p)
			}
		}
	})
}

func TestCheckPathBuckets(t *testing.T) {
	for bucket, ok := range map[string]bool{
		"abc": true, "a-b.c9": true, "9xx": true, strings.Repeat("x", 63): true, ".uploads": true,
		"ab": false, strings.Repeat("x", 64): false, "Abc": false, "a_b": false, "ab-": false, ".": false, "a..b": false,
		"xn--x": false, "x-s3alias": false, "192.168.0.1": false, "filemeta": false, "é é": false,
	} {
		for _, p := range []string{"/buckets/" + bucket, "/buckets/" + bucket + "/x"} {
			if err := filer.CheckPath(p); (err == nil) != ok {
				t.Errorf("%s: error %v", p, err)
			}
		}
	}
	if err := filer.CheckPath("/elsewhere/A_B/x"); err != nil {
		t.Error(err)
	}
}
