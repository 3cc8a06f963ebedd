package object_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/object"
)

// oddKeys are keys that S3 takes and that something on the way may take amiss.
func oddKeys() []string {
	return []string{
		"plain", "a+b c%2B.txt", "emoji 🐟/ÿ", "trailing/slash/", "q?x=1&y#frag", "a%2F..%2Fb", "quotes \"'<>&;",
		"tilde~star*paren()!@$,:=[]{}|^`", "dots/...and/.hidden", " space ends ",
		strings.Repeat(strings.Repeat("k", 255)+"/", 3) + strings.Repeat("k", 255) + "/", strings.Repeat("é/", 341) + "x",
	}
}

// TestOddKeys: what is put under any key is what is got, and nothing else.
func TestOddKeys(t *testing.T) {
	w := onWeed(t)
	for i, key := range oddKeys() {
		data := fmt.Sprintf("bytes of %d", i)
		put := w.put(t, key, data)
		got, info, err := read(t, w.Store, w.name(key), 0, put.ETag)
		if err != nil || got != data || info.Size != int64(len(data)) || info.ETag != put.ETag {
			t.Errorf("get %.50q: %q, %+v, %v", key, got, info, err)
		}
		if head, err := w.Head(t.Context(), w.bucket, key, ""); err != nil || head.ETag != put.ETag || head.Size != info.Size {
			t.Errorf("head %.50q: %+v, %v", key, head, err)
		}
	}
	want := oddKeys()
	slices.Sort(want)
	if got := w.keys(t); !slices.Equal(got, want) {
		t.Errorf("listed %q\nwant %q", got, want)
	}
}

func (w weed) keys(t *testing.T) (keys []string) {
	t.Helper()
	for o, err := range w.List(t.Context(), w.bucket, "", "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, o.Key)
	}
	slices.Sort(keys)
	return keys
}

// TestSeaweedKeys is what docs/FORMAT.md says about SeaweedFS's own view of keys.
func TestSeaweedKeys(t *testing.T) {
	w := onWeed(t)
	for key, same := range map[string]string{"/leading": "leading", "two//slashes": "two/slashes", `back\slash`: "back/slash"} {
		w.put(t, key, key)
		if got, _, err := read(t, w.Store, w.name(same), 0, ""); err != nil || got != key {
			t.Errorf("%s, put as %s: %q, %v", same, key, got, err)
		}
	}
	if got := w.keys(t); !slices.Equal(got, []string{"back/slash", "leading", "two/slashes"}) {
		t.Errorf("listed %q", got)
	}
	_, err := w.Put(t.Context(), w.name(strings.Repeat("k", 256)), strings.NewReader("x"), 1, object.PutOptions{})
	if !errors.Is(err, object.ErrInvalid) || !strings.Contains(err.Error(), "KeyTooLong") {
		t.Errorf("256 bytes between slashes: %v", err)
	}
	w.put(t, "dir/", strings.Repeat("x", 1024))
	if head, err := w.Head(t.Context(), w.bucket, "dir/", ""); err != nil || head.Size != 1024 {
		t.Errorf("1,024 bytes under a key that ends with a slash: %+v, %v", head, err)
	}
	w.put(t, "lost/", strings.Repeat("x", 1025))
	if head, err := w.Head(t.Context(), w.bucket, "lost/", ""); err == nil && head.Size == 1025 {
		t.Error("SeaweedFS keeps more than 1,024 bytes under such a key by now: say so in docs/FORMAT.md")
	}
}
