package table

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	iceio "github.com/apache/iceberg-go/io"

	"github.com/spillway-mq/spillway/internal/filer"
)

const (
	bucketsDir = "/buckets/"
	// maxMetadata bounds a file of a table's metadata that is read or written: it
	// is held in memory. Manifests are merged up to 8 MiB.
	maxMetadata = 64 << 20
	// fileTimeout bounds one operation on a file, with its retries.
	fileTimeout = 30 * time.Second
)

// FileError tells what could not be done with a file of a table.
type FileError struct {
	Op  string
	URL string
	Err error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.URL, e.Err) }

func (e *FileError) Unwrap() error { return e.Err }

// Is makes it match fs.ErrNotExist as iceberg-go expects.
func (e *FileError) Is(target error) bool {
	return target == fs.ErrNotExist && errors.Is(e.Err, filer.ErrNotFound)
}

// fileIO is how iceberg-go gets at files: by way of the filer, where s3://bucket/key
// is /buckets/bucket/key. It reads below the warehouse and the topics' bucket. It
// writes and removes metadata of tables below the warehouse, and nothing else: a
// table's metadata may have been written by anybody. It may be used concurrently.
type fileIO struct {
	ctx       context.Context // of the operation it was made for: iceberg-go's interface has none
	store     filer.Store
	warehouse string
	bucket    string
}

var (
	_ iceio.WriteFileIO = (*fileIO)(nil)
	_ iceio.ReadFileIO  = (*fileIO)(nil)
)

// locate gives the path of a URL that may be read. Keys in it are as they are, and
// not encoded.
func (f *fileIO) locate(name string) (bucket, at string, err error) {
	scheme, rest, _ := strings.Cut(name, "://")
	bucket, key, _ := strings.Cut(rest, "/")
	at = bucketsDir + bucket + "/" + key
	switch {
	case scheme != "s3" && scheme != "s3a", key == "":
		return "", "", fmt.Errorf("%w: it is no s3:// URL", filer.ErrInvalid)
	case bucket != f.warehouse && bucket != f.bucket:
		return "", "", fmt.Errorf("%w: it is neither in the warehouse nor in the topics' bucket", filer.ErrInvalid)
	}
	return bucket, at, filer.CheckPath(at)
}

// locateMetadata gives the path of a URL that may be written or removed.
func (f *fileIO) locateMetadata(name string) (string, error) {
	bucket, at, err := f.locate(name)
	switch {
	case err != nil:
		return "", err
	case bucket != f.warehouse:
		return "", fmt.Errorf("%w: it is not in the warehouse", filer.ErrReadOnly)
	case !isMetadata(at):
		return "", fmt.Errorf("%w: it is not a table's metadata", filer.ErrReadOnly)
	}
	return at, nil
}

// isMetadata tells whether a file is by its name one of those that describe a
// table: metadata, manifest lists, manifests. Data files are not.
func isMetadata(at string) bool {
	dir, name := path.Split(at)
	return strings.HasSuffix(dir, "/metadata/") && (strings.HasSuffix(name, ".avro") || strings.HasSuffix(name, ".metadata.json") ||
		strings.HasSuffix(name, ".metadata.json.gz") || strings.HasSuffix(name, ".gz.metadata.json"))
}

// do repeats an idempotent call for a while.
func (f *fileIO) do(op, name string, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(f.ctx, fileTimeout)
	defer cancel()
	if err := filer.Retry(ctx, call); err != nil {
		return &FileError{op, name, err}
	}
	return nil
}

// Open implements iceio.IO.
func (f *fileIO) Open(name string) (iceio.File, error) {
	_, at, err := f.locate(name)
	if err != nil {
		return nil, &FileError{"open", name, err}
	}
	var e filer.Entry
	err = f.do("open", name, func(ctx context.Context) (err error) {
		e, err = f.store.Lookup(ctx, at)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case e.IsDir:
		return nil, &FileError{"open", name, fmt.Errorf("%w: it is a directory", filer.ErrInvalid)}
	}
	return &file{io: f, url: name, entry: e}, nil
}

// ReadFile implements iceio.ReadFileIO.
func (f *fileIO) ReadFile(name string) ([]byte, error) {
	opened, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(opened)
	return data, errors.Join(err, opened.Close())
}

// Remove implements iceio.IO. A missing file is removed already.
func (f *fileIO) Remove(name string) error {
	at, err := f.locateMetadata(name)
	if err != nil {
		return &FileError{"remove", name, err}
	}
	return f.do("remove", name, func(ctx context.Context) error { return f.store.Delete(ctx, at, "") })
}

// WriteFile implements iceio.WriteFileIO. Names are unique, so a file that is
// there already is an error.
func (f *fileIO) WriteFile(name string, data []byte) error {
	at, err := f.locateMetadata(name)
	if err != nil {
		return &FileError{"write", name, err}
	}
	ctx, cancel := context.WithTimeout(f.ctx, fileTimeout)
	defer cancel()
	if err := create(ctx, f.store, at, data); err != nil {
		return &FileError{"write", name, err}
	}
	return nil
}

// create makes a file exclusively, inline if it is small.
func create(ctx context.Context, store filer.Store, at string, data []byte) error {
	file := filer.File{ID: filer.NewID()}
	if len(data) <= filer.InlineLimit {
		file.Content = data
	} else {
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			file.Blobs, err = filer.UploadParts(ctx, store, at, data)
			return err
		})
		if err != nil {
			return err
		}
	}
	_, err := filer.Create(ctx, store, at, file)
	return err
}

// Create implements iceio.WriteFileIO. The file is there once it is closed.
func (f *fileIO) Create(name string) (iceio.FileWriter, error) {
	if _, err := f.locateMetadata(name); err != nil {
		return nil, &FileError{"create", name, err}
	}
	return &writer{io: f, url: name}, nil
}
