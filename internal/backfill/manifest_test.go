package backfill

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/object"
)

// bucket is an endpoint with objects, by name.
type bucket struct {
	mu      sync.Mutex
	objects map[string]string // "bucket/key" or "bucket/key@version"
	broken  map[string]int    // bodies that break, so many times
	fail    error
	now     atomic.Int32
	most    atomic.Int32 // heads at a time
}

func place(n object.Name) string {
	p := n.Bucket + "/" + n.Key
	if n.Version != "" {
		p += "@" + n.Version
	}
	return p
}

func (b *bucket) Head(_ context.Context, bkt, key, version string) (object.Info, error) {
	b.most.Store(max(b.most.Load(), b.now.Add(1)))
	defer b.now.Add(-1)
	data, ok := b.objects[place(object.Name{Bucket: bkt, Key: key, Version: version})]
	switch {
	case b.fail != nil:
		return object.Info{}, b.fail
	case !ok:
		return object.Info{}, fmt.Errorf("head: %w", object.ErrNotFound)
	}
	info := object.Info{Size: int64(len(data)), ETag: "e-" + data, Version: version}
	if strings.HasPrefix(data, "v1:") {
		info.Version = "v1"
	}
	return info, nil
}

func (b *bucket) Get(_ context.Context, n object.Name, _ int64, _ string) (io.ReadCloser, object.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	data, ok := b.objects[place(n)]
	if !ok {
		return nil, object.Info{}, fmt.Errorf("get: %w", object.ErrNotFound)
	}
	r := io.Reader(strings.NewReader(data))
	if b.broken[place(n)]--; b.broken[place(n)] >= 0 {
		r = io.MultiReader(strings.NewReader(data[:len(data)/2]), failing{&object.UnavailableError{Op: "get", Name: n, Err: io.ErrUnexpectedEOF}})
	}
	return io.NopCloser(r), object.Info{}, nil
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func newBucket() *bucket {
	return &bucket{broken: map[string]int{}, objects: map[string]string{
		"box/a.csv": "1", "box/b c+d.csv": "22", "box/empty.csv": "", "box/dir/": "", "box/old.csv": "now", "box/old.csv@v7": "then", "box/kept.csv": "v1:x", "box/kept.csv@v1": "v1:x",
	}}
}

func TestManifest(t *testing.T) {
	obj := func(key, version, etag string, size int64) Object {
		return Object{Bucket: "box", Key: key, Version: version, ETag: etag, Size: size}
	}
	for name, c := range map[string]struct {
		text string
		want []Object
		left Left
	}{
		"text": {
			"\ufeff# objects\r\ns3://box/b c+d.csv\r\n\n  \ns3://box/a.csv\ns3://box/empty.csv\ns3://box/dir/\ns3://box/old.csv\tv7\ns3://box/old.csv",
			[]Object{obj("b c+d.csv", "", "e-22", 2), obj("a.csv", "", "e-1", 1), obj("empty.csv", "", "e-", 0), obj("old.csv", "v7", "e-then", 4), obj("old.csv", "", "e-now", 3)},
			Left{Markers: 1},
		},
		"the version that it has": {"s3://box/kept.csv", []Object{obj("kept.csv", "v1", "e-v1:x", 4)}, Left{}},
		"Redshift": {
			` {"entries":[{"url":"s3://box/a.csv","mandatory":true,"meta":{"content_length":9}},{"url":"s3://box/b c+d.csv"}]}`,
			[]Object{obj("a.csv", "", "e-1", 1), obj("b c+d.csv", "", "e-22", 2)}, Left{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket()
			b.objects["box/m"] = c.text
			b.broken["box/m"] = 2
			file := filepath.Join(t.TempDir(), "m")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, where := range []string{"s3://box/m", file} {
				l, err := Manifest(t.Context(), b, where, Filter{})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, l.Objects) + cmp.Diff(c.left, l.Left); diff != "" {
					t.Errorf("%s: %s", where, diff)
				}
			}
		})
	}
	b := newBucket()
	b.objects["box/m"] = "s3://box/a.csv\ns3://box/gone.csv\n"
	l, err := Manifest(t.Context(), b, "s3://box/m", Filter{Exclude: []string{"g*"}})
	if err != nil || len(l.Objects) != 1 || l.Left.Filtered != 1 {
		t.Errorf("filtered: %+v, %v", l, err)
	}
}

func TestManifestRefuses(t *testing.T) {
	var many, missing strings.Builder
	for i := range 30 {
		fmt.Fprintf(&many, "box/%d\n", i)
		fmt.Fprintf(&missing, "s3://box/none-%d\n", i)
	}
	for name, c := range map[string]struct {
		text string
		is   error // nil: a *ManifestError
		want []string
	}{
		"empty":              {"", nil, []string{"names no object"}},
		"comments":           {"# nothing\n", nil, []string{"names no object"}},
		"no entries":         {`{"entries":[]}`, nil, []string{"names no object"}},
		"no names":           {many.String(), nil, []string{"line 1:", "line 20:", "and 10 more"}},
		"a bucket":           {"s3://box\n", nil, []string{"line 1", "key"}},
		"a hostile key":      {"s3://box/a.csv\ns3://box/../b\n", nil, []string{"line 2", "segment"}},
		"no UTF-8":           {"s3://box/\xff\n", nil, []string{"UTF-8"}},
		"NUL":                {"s3://box/a\x00b\n", nil, []string{"control"}},
		"a version":          {"s3://box/a.csv\tv 1\n", nil, []string{"version"}},
		"binary":             {"PAR1\x00\x00\x15\x04", nil, []string{"line 1"}},
		"broken JSON":        {`{"entries":[`, nil, []string{"begins as JSON does"}},
		"other JSON":         {`{"files":[]}`, nil, []string{"neither"}},
		"entries of nothing": {`{"entries":[{"uri":"s3://box/a"}]}`, nil, []string{"entry 1"}},
		"numbers":            {`{"entries":[{"url":7}]}`, nil, []string{"JSON"}},
		"missing":            {"s3://box/a.csv\n" + missing.String(), ErrMissing, []string{"s3://box/none-0", "s3://box/none-19", "and 10 more"}},
		"a version missing":  {"s3://box/a.csv\tv9\n", ErrMissing, []string{"s3://box/a.csv version v9"}},
		"twice":              {"s3://box/a.csv\ns3://box/empty.csv\ns3://box/a.csv\n", ErrTwice, []string{"s3://box/a.csv"}},
		"twice, as it turns": {"s3://box/kept.csv\ns3://box/kept.csv\tv1\n", ErrTwice, []string{"kept.csv version v1"}},
		"an ORC inventory":   {`{"destinationBucket":"arn:aws:s3:::inv","fileFormat":"ORC","files":[]}`, nil, []string{"ORC", "only CSV"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket()
			b.objects["box/m"] = c.text
			l, err := Manifest(t.Context(), b, "s3://box/m", Filter{})
			if c.is == nil && !errors.As(err, new(*ManifestError)) || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("error %v (%d objects)", err, len(l.Objects))
			}
			wantText(t, err, c.want...)
		})
	}
	b := newBucket()
	b.objects["box/m"] = "s3://box/a.csv\n"
	b.broken["box/m"] = 99
	if _, err := Manifest(t.Context(), b, "s3://box/m", Filter{}); !errors.As(err, new(*object.UnavailableError)) {
		t.Error(err)
	}
	b.broken["box/m"], b.fail = 0, object.ErrForbidden
	if _, err := Manifest(t.Context(), b, "s3://box/m", Filter{}); !errors.Is(err, object.ErrForbidden) {
		t.Error(err)
	}
	for where, want := range map[string]error{"s3://box/none": object.ErrNotFound, "none": os.ErrNotExist} {
		if _, err := Manifest(t.Context(), b, where, Filter{}); !errors.Is(err, want) {
			t.Errorf("%s: %v", where, err)
		}
	}
	if _, err := Manifest(t.Context(), b, "s3://b", Filter{}); !errors.As(err, new(*ManifestError)) {
		t.Error(err)
	}
	if _, err := all(zeros{}, "m"); !errors.As(err, new(*ManifestError)) {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestManifestOfMany(t *testing.T) {
	b := newBucket()
	var m strings.Builder
	for i := range 5000 {
		name := fmt.Sprintf("box/%d.csv", (i*7919)%5000)
		b.objects[name] = name
		fmt.Fprintf(&m, "s3://%s\n", name)
	}
	b.objects["box/m"] = m.String()
	l, err := Manifest(t.Context(), b, "s3://box/m", Filter{})
	if err != nil || len(l.Objects) != 5000 || b.most.Load() > looksAtOnce {
		t.Fatalf("%d objects, %d at once, %v", len(l.Objects), b.most.Load(), err)
	}
	for i, o := range l.Objects {
		if want := fmt.Sprintf("%d.csv", (i*7919)%5000); o.Key != want || o.ETag != "e-box/"+want {
			t.Fatalf("%d: %+v", i, o)
		}
	}
}

func TestInventory(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	fmt.Fprint(z, `"box","a.csv","","true","false","1"`+"\n"+`"box","b+c%2Bd.csv","null","true","false","2"`+"\n"+
		`"box","old.csv","v7","false","false","4"`+"\n"+`"box","gone.csv","v9","true","true",""`+"\n")
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	plain := `"box","kept.csv","v1","true","false","4"` + "\n"
	manifest := func(format, schema, sum string) string {
		return fmt.Sprintf(`{"sourceBucket":"box","destinationBucket":"arn:aws:s3:::inv","version":"2016-11-30","fileFormat":%q,"fileSchema":%q,
			"files":[{"key":"data/1.csv.gz","size":1,"MD5checksum":%q},{"key":"data/2.csv","MD5checksum":""}]}`, format, schema, sum)
	}
	const schema = "Bucket, Key, VersionId, IsLatest, IsDeleteMarker, Size"
	sum := fmt.Sprintf("%x", md5.Sum(packed.Bytes()))
	for name, c := range map[string]struct {
		manifest, second string
		want             string // of an error
	}{
		"sound":         {manifest("CSV", schema, sum), plain, ""},
		"another file":  {manifest("CSV", schema, strings.Repeat("0", 32)), plain, "MD5"},
		"ragged":        {manifest("CSV", schema, sum), "\"box\",\"x\"\n", "row 0 of s3://inv/data/2.csv"},
		"bad key":       {manifest("CSV", schema, sum), strings.Replace(plain, "kept", "%zz", 1), "not as in URLs"},
		"hostile key":   {manifest("CSV", schema, sum), strings.Replace(plain, "kept.csv", "..%2Fx", 1), "segment"},
		"twice in it":   {manifest("CSV", "Bucket, Key, Key", sum), plain, "schema"},
		"truncated":     {manifest("CSV", schema, ""), packed.String()[:40], "data/2.csv"},
		"names nothing": {manifest("CSV", schema, sum), strings.Replace(plain, `"box"`, `""`, 1), "bucket"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBucket()
			b.objects["inv/manifest.json"], b.objects["inv/data/1.csv.gz"], b.objects["inv/data/2.csv"] = c.manifest, packed.String(), c.second
			l, err := Manifest(t.Context(), b, "s3://inv/manifest.json", Filter{})
			if c.want != "" {
				if !errors.As(err, new(*ManifestError)) {
					t.Fatal(err)
				}
				wantText(t, err, c.want)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a.csv", "b c+d.csv", "kept.csv"}, keys(l.Objects)) + cmp.Diff(Left{Old: 2}, l.Left); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// FuzzManifest: whatever a manifest is, what comes out of it can be asked for.
func FuzzManifest(f *testing.F) {
	for _, seed := range []string{"s3://box/a\n", "s3://box/a\tv1\r\n#\n", `{"entries":[{"url":"s3://box/a"}]}`, `{"fileFormat":"CSV","fileSchema":"Bucket, Key","destinationBucket":"arn:aws:s3:::box","files":[{"key":"a"}]}`, "\ufeff{}", "s3:///"} {
		f.Add([]byte(seed), []byte(`"box","a"`+"\n"))
	}
	f.Fuzz(func(t *testing.T, data, listed []byte) {
		b := newBucket()
		b.objects["box/a"] = string(listed)
		m := &manifest{where: "m", endpoint: b}
		names, err := m.parse(t.Context(), data)
		if err != nil {
			if !errors.As(err, new(*ManifestError)) && !errors.Is(err, object.ErrNotFound) {
				t.Fatal(err)
			}
			return
		}
		for _, n := range names {
			if err := n.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
