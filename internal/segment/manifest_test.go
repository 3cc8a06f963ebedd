package segment

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

func aFile(first, last, rows uint64) DataFile {
	sum := sha256.Sum256(fmt.Append(nil, first, last, rows))
	return DataFile{
		Name: DataFileName(first, last, sum), Digest: DataFileDigest(sum), Size: 1000, First: first, Last: last,
		Records: last - first + 1, Rows: rows, From: noon.Add(time.Duration(first) * time.Second), To: noon.Add(time.Duration(last) * time.Second),
	}
}

// aManifest is of a segment that was trimmed below 5, with a batch in two files and
// a dropped range.
func aManifest() Manifest {
	return Manifest{
		Format: ManifestFormat, Segment: "00000001-00-example1", Base: 5, End: 40, Seal: 9,
		Records: 25, Rows: 127, Bytes: 4711, First: noon, Last: noon.Add(time.Minute), Created: noon.Add(time.Hour),
		Files:   []DataFile{aFile(5, 9, 5), aFile(10, 20, 50), aFile(20, 20, 42), aFile(20, 24, 25), aFile(35, 39, 5)},
		Dropped: []DroppedRange{{25, 29, "damaged"}, {30, 34, "damaged too: <&>"}},
	}
}

// TestManifestGolden: the bytes stay what they are, in whatever time zone they are made.
func TestManifestGolden(t *testing.T) {
	const golden = "testdata/manifest.golden"
	m := aManifest()
	got, err := encodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, zone := range []*time.Location{time.Local, time.FixedZone("x", 5*3600+1800)} {
		m.First, m.Created, m.Files[0].To = m.First.In(zone), m.Created.In(zone), m.Files[0].To.In(zone)
		if again, err := encodeManifest(m.normal()); err != nil || !bytes.Equal(got, again) {
			t.Errorf("in %s: %s, error %v", zone, again, err)
		}
	}
	_, back, err := parseManifest(got)
	if diff := cmp.Diff(aManifest(), back); err != nil || diff != "" {
		t.Errorf("error %v, -want +got:\n%s", err, diff)
	}
}

// TestHostileManifests: each of these has one thing wrong with it, and is not taken.
func TestHostileManifests(t *testing.T) {
	for want, spoil := range map[string]func(*Manifest){
		"format 0":                     func(m *Manifest) { m.Format = 0 },
		"format -1":                    func(m *Manifest) { m.Format = -1 },
		"begins at offset 41":          func(m *Manifest) { m.Base = 41 },
		"before the first":             func(m *Manifest) { m.Last = m.First.Add(-1) },
		"when it was created":          func(m *Manifest) { m.Created = time.Time{} },
		"the year 10000":               func(m *Manifest) { m.Files[0].To = time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)) },
		"the year -1":                  func(m *Manifest) { m.First = time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)) },
		"where 4 comes next":           func(m *Manifest) { m.Base = 4 },
		"where 6 comes next":           func(m *Manifest) { m.Base = 6 },
		"from 40 on":                   func(m *Manifest) { m.End = 41 },
		"a segment that ends at 39":    func(m *Manifest) { m.End = 39 },
		"it says 26":                   func(m *Manifest) { m.Records++ },
		"in 128":                       func(m *Manifest) { m.Rows++ },
		"where 10 comes next":          func(m *Manifest) { m.Files = slices.Delete(m.Files, 1, 2) },
		"35, where 25 comes next":      func(m *Manifest) { m.Dropped = nil },
		"30, where 25 comes next":      func(m *Manifest) { m.Dropped = m.Dropped[1:] },
		"named twice":                  func(m *Manifest) { m.Files = slices.Insert(m.Files, 3, m.Files[2]); m.Rows += 42 },
		"begins at offset 10, where 2": func(m *Manifest) { m.Files = slices.Insert(m.Files, 2, m.Files[1]) },
		"digest is \"\"":               func(m *Manifest) { m.Files[0].Digest = "" },
		"digest is \"sha1:":            func(m *Manifest) { m.Files[0].Digest = "sha1:00" + m.Files[0].Digest[len(digestName):] },
		"digest is \"SHA256:":          func(m *Manifest) { m.Files[0].Digest = "SHA256:" + m.Files[0].Digest[len(digestName):] },
		"digest is \"sha256:00":        func(m *Manifest) { m.Files[0].Digest = digestName + "00" },
		"name does not follow":         func(m *Manifest) { m.Files[0].Name = m.Files[1].Name },
		"\"../../../x\": its name":     func(m *Manifest) { m.Files[0].Name = "../../../x" },
		"it has 0 bytes":               func(m *Manifest) { m.Files[0].Size = 0 },
		"it has -1 bytes":              func(m *Manifest) { m.Files[0].Size = -1 },
		"it has 4 records":             func(m *Manifest) { m.Files[0].Records = 4 },
		"it has 0 records":             func(m *Manifest) { m.Files[0].Records = 0 },
		"5 records in 4 rows":          func(m *Manifest) { m.Files[0].Rows = 4 },
		"rows, which cannot be":        func(m *Manifest) { m.Files[0].Rows = 1 << 63; m.Rows += 1<<63 - 5 },
		"before its earliest":          func(m *Manifest) { m.Files[0].To = m.Files[0].From.Add(-1) },
		"for the reason \"\"":          func(m *Manifest) { m.Dropped[0].Reason = "" },
		"for the reason \"xxx":         func(m *Manifest) { m.Dropped[0].Reason = strings.Repeat("x", maxReason+1) },
		"for the reason \"\\xff":       func(m *Manifest) { m.Dropped[0].Reason = "\xff" },
		"drops the offsets 25 to 24":   func(m *Manifest) { m.Dropped[0].Last = 24 },
		"drops the offsets 25 to 1844": func(m *Manifest) { m.Dropped[0].Last = 1<<64 - 1 },
		"and at most":                  func(m *Manifest) { m.Dropped = make([]DroppedRange, MaxManifestFiles+1) },
	} {
		m := aManifest()
		m.Files, m.Dropped = slices.Clone(m.Files), slices.Clone(m.Dropped)
		spoil(&m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	m := aManifest()
	if err := m.Validate(); err != nil {
		t.Error(err)
	}
	empty := Manifest{Format: ManifestFormat, Segment: "x", Base: 7, End: 7, Created: noon}
	if err := empty.Validate(); err != nil {
		t.Error(err)
	}
}

// TestManifestFiles: what lies at the manifest's place is taken only if it is what
// was written; the error says what it is instead.
func TestManifestFiles(t *testing.T) {
	f, seg, m := manifestOf(t)
	if _, err := seg.Manifest(t.Context()); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("none: error %v", err)
	}
	m, err := seg.CreateManifest(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.fresh(seg).Manifest(t.Context()); err != nil || !cmp.Equal(got, m) {
		t.Errorf("error %v, %s", err, cmp.Diff(m, got))
	}
	good, err := encodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	redone := func(old, fresh string) []byte { return bytes.Replace(good, []byte(old), []byte(fresh), 1) }
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":           {[]byte{}, "unexpected end"},
		"null":            {[]byte("null"), "format 0"},
		"cut":             {good[:len(good)/2], "unexpected end"},
		"not JSON":        {[]byte("Obj\x01"), "invalid character"},
		"another segment": {redone(string(seg.ID), string(f.segs[1].ID)), "it is of the segment"},
		"files no list":   {redone(`"files":[`, `"files":{"a":[]},"x":[`), "a list was expected"},
		"a list as file":  {redone(`"files":[`, `"files":[[],`), "cannot unmarshal array"},
		"many files":      {redone(`"files":[`, `"files":[`+strings.Repeat(`{},`, MaxManifestFiles)), "a list of more than"},
		"deep":            {[]byte(strings.Repeat("[", 1<<20)), "depth"},
		"overflow":        {redone(`"base":0`, `"base":18446744073709551616`), "cannot unmarshal number"},
	} {
		f.put(seg.manifestPath(), c.data, digest(c.data))
		_, err := seg.Manifest(t.Context())
		bad, ok := errors.AsType[*ManifestError](err)
		if !ok || !errors.Is(err, filer.ErrCorrupt) || bad.Path != seg.manifestPath() || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	f.put(seg.manifestPath(), good, digest(good[1:]))
	if _, err := seg.Manifest(t.Context()); !errors.Is(err, filer.ErrCorrupt) || !strings.Contains(err.Error(), "digest") {
		t.Errorf("other bytes: error %v", err)
	}
	newer := redone(`"format":1`, `"format":2`)
	f.put(seg.manifestPath(), newer, digest(newer))
	trimmed := f.fresh(seg)
	if err := trimmed.Trim(t.Context(), m.Seal); err != nil {
		t.Fatal(err)
	}
	for _, err := range trimmed.Items(t.Context(), 0) {
		if later, ok := errors.AsType[*ManifestFormatError](err); !ok || later.Format != 2 || errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("newer: error %v", err)
		}
	}
}

// put replaces the content of a file.
func (f *family) put(path string, data []byte, digest string) {
	f.Helper()
	c := f.fs.Client("x", nil)
	if err := c.Delete(f.Context(), path, ""); err != nil {
		f.Fatal(err)
	}
	file := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{attrDigest: digest}, Content: data}
	if len(data) > filer.InlineLimit {
		blobs, err := filer.UploadParts(f.Context(), c, path, data)
		if err != nil {
			f.Fatal(err)
		}
		file.Content, file.Blobs = nil, blobs
	}
	if err := c.Create(f.Context(), path, file); err != nil {
		f.Fatal(err)
	}
}

// TestHugeManifest: one that is too large is refused by its size, and one as large as
// is allowed goes through the filer.
func TestHugeManifest(t *testing.T) {
	f, seg, m := manifestOf(t)
	m.Rows -= m.Files[len(m.Files)-1].Rows
	last := m.Files[len(m.Files)-1]
	m.Files = m.Files[:len(m.Files)-1]
	for i := range uint64(8000) { // a batch over so many files
		part := aFile(last.Last, last.Last, i+1)
		if i == 0 && last.First < last.Last {
			part = aFile(last.First, last.Last, last.Records)
		}
		m.Files, m.Rows = append(m.Files, part), m.Rows+part.Rows
	}
	m, err := seg.CreateManifest(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := seg.Manifest(t.Context()); err != nil || !cmp.Equal(got, m) {
		t.Errorf("error %v", err)
	}
	if err := f.fs.LoseBlobs(seg.manifestPath()); err != nil {
		t.Fatal(err)
	}
	if _, err := seg.Manifest(t.Context()); !errors.Is(err, filer.ErrCorrupt) || errors.Is(err, filer.ErrNotFound) {
		t.Errorf("without its bytes: error %v", err)
	}
	huge := bytes.Repeat([]byte(" "), maxManifest+1)
	f.put(seg.manifestPath(), huge, digest(huge))
	if _, err := seg.Manifest(t.Context()); !errors.Is(err, filer.ErrCorrupt) || !strings.Contains(err.Error(), "at most") {
		t.Errorf("too large: error %v", err)
	}
}

// TestManifestProperties: a random division of a segment is taken and comes back
// byte by byte; each offset is in one file, or in a dropped range.
func TestManifestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := Manifest{Format: ManifestFormat, Segment: topic.SegmentID(rapid.String().Draw(t, "segment")), Created: noon}
		m.Base = rapid.Uint64Range(0, 1<<62).Draw(t, "base")
		m.End = m.Base
		for range rapid.IntRange(0, 20).Draw(t, "parts") {
			n := rapid.Uint64Range(1, 100).Draw(t, "n")
			switch files := len(m.Files); {
			case rapid.IntRange(0, 4).Draw(t, "kind") == 0:
				m.Dropped = append(m.Dropped, DroppedRange{m.End, m.End + n - 1, rapid.StringN(1, 100, maxReason).Draw(t, "reason")})
			case files > 0 && m.Files[files-1].Last+1 == m.End && rapid.Bool().Draw(t, "shared"):
				m.Files = append(m.Files, aFile(m.End-1, m.End+n-1, n+1+uint64(files)))
				m.Records, m.Rows = m.Records+n, m.Rows+n+1+uint64(files)
			default:
				m.Files = append(m.Files, aFile(m.End, m.End+n-1, n))
				m.Records, m.Rows = m.Records+n, m.Rows+n
			}
			m.End += n
		}
		if m.Dropped != nil && m.Files == nil {
			m.Files = []DataFile{}
		}
		data, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		_, back, err := parseManifest(data)
		if err != nil {
			t.Fatalf("%v: %s", err, data)
		}
		again, err := encodeManifest(back)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("error %v\n%s\n%s", err, data, again)
		}
		for off := m.Base; off < m.End; off++ {
			file, in := back.FileAt(off)
			if d, dropped := back.droppedAt(off); in == dropped || in && (file.First > off || file.Last < off) || dropped && d.Last < off {
				t.Fatalf("offset %d: %v %v", off, file, d)
			}
		}
	})
}

// FuzzManifest: whatever the bytes are, they are refused with an error, or are a
// manifest whose bytes come back the same from then on.
func FuzzManifest(f *testing.F) {
	good, err := encodeManifest(aManifest())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"format":1,"segment":"x","created":"2026-01-02T03:04:05+05:30","files":null}`))
	f.Add([]byte(`{"format":1,"created":"2026-01-02T03:04:05Z","files":[{}],"dropped":[{"first":1}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, m, err := parseManifest(data)
		if err != nil {
			return
		}
		once, err := encodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(once) {
			t.Fatalf("no JSON: %s", once)
		}
		_, back, err := parseManifest(once)
		if err != nil {
			t.Fatalf("%v: %s", err, once)
		}
		twice, err := encodeManifest(back)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("error %v\n%s\n%s", err, once, twice)
		}
		for off := m.Base; off < m.End && off < m.Base+1000; off++ {
			_, in := m.FileAt(off)
			if _, dropped := m.droppedAt(off); in == dropped {
				t.Fatalf("offset %d is in a file: %v, and dropped: %v", off, in, dropped)
			}
		}
	})
}
