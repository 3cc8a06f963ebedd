package backfill_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

func TestOpenLocal(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.ndjson")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	etag := backfill.FileETag(info)
	for p, want := range map[string]error{path: object.ErrChanged, dir: object.ErrChanged, filepath.Join(dir, "none"): fs.ErrNotExist} {
		if _, err := backfill.OpenLocal(p, "another"); !errors.Is(err, want) {
			t.Errorf("%s: %v", p, err)
		}
	}
	f, err := backfill.OpenLocal(path, etag)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if b, err := io.ReadAll(io.NewSectionReader(f, 0, f.Size())); err != nil || string(b) != "{}\n" {
		t.Errorf("%q, %v", b, err)
	}
	// One that takes its place leaves what is open as it is; one that is written to is
	// another.
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); err != nil {
		t.Error(err)
	}
	if err := os.Chtimes(path+".old", time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if n, err := f.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, object.ErrChanged) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := f.Check(t.Context()); !errors.Is(err, object.ErrChanged) {
		t.Error(err)
	}
}
