package memfs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

var _ filer.Objects = (*Client)(nil)

// s3Object is what a file has that was put through the S3 gateway.
type s3Object struct {
	etag    string
	version string // its id, if its bucket has versions
	marker  bool   // a delete marker
	folder  bool   // its key ends with a slash
	commit  uint64 // changes with each write
}

// Look implements [filer.Objects]. To the hook, its path is that of the object's
// own entry.
func (c *Client) Look(ctx context.Context, n filer.ObjectName) (filer.Object, error) {
	place, err := n.Place()
	if place.Bucket == "" {
		return filer.Object{}, fmt.Errorf("look at %.300s: %w", n, err)
	}
	return result(ctx, c, Op{Name: "Look", Path: cmp.Or(place.Path, place.Bucket)}, func() (filer.Object, error) { return c.fs.look(n) })
}

// Mark implements [filer.Objects].
func (c *Client) Mark(ctx context.Context, o filer.Object, name, value string) error {
	commit, ok := o.Extra.(uint64)
	if !ok {
		return fmt.Errorf("mark %s: %w: it was not looked up", o.Name, filer.ErrInvalid)
	}
	if err := filer.CheckMark(name, value); err != nil {
		return fmt.Errorf("mark %s: %w", o.Name, err)
	}
	return c.call(ctx, "Mark", o.Path, func() error { return c.fs.mark(o.Path, commit, name, value) })
}

func (fs *FS) look(n filer.ObjectName) (filer.Object, error) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	place, err := n.Place()
	if fs.find(place.Bucket) == nil {
		err = filer.ErrNoBucket
	}
	var path string
	var node *node
	if err == nil {
		path, node, err = fs.object(n.Version, place)
	}
	if err != nil {
		return filer.Object{}, fmt.Errorf("look at %.300s: %w", n, err)
	}
	if path != place.Path {
		n.Version = strings.TrimPrefix(path, place.Versions+"/v_")
	}
	f := node.file
	return filer.Object{
		Name: n, Path: path, Size: int64(len(f.Content)), ETag: node.object.etag, MTime: f.MTime, Attrs: maps.Clone(f.Attrs), Extra: node.object.commit,
	}, nil
}

// object finds a version of an object.
func (fs *FS) object(version string, place filer.Place) (string, *node, error) {
	if version == "" && !place.Folder {
		if folder := fs.find(place.Versions); folder != nil {
			version = folder.latest
		}
	}
	path := place.Path
	if version != "" {
		var err error
		if path, err = place.Version(version); err != nil {
			return "", nil, err
		}
	}
	n := fs.find(path)
	switch {
	case n != nil && n.object == nil && !n.isDir():
		return "", nil, fmt.Errorf("%w: it is a file of Spillway's own", filer.ErrInvalid)
	case n != nil && n.object.named(path == place.Path, place.Folder):
		return path, n, nil
	}
	return "", nil, filer.ErrNotFound
}

// named tells whether an object is named by a key with or without a slash at its
// end, by its path alone or with a version.
func (o *s3Object) named(alone, folder bool) bool {
	return o != nil && !o.marker && o.folder == folder && alone == (o.version == "")
}

func (fs *FS) mark(path string, commit uint64, name, value string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	if n == nil || n.object == nil || n.object.commit != commit {
		return fmt.Errorf("mark %s: %w", path, filer.ErrConflict)
	}
	if value == "" {
		delete(n.file.Attrs, name)
	} else {
		n.file.Attrs[name] = value
	}
	fs.commits++
	n.object.commit = fs.commits
	return nil
}

// MakeBucket makes a bucket as its owner does by S3, with versions or without.
func (fs *FS) MakeBucket(bucket string, versions bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.parent("/buckets/" + bucket + "/x")
	fs.versioned[bucket] = versions
}

// PutObject puts an object as others do by S3, and returns its version's id, if
// its bucket has versions. Of the attributes, which S3 calls metadata, only those
// with [filer.AttrPrefix] are given, without it.
func (fs *FS) PutObject(bucket, key string, data []byte, attrs filer.Attrs) (version string, err error) {
	place, err := filer.ObjectName{Bucket: bucket, Key: key}.Place()
	if err != nil {
		return "", err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.find(place.Bucket) == nil {
		return "", filer.ErrNoBucket
	}
	o := &s3Object{etag: fmt.Sprintf("%x", md5.Sum(data)), folder: place.Folder}
	return fs.put(place, &node{file: filer.File{Content: bytes.Clone(data), Attrs: maps.Clone(attrs)}, object: o})
}

// put makes a node the object, or its current version.
func (fs *FS) put(place filer.Place, n *node) (version string, err error) {
	fs.commits++
	n.object.commit = fs.commits
	n.file.MTime = time.Now()
	if n.file.Attrs == nil {
		n.file.Attrs = filer.Attrs{}
	}
	path := place.Path
	if fs.versioned[strings.TrimPrefix(place.Bucket, "/buckets/")] && !place.Folder {
		version = fmt.Sprintf("%032x", ^fs.commits) // the latest sorts first
		path = place.Versions + "/v_" + version
		n.object.version = version
	}
	for at := place.Bucket; ; { // others' objects can have objects below them
		name, _, below := strings.Cut(path[len(at)+1:], "/")
		if !below {
			break
		}
		at += "/" + name
		if parent := fs.find(at); parent != nil && parent.object != nil && !parent.isDir() {
			parent.children = map[string]*node{}
			fs.commits++
			parent.object.commit = fs.commits
		}
	}
	dir := fs.parent(path)
	if dir == nil {
		return "", fmt.Errorf("put %s: %w", path, filer.ErrInvalid)
	}
	_, name := split(path)
	if old := dir.children[name]; old != nil {
		n.children = old.children
	} else if place.Folder {
		n.children = map[string]*node{}
	}
	dir.children[name] = n
	if version != "" {
		dir.latest = version
	}
	return version, nil
}

// DeleteObject deletes an object, or one version of it, as others do by S3. Where
// there are versions, the former puts a delete marker.
func (fs *FS) DeleteObject(n filer.ObjectName) error {
	place, err := n.Place()
	if err != nil {
		return err
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if n.Version == "" && fs.versioned[n.Bucket] && !place.Folder {
		_, err := fs.put(place, &node{object: &s3Object{marker: true}})
		return err
	}
	path, err := place.Version(cmp.Or(n.Version, filer.NullVersion))
	if err != nil {
		return err
	}
	old := fs.find(path)
	if old == nil || old.object == nil {
		return nil
	}
	dir, name := split(path)
	if len(old.children) > 0 {
		*old = node{children: old.children}
	} else {
		delete(fs.find(dir).children, name)
	}
	if folder := fs.find(dir); dir == place.Versions && folder != nil {
		folder.latest = ""
		if names := slices.Sorted(maps.Keys(folder.children)); len(names) > 0 {
			folder.latest = strings.TrimPrefix(names[0], "v_")
		}
	}
	return nil
}
