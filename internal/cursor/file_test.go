package cursor_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const statePath = "/buckets/cur/state.json"

type state struct {
	Name string            `json:"name"`
	Map  map[string]uint64 `json:"map"`
}

func TestEncodeIsDeterministic(t *testing.T) {
	const want = "{\n \"name\": \"<é>\",\n \"map\": {\n  \"a\": 1,\n  \"b\": 18446744073709551615,\n  \"c\": 3\n }\n}\n"
	for range 50 {
		got, err := cursor.Encode(state{"<é>", map[string]uint64{"c": 3, "a": 1, "b": 1<<64 - 1}})
		if err != nil || string(got) != want {
			t.Fatalf("got %s, error %v", got, err)
		}
	}
}

func TestSaveAndConflict(t *testing.T) {
	fs := memfs.New()
	f := cursor.At[state](fs.Client("c", nil), statePath)
	if _, _, err := f.Load(t.Context()); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("none: error %v", err)
	}
	v1, err := f.Create(t.Context(), state{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create(t.Context(), state{Name: "two"}); !errors.Is(err, filer.ErrExists) {
		t.Errorf("second create: error %v", err)
	}
	big := strings.Repeat("x", 3*filer.InlineLimit)
	v2, err := f.Save(t.Context(), state{Name: big}, v1)
	if err != nil {
		t.Fatal(err)
	}
	for _, late := range []string{"late", big + "late"} { // of the big one the bytes are there before it is refused
		if _, err := f.Save(t.Context(), state{Name: late}, v1); !errors.Is(err, filer.ErrConflict) {
			t.Errorf("stale save: error %v", err)
		}
		if _, err := f.Create(t.Context(), state{Name: late}); !errors.Is(err, filer.ErrExists) {
			t.Errorf("late create: error %v", err)
		}
	}
	if n := fs.Blobs(); n > 0 {
		t.Errorf("%d blobs that no file names", n)
	}
	if err := f.Delete(t.Context(), v1); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("stale delete: error %v", err)
	}
	got, version, err := f.Load(t.Context())
	if err != nil || got.Name != big || version != v2 {
		t.Errorf("loaded %d bytes as %s, error %v", len(got.Name), version, err)
	}
	if err := f.Delete(t.Context(), v2); err != nil || len(fs.Paths()) > 0 || fs.Blobs() > 0 {
		t.Errorf("after the deletion: %q, %d blobs, error %v", fs.Paths(), fs.Blobs(), err)
	}
	if p := fs.Problems(); len(p) > 0 {
		t.Error(p)
	}
}

func TestCorrupt(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"map":{"a":-1}}`, "\x00", `{"name":1}`, "{}{}"} {
		c := memfs.New().Client("c", nil)
		if err := c.Create(t.Context(), statePath, filer.File{ID: "1", Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
		_, _, err := cursor.At[state](c, statePath).Load(t.Context())
		if !errors.Is(err, filer.ErrCorrupt) || !strings.Contains(err.Error(), statePath) {
			t.Errorf("%q: error %v", content, err)
		}
	}
}

func TestLostReplies(t *testing.T) {
	for _, fault := range []memfs.Fault{{After: memfs.ErrLost}, {Before: errors.New("down")}, {Late: 30 * time.Millisecond}, {Hold: time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			fs := memfs.New()
			f := cursor.At[state](fs.Client("c", func(op memfs.Op) memfs.Fault {
				if op.N == 1 {
					return fault
				}
				return memfs.Fault{}
			}), statePath)
			v, err := f.Create(t.Context(), state{Name: "one"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = f.Save(t.Context(), state{Name: "two"}, v); err != nil {
				t.Fatal(err)
			}
			fs.Settle()
			if got, _, err := f.Load(t.Context()); err != nil || got.Name != "two" {
				t.Errorf("%+v: got %+v, error %v", fault, got, err)
			}
		})
	}
}

func TestSameBytes(t *testing.T) {
	read := func() []byte {
		c := memfs.New().Client("c", nil)
		if _, err := cursor.At[state](c, statePath).Create(t.Context(), state{"x", map[string]uint64{"b": 1, "a": 2}}); err != nil {
			t.Fatal(err)
		}
		e, err := c.Lookup(t.Context(), statePath)
		if err != nil {
			t.Fatal(err)
		}
		return e.Content
	}
	if !bytes.Equal(read(), read()) {
		t.Error("the bytes differ")
	}
}
