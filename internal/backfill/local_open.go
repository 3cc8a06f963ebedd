package backfill

import (
	"context"
	"fmt"
	"os"

	"github.com/spillway-mq/spillway/internal/object"
)

// LocalFile is a file of this machine that a job is about, open for reading. It is a
// rows.File. Concurrent use is fine.
type LocalFile struct {
	file *os.File
	etag string
	size int64
}

// OpenLocal opens a file that has this ETag (FileETag). One that has another is
// object.ErrChanged, then and while it is read. Other errors are the file system's.
func OpenLocal(path, etag string) (*LocalFile, error) {
	info, err := os.Stat(path) // before opening: that of a pipe would wait
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, changedFile(path, etag, "no regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &LocalFile{file: file, etag: etag, size: info.Size()}
	if err := f.Check(context.Background()); err != nil {
		_ = file.Close()
		return nil, err
	}
	return f, nil
}

// Size is the size of the file that was meant.
func (f *LocalFile) Size() int64 { return f.size }

// ReadAt gives no bytes of a file that was written to meanwhile, as far as its time
// of change tells.
func (f *LocalFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.file.ReadAt(p, off)
	if changed := f.Check(context.Background()); changed != nil {
		return 0, changed
	}
	return n, err
}

// Check looks whether the file is still the one that was meant.
func (f *LocalFile) Check(context.Context) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if etag := FileETag(info); etag != f.etag {
		return changedFile(f.file.Name(), f.etag, etag)
	}
	return nil
}

// Close closes the file.
func (f *LocalFile) Close() error { return f.file.Close() }

func changedFile(path, want, found string) error {
	return fmt.Errorf("%s: %w: its ETag should be %q and is %q", path, object.ErrChanged, want, found)
}
