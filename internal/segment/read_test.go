package segment

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func mustRead(t *testing.T, top *Topic, from ReadPosition) *Reader {
	t.Helper()
	r, err := top.Read(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReadPositions(t *testing.T) {
	fs := memfs.New()
	top, segs := newTopic(t, fs, 1)
	mustAppend(t, segs[0], input(t, "a", 1, 3))
	mustAppend(t, segs[0], input(t, "a", 4, 6))
	all := values(t, mustRead(t, top, nil))
	if len(all) != 6 {
		t.Fatalf("read %q", all)
	}
	// Stop after each record, print, parse, go on.
	for stop := 1; stop <= 6; stop++ {
		r := mustRead(t, top, nil)
		n := 0
		for _, err := range r.Next(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == stop {
				break
			}
		}
		p, err := ParseReadPosition(r.Position().String())
		if err != nil || !maps.Equal(p, r.Position()) {
			t.Fatalf("%v became %v, error %v", r.Position(), p, err)
		}
		if got := values(t, mustRead(t, top, p)); !slices.Equal(got, all[stop:]) {
			t.Errorf("after %d: read %q", stop, got)
		}
		if got := values(t, r); !slices.Equal(got, all[stop:]) {
			t.Errorf("the same reader after %d: read %q", stop, got)
		}
	}
	latest, err := top.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, top, latest)
	if got := values(t, r); len(got) > 0 {
		t.Errorf("after the latest: read %q", got)
	}
	mustAppend(t, segs[0], input(t, "a", 7, 7))
	if got := values(t, r); len(got) != 1 {
		t.Errorf("what was added: read %q", got)
	}
	if _, err := top.Read(t.Context(), ReadPosition{"00000000-00-elsewhere": 1}); !errors.Is(err, ErrForeignPosition) {
		t.Errorf("foreign position: error %v", err)
	}
	for _, s := range []string{"", "v2", "v1,x", "v1,x=", "v1,=1", "v1,x=-1", "x=1"} {
		if _, err := ParseReadPosition(s); err == nil {
			t.Errorf("%q was taken", s)
		}
	}
}

func TestReadSince(t *testing.T) {
	fs := memfs.New()
	top, segs := newTopic(t, fs, 1)
	mustAppend(t, segs[0], input(t, "a", 1, 3))
	mustAppend(t, segs[0], input(t, "a", 4, 6))
	for n := range 8 {
		r, err := top.ReadSince(t.Context(), noon.Add(time.Duration(n)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if got := values(t, r); len(got) != min(6, 7-n) {
			t.Errorf("since %d s: read %q", n, got)
		}
	}
}

func TestReadDamage(t *testing.T) {
	for name, damage := range map[string]func(fs *memfs.FS, path string, e filer.Entry) error{
		"bit flip": func(fs *memfs.FS, path string, _ filer.Entry) error { return fs.Corrupt(path) },
		"missing": func(fs *memfs.FS, path string, _ filer.Entry) error {
			return fs.Client("x", nil).Delete(t.Context(), path, "")
		},
		"other content": func(fs *memfs.FS, path string, e filer.Entry) error {
			return fs.Client("x", nil).Update(t.Context(), path, e.ID, filer.File{ID: e.ID, Attrs: e.Attrs, Content: []byte("Obj\x01")})
		},
		"lost bytes": func(fs *memfs.FS, path string, _ filer.Entry) error { return fs.LoseBlobs(path) },
	} {
		fs := memfs.New()
		top, segs := newTopic(t, fs, 1)
		mustAppend(t, segs[0], input(t, "a", 1, 2))
		c := mustAppend(t, segs[0], input(t, "a", 3, 4)).Chunk
		mustAppend(t, segs[0], input(t, "a", 5, 6))
		path := segs[0].log.Path(c.Entry.N)
		e, err := fs.Client("x", nil).Lookup(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if err := damage(fs, path, e); err != nil {
			t.Fatal(err)
		}
		checkDamage(t, name, mustRead(t, top, nil), path)
	}
}

func checkDamage(t *testing.T, name string, r *Reader, path string) {
	t.Helper()
	n := 0
	var got error
	for _, err := range r.Next(t.Context()) {
		if err != nil {
			got = err
			break
		}
		n++
	}
	var bad *ChunkError
	switch {
	case name == "missing": // seen in the listing, before anything is yielded
		if n != 0 || !errors.Is(got, commitlog.ErrWentBack) {
			t.Errorf("%s: read %d records, error %v", name, n, got)
		}
	case n != 2:
		t.Errorf("%s: read %d records", name, n)
	case name == "lost bytes":
		if !errors.Is(got, filer.ErrNotFound) {
			t.Errorf("%s: error %v", name, got)
		}
	case !errors.As(got, &bad) || bad.Path != path || !errors.Is(got, filer.ErrCorrupt):
		t.Errorf("%s: error %v", name, got)
	}
}
