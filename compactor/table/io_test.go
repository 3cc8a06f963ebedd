package table

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func newIO(t *testing.T, hook memfs.Hook) (*fileIO, *memfs.FS) {
	t.Helper()
	m := memfs.New()
	return &fileIO{ctx: t.Context(), store: m.Client("io", hook), warehouse: "warehouse", bucket: "spillway"}, m
}

// TestFences: which URLs may be read, and which may be written and removed.
func TestFences(t *testing.T) {
	for url, want := range map[string]string{ // what may be done: r, w, both or nothing
		"s3://warehouse/ns/t/metadata/snap-1.avro":            "rw",
		"s3a://warehouse/ns/t/metadata/v1.metadata.json":      "rw",
		"s3://warehouse/ns/t/metadata/v1.gz.metadata.json":    "rw",
		"s3://warehouse/ns/t/metadata/50%25 off+?#.avro":      "rw",
		"s3://warehouse/ns/t/data/x.parquet":                  "r",
		"s3://warehouse/ns/t/data/x.avro":                     "r",
		"s3://warehouse/ns/t/metadata/x.parquet":              "r",
		"s3://spillway/topics/t/i/data/s/f.parquet":           "r",
		"s3://spillway/topics/t/i/metadata/f.avro":            "r",
		"s3://other/ns/t/metadata/snap-1.avro":                "",
		"s3://warehouse/../other/metadata/snap-1.avro":        "",
		"s3://warehouse/ns/../../other/metadata/snap-1.avro":  "",
		"s3://warehouse/ns//metadata/snap-1.avro":             "",
		"s3://warehouse/ns/./metadata/snap-1.avro":            "",
		"s3://warehouse/ns/t/metadata/\n.avro":                "",
		"s3://warehouse":                                      "",
		"s3://warehouse/":                                     "",
		"s3:///warehouse/x":                                   "",
		"file:///buckets/warehouse/ns/t/metadata/snap-1.avro": "",
		"/buckets/warehouse/ns/t/metadata/snap-1.avro":        "",
		"http://warehouse/ns/t/metadata/snap-1.avro":          "",
		"": "",
		"s3://warehouse/ns/" + strings.Repeat("x", 300) + "/a":   "",
		"s3://" + strings.Repeat("x", 5000) + "/metadata/a.avro": "",
	} {
		f, m := newIO(t, nil)
		_, readErr := f.Open(url)
		writeErr := f.WriteFile(url, []byte("x"))
		_, createErr := f.Create(url)
		removeErr := f.Remove(url)
		read := errors.Is(readErr, fs.ErrNotExist) // it looked
		write := writeErr == nil
		if read != strings.Contains(want, "r") || write != strings.Contains(want, "w") || (removeErr == nil) != write || (createErr == nil) != write {
			t.Errorf("%q: open %v, write %v, create %v, remove %v; want %q", url, readErr, writeErr, createErr, removeErr, want)
		}
		if paths := m.Paths(); len(paths) > 0 {
			t.Errorf("%q left %v", url, paths)
		}
	}
}

// TestFiles writes and reads files of all kinds of sizes.
func TestFiles(t *testing.T) {
	for _, size := range []int{0, 1, filer.InlineLimit, filer.InlineLimit + 1, wholeFile, wholeFile + 1, 5<<20 + 3} {
		f, m := newIO(t, nil)
		data := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		const url = "s3://warehouse/ns/t/metadata/m.avro"
		w, err := f.Create(url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.ReadFrom(bytes.NewReader(data[:size/2])); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data[size/2:]); err != nil {
			t.Fatal(err)
		}
		if len(m.Paths()) > 0 {
			t.Error("it is there before it is closed")
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Fatal(err)
		}
		if got, err := f.ReadFile(url); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
		opened, err := f.Open(url)
		if err != nil {
			t.Fatal(err)
		}
		if err := iotest.TestReader(opened, data); err != nil && size < wholeFile {
			t.Errorf("%d bytes: %v", size, err)
		}
		if info, err := opened.Stat(); err != nil || info.Size() != int64(size) || info.Name() != "m.avro" {
			t.Errorf("%d bytes: %v, %v", size, info, err)
		}
		if err := f.WriteFile(url, []byte("other")); !errors.Is(err, filer.ErrExists) {
			t.Errorf("written twice: %v", err)
		}
		if err := errors.Join(f.Remove(url), f.Remove(url)); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
}

// TestFileReadsWhatItNeeds: of a large data file ReadAt fetches only what is asked for.
func TestFileReadsWhatItNeeds(t *testing.T) {
	opened := 0
	f, m := newIO(t, func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" {
			opened++
		}
		return memfs.Fault{}
	})
	data := bytes.Repeat([]byte("0123456789"), 300_000)
	const at = "/buckets/spillway/topics/t/i/data/s/f.parquet"
	blobs, err := filer.UploadParts(t.Context(), m.Client("other", nil), at, data)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := filer.Create(t.Context(), f.store, at, filer.File{ID: filer.NewID(), Blobs: blobs}); err != nil {
		t.Fatal(err)
	}
	file, err := f.Open("s3://" + strings.TrimPrefix(at, bucketsDir))
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 8)
	if n, err := file.ReadAt(p, int64(len(data)-4)); n != 4 || !errors.Is(err, io.EOF) || string(p[:4]) != "6789" {
		t.Errorf("at the end: %d %q, %v", n, p[:n], err)
	}
	if n, err := file.ReadAt(p, 2_500_000); n != 8 || err != nil || string(p) != "01234567" {
		t.Errorf("in the middle: %d %q, %v", n, p[:n], err)
	}
	if n, err := file.ReadAt(p, int64(len(data))); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %d, %v", n, err)
	}
	if opened != 2 {
		t.Errorf("it read %d times", opened)
	}
}

// TestMetadataIsBounded: a file that says that it is huge is not read, and nothing
// huge is collected.
func TestMetadataIsBounded(t *testing.T) {
	f, _ := newIO(t, nil)
	huge := &file{io: f, url: "x", entry: filer.Entry{Path: "/buckets/warehouse/t/metadata/x.avro", Size: 1 << 40}}
	if _, err := io.ReadAll(huge); !errors.Is(err, filer.ErrInvalid) {
		t.Errorf("reading it: %v", err)
	}
	w, err := f.Create("s3://warehouse/ns/t/metadata/m.avro")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReadFrom(zeros{}); !errors.Is(err, filer.ErrInvalid) {
		t.Errorf("collecting without end: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
