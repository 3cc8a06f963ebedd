// Package memfs is a filer in memory, for tests and simulations. It does what a
// real filer does, deterministically, and injects faults: an [FS] is the server
// that several [Client]s share, and the [Hook] of a client decides about each
// of its calls. It also watches: mistakes that a real filer would answer with
// lost data much later are collected by [FS.Problems].
package memfs

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

// FS is the state of a filer and its volume servers. It may be used
// concurrently. In a testing/synctest bubble, make it inside the bubble.
type FS struct {
	mu       sync.Mutex
	root     *node
	blobs    map[string]*blob
	lastBlob int
	readOnly []string
	rules    rules
	problems []string
	late     sync.WaitGroup

	versioned map[string]bool // buckets
	commits   uint64          // of objects
}

// node is a directory (children is not nil) or a file, or an object of others,
// which can be both.
type node struct {
	children map[string]*node
	file     filer.File
	object   *s3Object
	latest   string // of a folder of versions: the id of the current one
}

func (n *node) isDir() bool { return n.children != nil }

type blob struct {
	data  []byte
	path  string // where it was uploaded for
	owner string // the file that names it, "" when none does
	how   filer.Storage
}

// New returns an empty filer.
func New() *FS {
	return &FS{root: newDir(), blobs: map[string]*blob{}, versioned: map[string]bool{}}
}

// Client returns a way into the filer for one actor. A nil hook injects no
// faults.
func (fs *FS) Client(name string, hook Hook) *Client {
	return &Client{fs: fs, name: name, hook: hook, counts: map[Op]int{}, killed: make(chan struct{})}
}

// Problems returns the mistakes of callers seen so far: a file that names a
// blob that is not there or that another file names, a discard of a blob that a
// file names, a file below a file.
func (fs *FS) Problems() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return slices.Clone(fs.problems)
}

// Blobs returns how many blobs no file names: uploads in flight, or leaks.
func (fs *FS) Blobs() int {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := 0
	for _, b := range fs.blobs {
		if b.owner == "" {
			n++
		}
	}
	return n
}

// Paths returns the paths of all files, sorted.
func (fs *FS) Paths() []string {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	var paths []string
	walk("", fs.root, func(path string, _ *node) { paths = append(paths, path) })
	slices.Sort(paths)
	return paths
}

// Corrupt flips one bit in the middle of the bytes of the file at path.
func (fs *FS) Corrupt(path string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	if n == nil || n.isDir() {
		return fmt.Errorf("corrupt %s: %w", path, filer.ErrNotFound)
	}
	data := n.file.Content
	if len(n.file.Blobs) > 0 {
		b := fs.blobs[n.file.Blobs[0].ID]
		if b == nil {
			return fmt.Errorf("corrupt %s: its blob: %w", path, filer.ErrNotFound)
		}
		data = b.data
	}
	if len(data) == 0 {
		return fmt.Errorf("corrupt %s: %w: it is empty", path, filer.ErrInvalid)
	}
	data[len(data)/2] ^= 1
	return nil
}

// LoseBlobs removes the blobs of the file at path, but not the file.
func (fs *FS) LoseBlobs(path string) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	n := fs.find(path)
	if n == nil || len(n.file.Blobs) == 0 {
		return fmt.Errorf("lose blobs of %s: %w", path, filer.ErrNotFound)
	}
	for _, b := range n.file.Blobs {
		delete(fs.blobs, b.ID)
	}
	return nil
}

// SetReadOnly makes creates and uploads at and below path fail with
// [filer.ErrReadOnly], or work again. Updates and deletes go on, as they do on
// a real filer.
func (fs *FS) SetReadOnly(path string, on bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.readOnly = slices.DeleteFunc(fs.readOnly, func(p string) bool { return p == path })
	if on {
		fs.readOnly = append(fs.readOnly, path)
	}
}

// Settle waits until no late effect is pending.
func (fs *FS) Settle() { fs.late.Wait() }

func (fs *FS) problem(format string, args ...any) {
	fs.problems = append(fs.problems, fmt.Sprintf(format, args...))
}

func (fs *FS) isReadOnly(path string) bool {
	return slices.ContainsFunc(fs.readOnly, func(p string) bool {
		return path == p || strings.HasPrefix(path, strings.TrimSuffix(p, "/")+"/")
	})
}

// find returns the node at a clean path, or nil.
func (fs *FS) find(path string) *node {
	n := fs.root
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if name == "" {
			continue
		}
		if n = n.children[name]; n == nil {
			return nil
		}
	}
	return n
}

// parent returns the directory that path lies in, made as needed, or nil when
// one of its ancestors is a file.
func (fs *FS) parent(path string) *node {
	n := fs.root
	names := strings.Split(path[1:], "/")
	for _, name := range names[:len(names)-1] {
		if !n.isDir() {
			return nil
		}
		if n.children[name] == nil {
			n.children[name] = newDir()
		}
		n = n.children[name]
	}
	if !n.isDir() {
		return nil
	}
	return n
}

func newDir() *node { return &node{children: map[string]*node{}} }

// walk calls do for each file below n, in no particular order.
func walk(path string, n *node, do func(path string, file *node)) {
	if !n.isDir() {
		do(path, n)
		return
	}
	for name, child := range n.children {
		walk(path+"/"+name, child, do)
	}
}

func split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:i], path[i+1:]
}

// entry describes a node as a Store returns it, sharing nothing with it.
func entry(path string, n *node) filer.Entry {
	if n.isDir() {
		return filer.Entry{Path: path, IsDir: true}
	}
	f := clone(n.file)
	e := filer.Entry{Path: path, ID: f.ID, Attrs: f.Attrs, MTime: f.MTime, Content: f.Content, Blobs: f.Blobs}
	e.Size = int64(len(f.Content))
	for _, b := range f.Blobs {
		e.Size += b.Size
	}
	if len(f.Blobs) == 0 && e.Content == nil {
		e.Content = []byte{}
	}
	return e
}

// clone gives a file that shares nothing with f and has a time.
func clone(f filer.File) filer.File {
	attrs := make(filer.Attrs, len(f.Attrs))
	for k, v := range f.Attrs {
		attrs[k] = v
	}
	f.Attrs = attrs
	f.Content = slices.Clone(f.Content)
	f.Blobs = slices.Clone(f.Blobs)
	if f.MTime.IsZero() {
		f.MTime = time.Now()
	}
	return f
}
