package memfs_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// gateway is the S3 side of a filer in memory.
type gateway struct{ *memfs.FS }

func (g gateway) MakeBucket(_ *testing.T, versions bool) string {
	bucket := "b-" + filer.Token(10)
	g.FS.MakeBucket(bucket, versions)
	return bucket
}

func (g gateway) Put(_ context.Context, bucket, key string, data []byte, attrs filer.Attrs) (string, error) {
	return g.PutObject(bucket, key, data, attrs)
}

func (g gateway) Delete(_ context.Context, n filer.ObjectName) error { return g.DeleteObject(n) }

func (g gateway) Get(ctx context.Context, n filer.ObjectName) (filertest.Seen, error) {
	c := g.Client("s3", nil)
	o, err := c.Look(ctx, n)
	if err != nil {
		return filertest.Seen{}, err
	}
	e, err := c.Lookup(ctx, o.Path)
	seen := filertest.Seen{
		Size: o.Size, ETag: o.ETag, Version: o.Name.Version, Modified: o.MTime.Truncate(time.Second), Data: e.Content, Rest: map[string]string{},
	}
	for k, v := range o.Attrs {
		if k == "Sha256" {
			seen.Rest[strings.ToLower(k)] = v
		}
	}
	return seen, err
}

func TestObjects(t *testing.T) {
	fs := memfs.New()
	filertest.RunObjects(t, fs.Client("objects", nil), fs.Client("store", nil), gateway{fs})
	if problems := fs.Problems(); len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
}
