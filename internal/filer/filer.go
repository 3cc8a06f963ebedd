// Package filer is the filer as this project needs it: small files with
// attributes, created exclusively or replaced by compare-and-swap, and bytes
// that are uploaded first and named by a file later.
//
// There is one seam, [Store], with two implementations: filer/seaweed (a real
// SeaweedFS filer) and filer/memfs (a fake that injects faults). Both pass
// filer/filertest. A Store is dumb: it tries once and reports what it knows.
// Whoever needs the outcome of a write whose reply was lost uses [Create] and
// [Replace] of this package, which settle it by reading back.
package filer

import (
	"context"
	"errors"
	"io"
	"path"
	"time"
)

// Errors that callers decide by. Every other error of a write means that its
// outcome is unknown: it may have taken effect, or may still do so later.
var (
	// ErrNotFound: no file or directory at the path.
	ErrNotFound = errors.New("not found")
	// ErrExists: an exclusive create met a file that is there already. This and
	// nothing else means that a create had no effect because somebody was first.
	ErrExists = errors.New("already exists")
	// ErrStray comes with ErrExists from [Create]: an earlier try had no answer, and
	// may still take effect should the file that was met be deleted. What it
	// names must not be named by anything else.
	ErrStray = errors.New("an unanswered request may still arrive")
	// ErrConflict: a conditional write or delete met a file with another ID.
	ErrConflict = errors.New("changed by somebody else")
	// ErrReadOnly: the filer refuses writes below this path (a storage rule, or
	// a bucket over its quota). Nothing was written.
	ErrReadOnly = errors.New("read-only")
	// ErrInvalid: the request can never succeed (a name that is too long, a
	// parent that is a file). Nothing was written.
	ErrInvalid = errors.New("invalid request")
	// ErrCorrupt: the bytes that were read are not those that were written.
	ErrCorrupt = errors.New("corrupt data")
)

// InlineLimit is the size in bytes up to which a file's content is kept in its
// metadata entry, which makes writing it one call. Above it, and for all chunks
// of data, bytes go to volume servers by [Store.Upload].
const InlineLimit = 64 << 10

// AttrPrefix starts the names of all our attributes, so that they show up in an
// S3 HEAD as user metadata. Store implementations add it when they write and
// take it off when they read; attributes without it are not ours and invisible.
const AttrPrefix = "X-Amz-Meta-Spillway-"

// Attrs are a file's attributes: names without [AttrPrefix] in canonical HTTP
// header form ("Entry-Id"), values of printable ASCII.
type Attrs map[string]string

// Blob names bytes on a volume server. It is opaque outside Store
// implementations; copies are cheap.
type Blob struct {
	ID    string // the volume file id, "3,01637037d6"
	Size  int64
	Extra any // what the implementation needs besides
}

// File is what is written: attributes, and either inline Content or Blobs in
// order, never both. ID is random per write ([NewID]) and is how a writer
// recognises its own file later.
type File struct {
	ID      string
	Attrs   Attrs
	Content []byte
	Blobs   []Blob
	MTime   time.Time // zero: now
}

// Entry is a file or directory as found.
type Entry struct {
	Path  string // absolute, as asked for
	ID    string // empty for directories and files that are not ours
	Attrs Attrs
	Size  int64
	MTime time.Time
	IsDir bool
	// Content is the inline content, nil when the bytes are in Blobs.
	Content []byte
	Blobs   []Blob
}

// Store is one filer. All methods may be called concurrently, try once (no
// retries inside) and honour ctx. Paths are absolute and clean
// ("/buckets/b/x"); parents are made as needed.
type Store interface {
	// Create makes a file if and only if nothing is at path. On nil the entry
	// is as durable as the filer's settings make it. [ErrExists] is definite,
	// as are ErrReadOnly and ErrInvalid; any other error is an unknown outcome.
	Create(ctx context.Context, path string, f File) error
	// Update replaces the file at path if its ID is expect, atomically.
	// ErrConflict (another ID) and ErrNotFound are definite. Blobs of the
	// replaced file that f does not name are deleted by the filer.
	Update(ctx context.Context, path, expect string, f File) error
	// Lookup returns the entry at path, or ErrNotFound.
	Lookup(ctx context.Context, path string) (Entry, error)
	// List returns up to limit entries of a directory (limit <= 0: 1000) whose
	// names sort after the given one, in byte order. A missing directory is
	// empty. Content and Blobs are filled as by Lookup.
	List(ctx context.Context, dir, after string, limit int) ([]Entry, error)
	// Delete removes the file at path with its blobs if its ID is expect, or
	// whatever its ID is when expect is "". A missing file is no error.
	Delete(ctx context.Context, path, expect string) error
	// DeleteTree removes a directory and all below it. Missing is no error.
	DeleteTree(ctx context.Context, dir string) error
	// Upload stores data (1 B .. 16 MiB) on a volume server under the storage
	// rules of path, without making it part of any file. data is not kept.
	Upload(ctx context.Context, path string, data []byte) (Blob, error)
	// UploadAs is Upload with settings that win over the storage rules. Settings
	// that mean nothing are ErrInvalid; those that the filer cannot meet now
	// (fewer servers than copies) are errors like any other.
	UploadAs(ctx context.Context, path string, data []byte, how Storage) (Blob, error)
	// Discard deletes an uploaded blob that no file names.
	Discard(ctx context.Context, b Blob) error
	// Open streams an entry's bytes from off to its end. ErrNotFound when its
	// blobs are gone. The caller closes the reader.
	Open(ctx context.Context, e Entry, off int64) (io.ReadCloser, error)
	// Expiries returns the rules by which files in dir, at any depth, would
	// vanish by themselves, as they are now. ErrCorrupt: the filer has rules
	// that cannot be understood.
	Expiries(ctx context.Context, dir string) ([]Expiry, error)
}

// Name is the last element of the entry's path.
func (e Entry) Name() string { return path.Base(e.Path) }
