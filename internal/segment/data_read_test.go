package segment

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestReadCompacted: whatever is compacted, and trimmed, a reader gets the same
// records, from every position, and so do items of a segment.
func TestReadCompacted(t *testing.T) {
	for _, perFile := range []int{2, 1000} {
		f := newFamily(t, 3, 3, 3)
		p := packer{perFile: perFile}
		paused := f.paused()
		for _, seg := range f.segs[:2] {
			p.compact(t, seg)
			f.checkAll()
			trimAll(t, seg)
			f.checkAll()
		}
		if got := values(t, mustRead(t, f.topic, mustLatest(t, f.topic))); len(got) > 0 {
			t.Errorf("after the latest: %q", got)
		}
		for i, r := range paused {
			f.same(readAll(t, r), f.items[i+1:])
		}
		clean(t, f.fs)
		f.deleteAll()
	}
}

// paused is readers that have read one record, two, and so on.
func (f *family) paused() (readers []*Reader) {
	f.Helper()
	for stop := 1; stop < len(f.items); stop++ {
		r := mustRead(f.T, f.topic, nil)
		n := 0
		for _, err := range r.Next(f.Context()) {
			if err != nil {
				f.Fatal(err)
			}
			if n++; n == stop {
				break
			}
		}
		readers = append(readers, r)
	}
	return readers
}

// deleteAll deletes the topic, and checks that nothing of it is left.
func (f *family) deleteAll() {
	f.Helper()
	if err := testStore(f.fs, nil).DeleteTopic(f.Context(), "orders", noon); err != nil {
		f.Fatal(err)
	}
	for _, path := range f.fs.Paths() {
		if strings.HasPrefix(path, f.topic.Dir()) {
			f.Errorf("%s is left", path)
		}
	}
	if n := f.fs.Blobs(); n > 0 {
		f.Errorf("%d blobs are left", n)
	}
	for _, err := range f.segs[0].Items(f.Context(), 0) {
		if !errors.Is(err, ErrNoTopic) {
			f.Errorf("reading a deleted topic: error %v", err)
		}
	}
}

// TestOnlyKey: records of one key, whether they are in chunks or in files, with
// positions that go on.
func TestOnlyKey(t *testing.T) {
	for _, perFile := range []int{1, 4, 1000} {
		f := newFamily(t, 3, 4, 5)
		for _, seg := range f.segs[:2] {
			for _, key := range [][]byte{[]byte("key1"), {}, nil, []byte("none")} {
				want := slices.DeleteFunc(slices.Clone(f.items), func(i Item) bool { return !(&onlyKey{key}).takes(i.Key) })
				for stop := range len(want) + 1 {
					f.checkKey(key, want, stop)
				}
			}
			packer{perFile: perFile}.compact(t, seg)
			trimAll(t, seg)
		}
	}
}

func (f *family) checkKey(key []byte, want []Item, stop int) {
	f.Helper()
	r := mustRead(f.T, f.topic, nil)
	r.OnlyKey(key)
	var got []Item
	for item, err := range r.Next(f.Context()) {
		if err != nil {
			f.Fatal(err)
		}
		if got = append(got, item); len(got) == stop {
			break
		}
	}
	again := mustRead(f.T, f.topic, r.Position())
	again.OnlyKey(key)
	f.same(append(slices.Clone(got), readAll(f.T, again)...), want)
	f.same(append(got, readAll(f.T, r)...), want)
}

// checkAll reads from every position, and every segment from every offset.
func (f *family) checkAll() {
	f.Helper()
	for stop := 1; stop <= len(f.items); stop++ {
		r := mustRead(f.T, f.topic, nil)
		var got []Item
		for item, err := range r.Next(f.Context()) {
			if err != nil {
				f.Fatal(err)
			}
			if got = append(got, item); len(got) == stop {
				break
			}
		}
		f.same(append(slices.Clone(got), readAll(f.T, mustRead(f.T, f.topic, r.Position()))...), f.items)
		f.same(append(got, readAll(f.T, r)...), f.items)
	}
	for _, seg := range f.segs {
		all := f.of(seg)
		for from := range len(all) + 1 {
			var got []Item
			for item, err := range f.fresh(seg).Items(f.Context(), uint64(from)) {
				if err != nil {
					f.Fatal(err)
				}
				got = append(got, item)
			}
			f.same(got, all[from:])
		}
	}
}

func mustLatest(t *testing.T, top *Topic) ReadPosition {
	t.Helper()
	p, err := top.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestSinceCompacted: reading since a time begins at the same record, in chunks, in
// chunks and files, and in files alone.
func TestSinceCompacted(t *testing.T) {
	f := newFamily(t, 3, 4, 5)
	check := func() {
		for n := -1; n <= len(f.items)+1; n++ {
			for _, half := range []time.Duration{0, time.Second / 2} {
				since := noon.Add(time.Duration(n)*time.Second + half)
				r, err := f.topic.ReadSince(f.Context(), since)
				if err != nil {
					t.Fatal(err)
				}
				want := slices.DeleteFunc(slices.Clone(f.items), func(i Item) bool { return i.Time.Before(since) })
				f.same(readAll(t, r), want)
			}
		}
	}
	for _, seg := range f.segs[:2] {
		check()
		packer{perFile: 3}.compact(t, seg)
		check()
		trimAll(t, seg)
	}
	check()
}

// TestDropped: what an operator gave up is told, each time anew, and never passed
// over silently; what comes after it can be read.
func TestDropped(t *testing.T) {
	f := newFamily(t, 2, 4, 3)
	var chunks []Chunk
	for c, err := range f.segs[0].Chunks(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		chunks = append(chunks, c)
	}
	for _, c := range chunks[1:3] {
		if err := f.fs.Corrupt(c.Entry.Path); err != nil {
			t.Fatal(err)
		}
	}
	p := packer{perFile: 2}
	for _, c := range chunks[1:3] {
		p.drop = append(p.drop, DroppedRange{c.Base, c.End() - 1, "damaged"})
	}
	p.compact(t, f.segs[0])
	from, to := chunks[1].Base, chunks[3].Base
	f.checkDropped(from, to)
	trimAll(t, f.segs[0])
	f.checkDropped(from, to)
}

// TestFirstEntryLost: also a segment whose first chunk is gone, entry and all, can be
// compacted, once an operator has given its records up.
func TestFirstEntryLost(t *testing.T) {
	f := newFamily(t, 2, 4, 3)
	seg := f.segs[0]
	first, err := seg.ChunkAt(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	p := packer{perFile: 2, drop: []DroppedRange{{0, first.End() - 1, "damaged"}}}
	m, err := p.pack(t.Context(), seg)
	if err == nil {
		err = f.fs.Client("x", nil).Delete(t.Context(), first.Entry.Path, "")
	}
	if err == nil {
		_, err = seg.CreateManifest(t.Context(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	f.checkDropped(0, first.End())
	trimAll(t, seg)
	f.checkDropped(0, first.End())
}

func (f *family) checkDropped(from, to uint64) {
	f.Helper()
	for at := range to {
		r := mustRead(f.T, f.topic, ReadPosition{f.segs[0].ID: at})
		want := slices.Clone(f.items[min(at, from):from])
		if at >= from {
			want = nil
		}
		for range 2 {
			got, err := itemsUntil(f.T, r)
			f.same(got, want)
			trimmed, ok := errors.AsType[*TrimmedError](err)
			if !ok || *trimmed != (TrimmedError{f.segs[0].ID, max(at, from), to, "damaged"}) {
				f.Fatalf("at %d: error %v", at, err)
			}
			want = nil
		}
		r.Skip(&TrimmedError{Segment: f.segs[0].ID, Next: to})
		f.same(readAll(f.T, r), f.items[to:])
	}
}

func itemsUntil(t *testing.T, r *Reader) (items []Item, err error) {
	t.Helper()
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
	return items, nil
}

// TestDataDamage: a data file that is missing or damaged is named, and stops the
// reader where it is.
func TestDataDamage(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*memfs.FS, string) error
		want   error
	}{
		"missing": {func(fs *memfs.FS, path string) error { return fs.Client("x", nil).Delete(t.Context(), path, "") }, filer.ErrNotFound},
		"bit flip": {func(fs *memfs.FS, path string) error {
			return redoFile(t, fs, path, func(f *filer.File) { f.Content[20] ^= 1 })
		}, filer.ErrCorrupt},
		"other digest": {func(fs *memfs.FS, path string) error {
			return redoFile(t, fs, path, func(f *filer.File) { f.Attrs[filer.AttrDigest] = DataFileDigest([32]byte{1}) })
		}, filer.ErrCorrupt},
		"cut": {func(fs *memfs.FS, path string) error {
			return redoFile(t, fs, path, func(f *filer.File) { f.Content = f.Content[1:] })
		}, filer.ErrCorrupt},
		"other bytes": {func(fs *memfs.FS, path string) error {
			return redoFile(t, fs, path, func(f *filer.File) { clear(f.Content) })
		}, filer.ErrCorrupt},
		"a folder": {func(fs *memfs.FS, path string) error {
			c := fs.Client("x", nil)
			return errors.Join(c.Delete(t.Context(), path, ""), c.Create(t.Context(), path+"/x", filer.File{ID: filer.NewID()}))
		}, filer.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFamily(t, 2, 4, 5)
			m := packer{perFile: 3}.compact(t, f.segs[0])
			i := 1 + slices.IndexFunc(m.Files[1:], func(f DataFile) bool { return f.From.Before(f.To) })
			bad := m.Files[i]
			path := f.segs[0].DataPath(bad.Name)
			if err := c.damage(f.fs, path); err != nil {
				t.Fatal(err)
			}
			f.checkAll() // the chunks are there
			trimAll(t, f.segs[0])
			got, err := itemsUntil(t, mustRead(t, f.topic, nil))
			f.same(got, f.items[:len(got)])
			file, ok := errors.AsType[*DataFileError](err)
			if !ok || file.Path != path || !errors.Is(err, c.want) || len(got) < int(m.Files[i-1].Last) || len(got) > int(bad.Last) {
				t.Errorf("read %d items, error %v", len(got), err)
			}
			r := mustRead(t, f.topic, ReadPosition{f.segs[0].ID: bad.Last + 1})
			f.same(readAll(t, r), f.items[bad.Last+1:])
			if _, err := f.topic.ReadSince(t.Context(), bad.To.Add(-time.Millisecond)); !errors.As(err, &file) || !errors.Is(err, c.want) {
				t.Errorf("since: error %v", err)
			}
		})
	}
}

// redoFile changes a file.
func redoFile(t *testing.T, fs *memfs.FS, path string, change func(*filer.File)) error {
	t.Helper()
	c := fs.Client("x", nil)
	e, err := c.Lookup(t.Context(), path)
	if err != nil {
		return err
	}
	f := filer.File{ID: e.ID, Attrs: e.Attrs, Content: e.Content}
	change(&f)
	return c.Update(t.Context(), path, e.ID, f)
}

// TestOfAnotherSegment: files that were made of something else are found out.
func TestOfAnotherSegment(t *testing.T) {
	f := newFamily(t, 3, 3, 3)
	rows, m, err := packer{}.rowsOf(t.Context(), f.segs[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Segment = f.segs[1].ID
	}
	file, err := writeDataFile(t.Context(), f.segs[0], rows)
	if err == nil {
		m.Files, m.Records, m.Rows = []DataFile{file}, file.Records, file.Rows
		_, err = f.segs[0].CreateManifest(t.Context(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	trimAll(t, f.segs[0])
	if got, err := itemsUntil(t, mustRead(t, f.topic, nil)); len(got) > 0 || !errors.Is(err, filer.ErrCorrupt) {
		t.Errorf("read %d items, error %v", len(got), err)
	}
}
