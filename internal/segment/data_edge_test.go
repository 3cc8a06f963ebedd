package segment

import (
	"errors"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
)

// TestCompactedAfterTrim: of a segment that was trimmed before it was compacted, the
// manifest's base is the earliest record, and who wants an earlier one is told so.
func TestCompactedAfterTrim(t *testing.T) {
	f := newFamily(t, 2, 4, 3)
	seg := f.segs[0]
	c, err := seg.ChunkAt(t.Context(), 2)
	if err == nil {
		err = seg.Trim(t.Context(), 2)
	}
	if err != nil {
		t.Fatal(err)
	}
	base := c.Base
	check := func() {
		t.Helper()
		f.same(readAll(t, mustRead(t, f.topic, nil)), f.items[base:])
		for at := range base {
			r := mustRead(t, f.topic, ReadPosition{seg.ID: at})
			got, err := itemsUntil(t, r)
			trimmed, ok := errors.AsType[*TrimmedError](err)
			if len(got) > 0 || !ok || *trimmed != (TrimmedError{Segment: seg.ID, At: at, Next: base}) {
				t.Fatalf("at %d: read %d, error %v", at, len(got), err)
			}
			r.Skip(trimmed)
			f.same(readAll(t, r), f.items[base:])
		}
		for _, from := range []uint64{0, base} {
			r, err := f.topic.ReadSince(t.Context(), f.items[from].Time)
			if err != nil {
				t.Fatal(err)
			}
			f.same(readAll(t, r), f.items[base:])
		}
	}
	check()
	if m := (packer{perFile: 2}).compact(t, seg); m.Base != base {
		t.Errorf("base %d, want %d", m.Base, base)
	}
	check()
	trimAll(t, seg)
	check()
}

// TestManifestIsGone: a reader that knows a manifest which is gone with its files, as
// retention would have it, is told so, and goes on with the children.
func TestManifestIsGone(t *testing.T) {
	f := newFamily(t, 2, 4, 3)
	seg := f.segs[0]
	m := packer{perFile: 2}.compact(t, seg)
	trimAll(t, seg)
	r := mustRead(t, f.topic, nil)
	for _, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	c := f.fs.Client("x", nil)
	if err := errors.Join(c.Delete(t.Context(), seg.manifestPath(), ""), c.DeleteTree(t.Context(), seg.DataDir())); err != nil {
		t.Fatal(err)
	}
	got, err := itemsUntil(t, r)
	trimmed, ok := errors.AsType[*TrimmedError](err)
	if len(got) > 0 || !ok || *trimmed != (TrimmedError{Segment: seg.ID, At: 1, Next: m.End}) {
		t.Fatalf("read %d, error %v", len(got), err)
	}
	r.Skip(trimmed)
	f.same(readAll(t, r), f.items[m.End:])
	f.same(readAll(t, mustRead(t, f.topic, nil)), f.items[m.End:])
}

// TestManifestAgainstSeal: a manifest that was tampered with cannot make a reader pass
// over records, or take it past the seal.
func TestManifestAgainstSeal(t *testing.T) {
	for name, tamper := range map[string]func(*Manifest){
		"shorter": func(m *Manifest) {
			last := m.Files[len(m.Files)-1]
			m.Files, m.End = m.Files[:len(m.Files)-1], last.First
			m.Records, m.Rows = m.Records-last.Records, m.Rows-last.Rows
		},
		"longer": func(m *Manifest) {
			m.Dropped = append(m.Dropped, DroppedRange{m.End, m.End, "x"})
			m.End++
		},
	} {
		f := newFamily(t, 2, 3, 1) // without batches of several rows
		seg := f.segs[0]
		m := packer{perFile: 1}.compact(t, seg)
		trimAll(t, seg)
		tamper(&m)
		data, err := encodeManifest(m)
		if err == nil {
			err = m.Validate()
		}
		if err != nil {
			t.Fatal(err)
		}
		f.put(seg.manifestPath(), data, digest(data))
		r := mustRead(t, f.topic, nil)
		got, err := itemsUntil(t, r)
		if trimmed, ok := errors.AsType[*TrimmedError](err); ok && name == "longer" {
			r.Skip(trimmed)
			_, err = itemsUntil(t, r)
		}
		if len(got) > int(m.End) || !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("%s: read %d, error %v", name, len(got), err)
		}
	}
}

// TestHoleInFile: a file that lacks its first record, whatever its manifest says, is
// found out before anything of it is read.
func TestHoleInFile(t *testing.T) {
	f := newFamily(t, 2, 3, 3)
	seg := f.segs[0]
	rows, m, err := packer{}.rowsOf(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	file, err := writeDataFile(t.Context(), seg, rows[1:])
	if err != nil {
		t.Fatal(err)
	}
	c := f.fs.Client("x", nil)
	e, err := c.Lookup(t.Context(), seg.DataPath(file.Name))
	if err != nil {
		t.Fatal(err)
	}
	hexes, _ := cutDigest(file.Digest)
	file.Name, file.First, file.Records, file.Rows = fmt.Sprintf("%020d-%020d-%s.parquet", 0, file.Last, hexes[:16]), 0, file.Records+1, file.Rows+1
	m.Files, m.Records, m.Rows = []DataFile{file}, file.Records, file.Rows
	if err := c.Create(t.Context(), seg.DataPath(file.Name), filer.File{ID: filer.NewID(), Attrs: e.Attrs, Content: e.Content}); err != nil {
		t.Fatal(err)
	}
	if _, err := seg.CreateManifest(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	trimAll(t, seg)
	if got, err := itemsUntil(t, mustRead(t, f.topic, nil)); len(got) > 0 || !errors.Is(err, filer.ErrCorrupt) {
		t.Errorf("read %d items, error %v", len(got), err)
	}
}
