package refcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// uploads is what the keys of objects begin with that producers upload.
const uploads = "spillway/"

// maxOrphans bounds how many uploads are kept that may be orphans: some 30 MiB.
const maxOrphans = 100_000

// Prefix is what the keys of a topic's uploads begin with.
func Prefix(name string) string { return uploads + name + "/" }

// place is where there may be uploads.
type place struct{ bucket, prefix string }

func (p place) String() string { return object.Scheme + p.bucket + "/" + p.prefix }

// places are where a topic's uploads may be: in its own buckets, as far as it
// allows them, and in the one that the settings name. None is within another.
func (c *Checker) places() []place {
	prefix := Prefix(c.Topic.Name)
	all := []place{}
	if c.Bucket != "" {
		all = append(all, place{c.Bucket, prefix})
	}
	for _, entry := range c.Topic.Buckets {
		bucket, allowed, _ := strings.Cut(entry, "/")
		switch {
		case strings.HasPrefix(prefix, allowed):
			all = append(all, place{bucket, prefix})
		case strings.HasPrefix(allowed, prefix):
			all = append(all, place{bucket, allowed})
		}
	}
	slices.SortFunc(all, func(a, b place) int {
		return cmp.Or(strings.Compare(a.bucket, b.bucket), strings.Compare(a.prefix, b.prefix))
	})
	out := all[:0]
	for _, p := range all { // the shorter of two prefixes comes first
		if n := len(out); n == 0 || out[n-1].bucket != p.bucket || !strings.HasPrefix(p.prefix, out[n-1].prefix) {
			out = append(out, p)
		}
	}
	return out
}

// isUpload tells whether a URL names one of the topic's uploads.
func (c *Checker) isUpload(url string) bool {
	n, err := ref.Parse(url)
	for _, p := range c.places() {
		if err == nil && n.Bucket == p.bucket && strings.HasPrefix(n.Key, p.prefix) {
			return true
		}
	}
	return false
}

// named are the uploads that records name.
type named struct{ accepted, rejected names }

// upload is which of the topic's uploads a record names, if it does, in whatever
// spelling.
func (c *Checker) upload(item segment.Item) (id, bool) {
	rest, ok := strings.CutPrefix(item.Ref.URL, object.Scheme)
	bucket, key, _ := strings.Cut(rest, "/")
	if !ok || !strings.HasPrefix(filer.CleanKey(key), Prefix(c.Topic.Name)) {
		return id{}, false
	}
	return nameID(object.Name{Bucket: bucket, Key: key}), true
}

// note keeps which upload a record names.
func (c *Checker) note(item segment.Item, in *named) {
	switch n, ok := c.upload(item); {
	case !ok:
	case item.Rejected == "":
		in.accepted.add(n)
	default:
		in.rejected.add(n)
	}
}

// unnamed lists the uploads that are old enough and that no accepted record names.
func (c *Checker) unnamed(ctx context.Context, in *named, u *Uploads) (orphans []Finding, err error) {
	in.accepted.settle()
	now := c.Now()
	for _, p := range c.places() {
		u.Places = append(u.Places, p.String())
		for o, err := range c.Objects.List(ctx, p.bucket, p.prefix, "") {
			if errors.Is(err, object.ErrNotFound) {
				break // a bucket that is not there has no uploads
			}
			if err != nil {
				return nil, err
			}
			n := object.Name{Bucket: p.bucket, Key: o.Key}
			u.Found++
			switch {
			case in.accepted.has(nameID(n)):
				u.Named++
			case o.Modified.IsZero() || now.Sub(o.Modified) < c.OlderThan:
				u.Young++
			case len(orphans) == maxOrphans:
				u.LeftOut++
			default:
				orphans = append(orphans, Finding{
					Kind: Orphaned, URL: n.String(), Size: o.Size, Modified: o.Modified.UTC(), name: n, info: o.Info,
				})
			}
		}
	}
	return orphans, nil
}

// recheck takes those out that a record names after all: one that came while
// uploads were listed, or, if all records are wanted, a rejected one in a chunk that
// was not read for its references.
func (c *Checker) recheck(ctx context.Context, first *walk, in *named, orphans []Finding, u *Uploads) ([]Finding, error) {
	open := map[id]Kind{}
	in.rejected.settle()
	for _, f := range orphans {
		n := nameID(f.name)
		if open[n] = Orphaned; in.rejected.has(n) {
			open[n] = Refused
		}
	}
	second := newWalk(c.Topic, func(s topic.SegmentID, chunk segment.Chunk) bool {
		return chunk.Entry.N >= first.next[s] || c.thorough && chunk.Refs == 0
	})
	for item, err := range second.items(ctx) {
		if err != nil {
			return nil, err
		}
		n, ok := c.upload(item)
		switch is := open[n]; {
		case !ok || is == "":
		case item.Rejected == "":
			delete(open, n)
		default:
			open[n] = Refused
		}
	}
	found := len(orphans)
	orphans = slices.DeleteFunc(orphans, func(f Finding) bool { return open[nameID(f.name)] == "" })
	u.Named += uint64(found - len(orphans))
	for i := range orphans {
		orphans[i].Kind = open[nameID(orphans[i].name)]
	}
	return orphans, nil
}

// sort says which of the orphans are none, because somebody has a pin on them, and
// counts.
func (c *Checker) sort(ctx context.Context, orphans []Finding, u *Uploads) error {
	if c.Pins != nil {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(parallel)
		for i := range orphans {
			g.Go(func() error { return c.holders(ctx, &orphans[i]) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	for i := range orphans {
		f := &orphans[i]
		switch {
		case f.Kind == Refused:
			u.Refused++
		case len(f.Pins) > 0:
			f.Kind = Held
			u.Held++
		default:
			u.Orphaned++
			u.Bytes += f.Size
		}
	}
	return nil
}

func (c *Checker) holders(ctx context.Context, f *Finding) error {
	marks, _, err := c.marks(ctx, f.name)
	for _, m := range marks {
		who := m.Holder.Topic
		if who == "" || m.Holder.Incarnation != c.Topic.Incarnation && who == c.Topic.Name {
			who = fmt.Sprintf("%s (%s)", cmp.Or(who, "unknown"), m.Holder.Incarnation)
		}
		f.Pins = append(f.Pins, who)
	}
	return err
}
