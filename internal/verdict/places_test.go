package verdict_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// TestUploadsOfOthers: no spelling leads to what another topic may drop, and
// nothing else is forbidden for it.
func TestUploadsOfOthers(t *testing.T) {
	d := topic.Definition{Name: "orders", Buckets: []string{"box"}}
	for key, owner := range map[string]string{
		"spillway/images/k": "images", "spillway/images/": "images", "spillway/images/a/b": "images", "spillway/orders2/k": "orders2",
		"/spillway/images/k": "images", "spillway//images/k": "images", "//spillway///images//k/": "images",
		`spillway\images\k`: "images", `\spillway/images\`: "images",
		"spillway/orders/k": "", "spillway//orders/k": "", "spillway/images": "", "spillway": "", "spillwayx/images/k": "", "a/spillway/images/k": "",
		"spillway/no topic/k": "", "Spillway/images/k": "",
	} {
		_, err := verdict.Allowed(d, record.Ref{URL: "s3://box/" + key})
		var not *verdict.NotAllowedError
		switch {
		case owner == "" && err != nil:
			t.Errorf("%s: %v", key, err)
		case owner != "" && (!errors.As(err, &not) || not.Owner != owner || !verdict.Wrong(err)):
			t.Errorf("%s: %v", key, err)
		case owner != "" && !strings.Contains(err.Error(), `among the uploads of topic "`+owner+`"`):
			t.Errorf("%s: %v", key, err)
		}
	}
}

// TestForeignNames: an object in a bucket that the filer does not have is valid,
// also if the filer could not have its name.
func TestForeignNames(t *testing.T) {
	d := topic.Definition{Name: "orders", Incarnation: "abc", Buckets: []string{"elsewhere"}}
	for what, c := range map[string]struct{ key, version string }{
		"a long segment":          {strings.Repeat("k", 300), ""},
		"the filer's own folder":  {".uploads/k", ""},
		"a version with a slash":  {"k", "ab/cd+ef="},
		"a folder with a version": {"k/", "abcd"},
		"a version with a space":  {"k", "ab cd"},
		"a long version":          {"k", strings.Repeat("v", 2000)},
	} {
		j := &verdict.Judge{
			Objects: &endpoint{answers: []any{object.Info{Size: 3, ETag: "e", Version: c.version}}},
			Pins:    &pin.Pins{Filer: memfs.New().Client("pins", nil), Now: time.Now},
		}
		if err := j.Judge(t.Context(), d, record.Ref{URL: "s3://elsewhere/" + c.key}); err != nil {
			t.Errorf("%s: wrong %v: %v", what, verdict.Wrong(err), err)
		}
	}
}

// replaced is an endpoint whose object is deleted after the first HEAD, and put
// again, the same, before the second, within the second that S3's times have.
type replaced struct {
	fs    *memfs.FS
	heads int
}

func (e *replaced) Head(_ context.Context, bucket, key, _ string) (info object.Info, err error) {
	if e.heads++; e.heads == 2 {
		_, err = e.fs.PutObject(bucket, key, []byte("x"), nil)
	}
	return object.Info{Size: 1, Modified: time.Unix(1, 0)}, err
}

// TestReplacedUnseen: an object on the filer that is valid is pinned, also if it
// was not there when it was to be pinned.
func TestReplacedUnseen(t *testing.T) {
	fs := memfs.New()
	fs.MakeBucket("box", false)
	p := &pin.Pins{Filer: fs.Client("pins", nil), Now: time.Now}
	j := &verdict.Judge{Objects: &replaced{fs: fs}, Pins: p}
	d := topic.Definition{Name: "orders", Incarnation: "abc", Buckets: []string{"box"}}
	if err := j.Judge(t.Context(), d, record.Ref{URL: "s3://box/k", Size: 1}); err != nil {
		t.Fatal(err)
	}
	marks, err := p.Held(t.Context(), object.Name{Bucket: "box", Key: "k"})
	if err != nil || len(marks) != 1 {
		t.Errorf("valid, on the filer, and its pins are %v, %v", marks, err)
	}
}
