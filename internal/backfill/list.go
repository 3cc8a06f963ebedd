package backfill

import (
	"context"
	"fmt"
	"iter"
	"path"
	"strings"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/spillway-mq/spillway/internal/object"
)

// Lister lists objects of an endpoint, as object.Store does.
type Lister interface {
	List(ctx context.Context, bucket, prefix, after string) iter.Seq2[object.Object, error]
}

// Listing is what was found for a job, in the order in which it was found.
type Listing struct {
	Objects []Object
	Left    Left
	size    int // of the objects in a job's file, at least
}

// Left counts what was found and left out.
type Left struct {
	Markers   int // objects without a byte whose keys end in a slash: they stand for folders
	Filtered  int // by the filter
	Old       int // in an inventory: deleted, or not the current version
	Irregular int // in folders of the host: neither file nor folder
}

// Prefix are the objects of a bucket whose keys begin in a way.
type Prefix struct {
	Bucket, Prefix string
	Filter         Filter
}

// List lists them. Empty objects are objects without rows. A key that cannot be
// asked for safely, unless the filter leaves it out, is a [*NamesError] of
// [ErrHostile], with all of them. A list that is too long for a job is a
// [*JobError] as soon as it is. Other errors are those of package object.
func (p Prefix) List(ctx context.Context, from Lister) (Listing, error) {
	var l Listing
	hostile := &NamesError{Err: ErrHostile}
	for o, err := range p.each(ctx, from, &l.Left) {
		switch {
		case err != nil:
			return l, err
		case o.Name().Check() != nil:
			hostile.add(o.Key)
			continue
		}
		if err := l.add(o); err != nil {
			return l, err
		}
	}
	return l, hostile.orNil()
}

// Each yields them one by one, without keeping any, and counts in left, which may be
// nil. Its errors are those of List, and end it.
func (p Prefix) Each(ctx context.Context, from Lister, left *Left) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for o, err := range p.each(ctx, from, left) {
			if err == nil && o.Name().Check() != nil {
				err = &NamesError{Err: ErrHostile, Names: []string{o.Key}, Count: 1}
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// each does not look at names.
func (p Prefix) each(ctx context.Context, from Lister, left *Left) iter.Seq2[Object, error] {
	if left == nil {
		left = &Left{}
	}
	return func(yield func(Object, error) bool) {
		if err := p.Filter.Check(); err != nil {
			yield(Object{}, err)
			return
		}
		folder := p.Prefix[:strings.LastIndexByte(p.Prefix, '/')+1]
		for found, err := range from.List(ctx, p.Bucket, p.Prefix, "") {
			o := Object{Bucket: p.Bucket, Key: found.Key, ETag: found.ETag, Size: found.Size}
			switch {
			case err != nil:
			case isMarker(o):
				left.Markers++
				continue
			case !p.Filter.Takes(strings.TrimPrefix(found.Key, folder)):
				left.Filtered++
				continue
			}
			if !yield(o, err) || err != nil {
				return
			}
		}
	}
}

// isMarker tells of objects that stand for a folder.
func isMarker(o Object) bool { return o.Size == 0 && strings.HasSuffix(o.Key, "/") }

// add takes an object into the listing, as long as a job's file can hold it.
func (l *Listing) add(o Object) error {
	const around = len(`{"bucket":"","key":"","etag":"","size":0}` + "\n")
	l.size += around + len(o.Bucket) + len(o.Key) + len(o.Path) + len(o.ETag) + len(o.Version)
	if l.size > MaxFile {
		return &JobError{Faults: []string{tooLarge(l.size)}, Count: 1}
	}
	l.Objects = append(l.Objects, o)
	return nil
}

// Filter chooses objects by their names. Patterns are as in a shell: * and ? stand
// for what is not a slash, ** between slashes for any folders, [ab] and {one,two}
// for alternatives. One with a slash in it is for what follows the prefix's last
// slash, or the folder; one without for what follows the name's last slash.
type Filter struct {
	Include []string `json:"include,omitempty"` // none: all
	Exclude []string `json:"exclude,omitempty"` // wins
}

// PatternError tells that a pattern is none.
type PatternError struct{ Pattern string }

func (e *PatternError) Error() string {
	return fmt.Sprintf("%.100q is not a pattern such as *.csv or 2025/**/*.json", e.Pattern)
}

// Check tells whether all patterns are some. The error is a [*PatternError].
func (f Filter) Check() error {
	for _, list := range [][]string{f.Include, f.Exclude} {
		for _, p := range list {
			if p == "" || !doublestar.ValidatePattern(p) {
				return &PatternError{p}
			}
		}
	}
	return nil
}

// Takes tells whether the filter lets a name through, which begins behind the
// prefix's last slash.
func (f Filter) Takes(name string) bool {
	return (len(f.Include) == 0 || matches(f.Include, name)) && !matches(f.Exclude, name)
}

func matches(patterns []string, name string) bool {
	for _, p := range patterns {
		what := name
		if !strings.Contains(p, "/") {
			what = path.Base(name)
		}
		if doublestar.MatchUnvalidated(p, what) {
			return true
		}
	}
	return false
}
