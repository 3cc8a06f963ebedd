package backfill

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FileETag stands for the content of a file of this machine, as far as can be told
// without reading it: another size, time of change or file gives another one.
func FileETag(info os.FileInfo) string {
	var b []byte
	b = binary.BigEndian.AppendUint64(b, uint64(info.Size()))
	b = binary.BigEndian.AppendUint64(b, uint64(info.ModTime().UnixNano()))
	b = binary.BigEndian.AppendUint64(b, inode(info))
	sum := sha256.Sum256(b)
	return "file-" + hex.EncodeToString(sum[:12])
}

// Files lists files of this machine: those that are named, and those in folders
// that are named, at any depth and in the order of their names. In folders, links to
// files are followed, and links to folders are not. Names that are not UTF-8 or have
// control characters are a [*NamesError] of [ErrHostile], files that are named twice
// one of [ErrTwice]. Other errors are the file system's.
func Files(ctx context.Context, paths []string, f Filter) (Listing, error) {
	l := files{filter: f, seen: map[string]bool{}, hostile: &NamesError{Err: ErrHostile}, twice: &NamesError{Err: ErrTwice}}
	if err := f.Check(); err != nil {
		return l.Listing, err
	}
	for _, p := range paths {
		root, err := filepath.Abs(p)
		if err != nil {
			return l.Listing, err
		}
		info, err := os.Stat(root)
		switch {
		case err != nil:
			return l.Listing, err
		case info.IsDir():
			err = l.walk(ctx, root)
		case info.Mode().IsRegular():
			err = l.take(root, filepath.Base(root), info)
		default:
			err = fmt.Errorf("%.200q is neither a file nor a folder", root)
		}
		if err != nil {
			return l.Listing, err
		}
	}
	return l.Listing, cmp.Or(l.hostile.orNil(), l.twice.orNil())
}

// files is a listing of files at work.
type files struct {
	Listing
	filter         Filter
	seen           map[string]bool
	hostile, twice *NamesError
}

func (l *files) walk(ctx context.Context, root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return cmp.Or(err, ctx.Err())
		}
		info, err := os.Stat(p) // of what a link leads to
		if dangling := errors.Is(err, fs.ErrNotExist) && d.Type()&fs.ModeSymlink != 0; dangling || err == nil && !info.Mode().IsRegular() {
			l.Left.Irregular++
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return l.take(p, filepath.ToSlash(name), info)
	})
}

// take takes a file with a name for the filter.
func (l *files) take(p, name string, info os.FileInfo) error {
	switch {
	case !l.filter.Takes(name):
		l.Left.Filtered++
		return nil
	case !isPath(p):
		l.hostile.add(p)
		return nil
	case l.seen[p]:
		l.twice.add(p)
		return nil
	}
	l.seen[p] = true
	return l.add(Object{Path: p, ETag: FileETag(info), Size: info.Size()})
}
