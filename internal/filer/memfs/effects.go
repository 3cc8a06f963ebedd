package memfs

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/spillway-mq/spillway/internal/filer"
)

// The effects of calls on the state. Each is atomic and does exactly what a
// real filer does; faults are none of their business.

func (fs *FS) create(path string, f filer.File) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.isReadOnly(path) {
		return fmt.Errorf("create %s: %w", path, filer.ErrReadOnly)
	}
	if fs.find(path) != nil {
		return fmt.Errorf("create %s: %w", path, filer.ErrExists)
	}
	dir := fs.parent(path)
	if dir == nil {
		// A real filer turns the file into a directory, which nobody can want.
		fs.problem("create %s: a parent is a file", path)
		return fmt.Errorf("create %s: %w: a parent is a file", path, filer.ErrInvalid)
	}
	_, name := split(path)
	dir.children[name] = &node{file: f}
	fs.adopt(path, f)
	return nil
}

func (fs *FS) update(path, expect string, f filer.File) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	switch {
	case n == nil:
		return fmt.Errorf("update %s: %w", path, filer.ErrNotFound)
	case n.isDir() || n.file.ID != expect:
		return fmt.Errorf("update %s: %w", path, filer.ErrConflict)
	}
	for _, old := range n.file.Blobs {
		if !slices.ContainsFunc(f.Blobs, func(b filer.Blob) bool { return b.ID == old.ID }) {
			delete(fs.blobs, old.ID)
		}
	}
	n.file = f
	fs.adopt(path, f)
	return nil
}

// adopt makes path the owner of the file's blobs.
func (fs *FS) adopt(path string, f filer.File) {
	for _, ref := range f.Blobs {
		b := fs.blobs[ref.ID]
		switch {
		case b == nil:
			fs.problem("%s names blob %s, which is not there", path, ref.ID)
			continue
		case b.owner != "" && b.owner != path:
			fs.problem("%s names blob %s, which %s names too", path, ref.ID, b.owner)
		case int64(len(b.data)) != ref.Size:
			fs.problem("%s names blob %s with size %d, but it has %d", path, ref.ID, ref.Size, len(b.data))
		}
		b.owner = path
	}
}

func (fs *FS) lookup(path string) (filer.Entry, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	if n == nil {
		return filer.Entry{}, fmt.Errorf("look up %s: %w", path, filer.ErrNotFound)
	}
	return entry(path, n), nil
}

const defaultLimit = 1000

func (fs *FS) list(dir, after string, limit int) []filer.Entry {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(dir)
	if n == nil {
		return nil
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		if name > after {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	entries := make([]filer.Entry, 0, min(limit, len(names)))
	for _, name := range names[:min(limit, len(names))] {
		entries = append(entries, entry(dir+"/"+name, n.children[name]))
	}
	return entries
}

func (fs *FS) remove(path, expect string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	switch {
	case n == nil:
		return nil
	case expect != "" && n.file.ID != expect:
		return fmt.Errorf("delete %s: %w", path, filer.ErrConflict)
	case len(n.children) > 0:
		return fmt.Errorf("delete %s: %w: a directory with entries", path, filer.ErrInvalid)
	}
	fs.unlink(path, n)
	return nil
}

func (fs *FS) removeTree(path string) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n := fs.find(path); n != nil {
		fs.unlink(path, n)
	}
}

func (fs *FS) unlink(path string, n *node) {
	walk(path, n, func(_ string, file *node) {
		for _, b := range file.file.Blobs {
			delete(fs.blobs, b.ID)
		}
	})
	dir, name := split(path)
	delete(fs.find(dir).children, name)
}

func (fs *FS) upload(path string, data []byte, how filer.Storage) (filer.Blob, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.isReadOnly(path) {
		return filer.Blob{}, fmt.Errorf("upload for %s: %w", path, filer.ErrReadOnly)
	}
	if !fs.canKeep(how) {
		return filer.Blob{}, fmt.Errorf("upload for %s: memfs: not enough servers for replication %s", path, how.Replication)
	}
	fs.lastBlob++
	id := fmt.Sprintf("1,%010x", fs.lastBlob)
	fs.blobs[id] = &blob{data: data, path: path, how: how}
	return filer.Blob{ID: id, Size: int64(len(data))}, nil
}

func (fs *FS) discard(id string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	b := fs.blobs[id]
	if b == nil {
		return nil
	}
	if b.owner != "" {
		// A real volume server does not know better and deletes it.
		fs.problem("discard of blob %s, which %s names", id, b.owner)
		return fmt.Errorf("discard %s: %w: %s names it", id, filer.ErrInvalid, b.owner)
	}
	delete(fs.blobs, id)
	return nil
}

// blobPath is what a blob was uploaded for, "" when it is gone.
func (fs *FS) blobPath(id string) string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if b := fs.blobs[id]; b != nil {
		return b.path
	}
	return ""
}

// read returns the bytes of an entry from off. Like a real filer it works from
// the entry as it was found, not from what is at its path now.
func (fs *FS) read(e filer.Entry, off int64) (io.Reader, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if len(e.Blobs) == 0 {
		return bytes.NewReader(slices.Clone(e.Content[min(off, int64(len(e.Content))):])), nil
	}
	var parts []io.Reader
	for _, ref := range e.Blobs {
		if off >= ref.Size {
			off -= ref.Size
			continue
		}
		b := fs.blobs[ref.ID]
		if b == nil {
			return nil, fmt.Errorf("read %s: blob %s: %w", e.Path, ref.ID, filer.ErrNotFound)
		}
		parts = append(parts, bytes.NewReader(slices.Clone(b.data[min(off, int64(len(b.data))):])))
		off = 0
	}
	return io.MultiReader(parts...), nil
}
