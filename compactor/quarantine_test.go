package compactor

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// chunkPath is where the n-th chunk of a segment is.
func (w *world) chunkPath(t tester, id topic.SegmentID, n uint64) string {
	t.Helper()
	c, err := w.segment(t, id).ChunkAt(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	return c.Entry.Path
}

// damagedWorld has a sealed segment of three chunks of two records each, and a sound one.
func damagedWorld(t tester) (w *world, bad topic.SegmentID) {
	w = newWorld(t, 2)
	ids := w.live(t)
	for range 3 {
		w.add(t, ids[0], "l.")
	}
	w.add(t, ids[1], "..")
	w.roll(t, ids[0])
	w.roll(t, ids[1])
	return w, ids[0]
}

// attribute changes one of a file, and nothing else, not even its ID.
func (w *world) attribute(t tester, path, name, value string) {
	t.Helper()
	e, err := w.store.Filer.Lookup(t.Context(), path)
	must(t, err)
	e.Attrs[name] = value
	must(t, w.store.Filer.Update(t.Context(), path, e.ID, filer.File{ID: e.ID, Attrs: e.Attrs, Content: e.Content, Blobs: e.Blobs, MTime: e.MTime}))
}

func TestQuarantine(t *testing.T) {
	for name, damage := range map[string]struct {
		do, undo func(t tester, w *world, path string)
		reason   string
	}{
		"another byte": {
			do:     func(t tester, w *world, path string) { must(t, w.fs.Corrupt(path)) },
			undo:   func(t tester, w *world, path string) { must(t, w.fs.Corrupt(path)) }, // the same bit
			reason: "digest",
		},
		"the bytes are gone": {
			do:     func(t tester, w *world, path string) { must(t, w.fs.LoseBlobs(path)) },
			reason: "not found",
		},
		"the entry is gone": {
			do:     func(t tester, w *world, path string) { must(t, w.store.Filer.Delete(t.Context(), path, "")) },
			reason: "went back",
		},
		"another offset": {
			do:     func(t tester, w *world, path string) { w.attribute(t, path, "Base", "3") },
			undo:   func(t tester, w *world, path string) { w.attribute(t, path, "Base", "2") },
			reason: "starts at offset 3",
		},
		"no offset": {
			do:     func(t tester, w *world, path string) { w.attribute(t, path, "Base", "x") },
			undo:   func(t tester, w *world, path string) { w.attribute(t, path, "Base", "2") },
			reason: "attribute Base",
		},
		"one record less": {
			do:     func(t tester, w *world, path string) { w.attribute(t, path, "Count", "1") },
			undo:   func(t tester, w *world, path string) { w.attribute(t, path, "Count", "2") },
			reason: "holds 2 records",
		},
		"a fork": {
			do:     func(t tester, w *world, path string) { w.attribute(t, path, "Prev", "somebody") },
			reason: "forked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, bad := damagedWorld(t)
			path := w.chunkPath(t, bad, 1)
			damage.do(t, w, path)
			c := w.compactor()
			for range 3 {
				r := w.compact(t, c)
				if r.Quarantined != 1 {
					t.Errorf("%+v", r)
				}
				w.pass(2 * time.Minute)
			}
			q, err := w.segment(t, bad).Quarantine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if q.Chunk != 1 || q.Path != path || q.First != 2 || !strings.Contains(q.Reason, damage.reason) {
				t.Errorf("%+v", q)
			}
			if n := w.log.count("cannot be read, and is left"); n != 1 {
				t.Errorf("it was logged %d times", n)
			}
			sound := w.sealed(t)[1]
			if _, err := w.segment(t, sound).Manifest(t.Context()); err != nil {
				t.Errorf("the sound segment: %v", err)
			}
			if damage.undo == nil {
				return
			}
			damage.undo(t, w, path)
			if r := w.compact(t, c); r.Compacted != 1 || r.Quarantined != 0 {
				t.Errorf("mended: %+v", r)
			}
			w.finish(t)
			if _, err := w.segment(t, bad).Quarantine(t.Context()); err == nil {
				t.Error("it is still in quarantine")
			}
		})
	}
}

// What an operator gives up is left out, and the rest is there.
func TestDrop(t *testing.T) {
	for name, damage := range map[string]func(t tester, w *world, path string){
		"another byte":      func(t tester, w *world, path string) { must(t, w.fs.Corrupt(path)) },
		"the entry is gone": func(t tester, w *world, path string) { must(t, w.store.Filer.Delete(t.Context(), path, "")) },
	} {
		t.Run(name, func(t *testing.T) {
			w, bad := damagedWorld(t)
			damage(t, w, w.chunkPath(t, bad, 1))
			c := w.compactor()
			w.compact(t, c)
			s := w.segment(t, bad)
			q, err := s.Quarantine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			q.Drop = []segment.DroppedRange{{First: 2, Last: 2, Reason: "one of two"}}
			must(t, s.SetQuarantine(t.Context(), q))
			w.pass(2 * time.Hour)
			if r := w.compact(t, c); r.Quarantined != 1 || r.Compacted != 0 {
				t.Errorf("one of two records was given up: %+v", r)
			}
			q.Drop = []segment.DroppedRange{{First: 2, Last: 3, Reason: "broken"}}
			must(t, s.SetQuarantine(t.Context(), q))
			w.pass(2 * time.Hour)
			if r := w.compact(t, c); r.Quarantined != 0 || r.Compacted != 1 {
				t.Errorf("all of it was given up: %+v", r)
			}
			m, err := s.Manifest(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.Records != 4 || len(m.Files) != 2 || len(m.Dropped) != 1 || m.Dropped[0] != q.Drop[0] {
				t.Errorf("%+v", m)
			}
			w.pass(2 * time.Hour)
			if r := w.compact(t, c); r.Trimmed != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// The first chunk can be given up too.
func TestDropFirst(t *testing.T) {
	w, bad := damagedWorld(t)
	must(t, w.store.Filer.Delete(t.Context(), w.chunkPath(t, bad, 0), ""))
	s := w.segment(t, bad)
	must(t, s.SetQuarantine(t.Context(), segment.Quarantine{Drop: []segment.DroppedRange{{First: 0, Last: 1, Reason: "lost"}}}))
	if r := w.compact(t, w.compactor()); r.Quarantined != 0 || r.Compacted != 2 {
		t.Errorf("%+v", r)
	}
	m, err := s.Manifest(t.Context())
	must(t, err)
	if m.Base != 0 || m.Records != 4 || len(m.Dropped) != 1 || len(m.Files) != 1 || m.Files[0].First != 2 {
		t.Errorf("%+v", m)
	}
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spoiling is a filer that flips a bit of what is uploaded.
type spoiling struct{ filer.Store }

func (s spoiling) UploadAs(ctx context.Context, path string, data []byte, how filer.Storage) (filer.Blob, error) {
	data = bytes.Clone(data)
	data[len(data)/2] ^= 1
	return s.Store.UploadAs(ctx, path, data, how)
}

// A data file that is not what was written gets no manifest, and the chunks stay.
func TestReadBack(t *testing.T) {
	w := newWorld(t, 1)
	id := w.live(t)[0]
	w.add(t, id, "llll")
	w.roll(t, id)
	o := w.options(nil, nil)
	o.Store.Filer = spoiling{o.Store.Filer}
	c := New(o)
	if r := w.compact(t, c); r.Quarantined != 1 || r.Compacted != 0 {
		t.Errorf("%+v", r)
	}
	s := w.segment(t, id)
	q, err := s.Quarantine(t.Context())
	must(t, err)
	names := w.dataNames(t, s)
	if len(names) != 1 || q.Path != s.DataPath(names[0]) || q.Reason == "" {
		t.Errorf("%+v, and there is %q", q, names)
	}
	w.readable(t)
	must(t, w.store.Filer.Delete(t.Context(), q.Path, "")) // which is for people to do
	w.pass(time.Hour)
	if r := w.compact(t, w.compactor()); r.Compacted != 1 {
		t.Errorf("%+v", r)
	}
	w.finish(t)
}
