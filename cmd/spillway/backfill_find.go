package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

// finding is what a call names: objects, or files of this machine.
type finding struct {
	backfill.Listing
	origin string
	host   string // of files; empty: they are objects
}

// checkSources tells what is wrong with where objects are to be found.
func checkSources(sources []string, manifest string) error {
	files := slices.ContainsFunc(sources, isFile)
	switch {
	case manifest != "" && len(sources) > 0:
		return errors.New("name objects either as arguments or with --manifest")
	case manifest == "" && len(sources) == 0:
		return errors.New("name what is to become records: s3://bucket/prefix, files or folders, or --manifest")
	case files && !allOf(sources, isFile):
		return errors.New("a job is about objects or about files, not about both: make two")
	}
	for _, s := range sources {
		if _, _, ok := cutPrefix(s); !isFile(s) && !ok {
			return fmt.Errorf("%.200q: want s3://bucket/prefix, or a file or folder", s)
		}
	}
	return nil
}

func allOf(list []string, ok func(string) bool) bool {
	return !slices.ContainsFunc(list, func(s string) bool { return !ok(s) })
}

// find looks for what the call names. s3 may be nil if it names only files.
func (a *app) find(ctx context.Context, s3 *object.Store, o runOptions) (f finding, err error) {
	switch {
	case o.manifest != "":
		f.origin = "manifest " + o.manifest
		f.Listing, err = backfill.Manifest(ctx, s3, o.manifest, o.filter)
	case isFile(o.sources[0]):
		f.origin = strings.Join(o.sources, ", ")
		if f.host, err = os.Hostname(); err == nil {
			f.Listing, err = backfill.Files(ctx, o.sources, o.filter)
		}
	default:
		f.origin = strings.Join(o.sources, ", ")
		for _, source := range o.sources {
			if err = f.below(ctx, s3, source, o.filter); err != nil {
				break
			}
		}
	}
	if err != nil {
		return f, err
	}
	if f.origin = clipped(f.origin, 1000); len(f.Objects) == 0 {
		return f, &functions.UsageError{Err: fmt.Errorf("there is nothing to read at %s%s", f.origin, leftOut(f.Left))}
	}
	if left := leftOut(f.Left); left != "" {
		a.note("%s%s", f.origin, left)
	}
	return f, nil
}

// below adds the object of a URL, or all objects whose keys begin so if there is none.
func (f *finding) below(ctx context.Context, s3 *object.Store, source string, filter backfill.Filter) error {
	bucket, key, _ := cutPrefix(source)
	if key != "" && !strings.HasSuffix(key, "/") {
		info, err := s3.Head(ctx, bucket, key, "")
		switch {
		case err == nil && filter.Takes(path.Base(key)):
			f.Objects = append(f.Objects, backfill.Object{Bucket: bucket, Key: key, Version: info.Version, ETag: info.ETag, Size: info.Size})
			return nil
		case err == nil:
			f.Left.Filtered++
			return nil
		case !errors.Is(err, object.ErrNotFound), errors.Is(err, object.ErrNoBucket):
			return err
		}
	}
	found, err := backfill.Prefix{Bucket: bucket, Prefix: key, Filter: filter}.List(ctx, s3)
	f.Objects = append(f.Objects, found.Objects...)
	f.Left.Markers += found.Left.Markers
	f.Left.Filtered += found.Left.Filtered
	return err
}

// leftOut says what was found and is not taken.
func leftOut(l backfill.Left) string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{l.Filtered, "by --include and --exclude"},
		{l.Markers, "for standing for a folder"},
		{l.Old, "for being deleted or an old version"},
		{l.Irregular, "for being neither file nor folder"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": left out " + strings.Join(parts, ", ")
}

// clipped is a text of at most so many bytes.
func clipped(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
