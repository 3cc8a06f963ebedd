package backfill

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/rows"
)

// fixed is a listing of an endpoint.
type fixed []object.Object

func (f fixed) List(_ context.Context, _, prefix, _ string) iter.Seq2[object.Object, error] {
	return func(yield func(object.Object, error) bool) {
		for _, o := range f {
			if strings.HasPrefix(o.Key, prefix) && !yield(o, nil) {
				return
			}
		}
	}
}

func found(key string, size int64) object.Object {
	return object.Object{Key: key, Info: object.Info{Size: size, ETag: "e-" + key}}
}

func keys(objects []Object) (list []string) {
	for _, o := range objects {
		list = append(list, o.Key)
	}
	return list
}

func TestListObjects(t *testing.T) {
	from := fixed{
		found("in/", 0), found("in/2025-01/a.csv", 5), found("in/2025-01/b.csv.gz", 0), found("in/2025-01/x/", 0), found("in/2025-01/x/c.json", 7),
		found("in/2025-02/a.csv", 1), found("in/folder/", 3), found("other", 9),
	}
	for name, c := range map[string]struct {
		p    Prefix
		want []string
		left Left
	}{
		"all":          {Prefix{Prefix: "in/"}, []string{"in/2025-01/a.csv", "in/2025-01/b.csv.gz", "in/2025-01/x/c.json", "in/2025-02/a.csv", "in/folder/"}, Left{Markers: 2}},
		"base name":    {Prefix{Prefix: "in/", Filter: Filter{Include: []string{"*.csv"}}}, []string{"in/2025-01/a.csv", "in/2025-02/a.csv"}, Left{Markers: 2, Filtered: 3}},
		"folder":       {Prefix{Prefix: "in/", Filter: Filter{Include: []string{"2025-01/*"}}}, []string{"in/2025-01/a.csv", "in/2025-01/b.csv.gz"}, Left{Markers: 2, Filtered: 3}},
		"folders":      {Prefix{Prefix: "in/", Filter: Filter{Include: []string{"2025-01/**"}, Exclude: []string{"*.{gz,zst}"}}}, []string{"in/2025-01/a.csv", "in/2025-01/x/c.json"}, Left{Markers: 2, Filtered: 3}},
		"half a name":  {Prefix{Prefix: "in/2025", Filter: Filter{Include: []string{"2025-*/[ab].csv"}}}, []string{"in/2025-01/a.csv", "in/2025-02/a.csv"}, Left{Markers: 1, Filtered: 2}},
		"none":         {Prefix{Prefix: "no"}, nil, Left{}},
		"no prefix":    {Prefix{Filter: Filter{Exclude: []string{"in/**"}}}, []string{"other"}, Left{Markers: 2, Filtered: 5}},
		"exclude wins": {Prefix{Filter: Filter{Include: []string{"other"}, Exclude: []string{"o*"}}}, nil, Left{Markers: 2, Filtered: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.Bucket = "box"
			l, err := c.p.List(t.Context(), from)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, keys(l.Objects)) + cmp.Diff(c.left, l.Left); diff != "" {
				t.Error(diff)
			}
			var left Left
			var one []Object
			for o, err := range c.p.Each(t.Context(), from, &left) {
				if err != nil {
					t.Fatal(err)
				}
				one = append(one, o)
			}
			if diff := cmp.Diff(l.Objects, one) + cmp.Diff(c.left, left); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestListRefuses(t *testing.T) {
	bad := fixed{found("a", 1)}
	for i := range 30 {
		bad = append(bad, found(fmt.Sprintf("b/../%d", i), 1))
	}
	_, err := Prefix{Bucket: "box"}.List(t.Context(), bad)
	var names *NamesError
	if !errors.As(err, &names) || !errors.Is(err, ErrHostile) || names.Count != 30 || len(names.Names) != shownFaults {
		t.Fatal(err)
	}
	wantText(t, err, "b/../0", "and 10 more", "--exclude")
	l, err := Prefix{Bucket: "box", Filter: Filter{Exclude: []string{"b/**"}}}.List(t.Context(), bad)
	if err != nil || len(l.Objects) != 1 {
		t.Errorf("left out: %v", err)
	}
	seen := 0
	for _, err := range (Prefix{Bucket: "box"}).Each(t.Context(), bad, nil) {
		if seen++; seen == 2 && !errors.Is(err, ErrHostile) {
			t.Error(err)
		}
	}
	if seen != 2 {
		t.Errorf("%d after an error", seen)
	}
	for _, p := range []string{"", "[a", "{a,b", `a\`} {
		_, err := Prefix{Bucket: "box", Filter: Filter{Exclude: []string{p}}}.List(t.Context(), bad)
		if !errors.As(err, new(*PatternError)) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// endless lists objects for ever.
type endless struct{ asked int }

func (e *endless) List(context.Context, string, string, string) iter.Seq2[object.Object, error] {
	return func(yield func(object.Object, error) bool) {
		for ; yield(found(fmt.Sprintf("%0900d", e.asked), 1), nil); e.asked++ {
		}
	}
}

func TestListIsBounded(t *testing.T) {
	var e endless
	_, err := Prefix{Bucket: "box"}.List(t.Context(), &e)
	if !errors.As(err, new(*JobError)) || e.asked > MaxFile/900 {
		t.Fatalf("after %d: %v", e.asked, err)
	}
	wantText(t, err, "split it by prefix")
}

func TestFormats(t *testing.T) {
	objects := func(names ...string) (list []Object) {
		for _, n := range names {
			list = append(list, Object{Bucket: "box", Key: n})
		}
		return list
	}
	kinds := func(r Read, list []Object) (all []string) {
		for _, o := range list {
			opts := r.Options(o)
			all = append(all, strings.TrimSuffix(string(opts.Format)+"+"+string(opts.Compression), "+"))
		}
		return all
	}
	for name, c := range map[string]struct {
		names []string
		as    As
		want  []string
		first string // the job's own
	}{
		"by names": {
			[]string{"a.csv", "x/b.JSONL.GZ", "c.json.gz", "d.parquet", "e.avro.zst", "f.tsv"},
			As{}, []string{"csv", "ndjson+gzip", "ndjson+gzip", "parquet", "avro+zstd", "tsv"}, "ndjson+gzip",
		},
		"not the packed": {[]string{"a.csv.gz", "b.csv", "c.csv"}, As{}, []string{"csv+gzip", "csv", "csv"}, "csv"},
		"given":          {[]string{"a", "b.txt", "c.log.gz", "part-0.zst", "d.csv"}, As{Format: rows.NDJSON}, []string{"ndjson", "ndjson", "ndjson+gzip", "ndjson+zstd", "ndjson"}, "ndjson"},
		"given packing":  {[]string{"a", "b.gz"}, As{Format: rows.CSV, Compression: rows.Zstd}, []string{"csv+zstd", "csv+zstd"}, "csv+zstd"},
		"not packed":     {[]string{"a.csv.gz"}, As{Compression: Unpacked}, []string{"csv"}, "csv"},
		"none":           {nil, As{}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			list := objects(c.names...)
			r, err := Formats(Read{}, list, c.as)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, kinds(r, list)); diff != "" {
				t.Error(diff)
			}
			if got := strings.TrimSuffix(string(r.Format)+"+"+string(r.Compression), "+"); got != c.first {
				t.Errorf("the job's is %s", got)
			}
			for _, o := range list {
				if o.Format == r.Format && o.Compression == r.Compression {
					t.Errorf("%s says what the job says", o.Key)
				}
			}
			again, err := Formats(r, list, c.as)
			if err != nil || !cmp.Equal(kinds(again, list), c.want) {
				t.Errorf("again: %v, %v", kinds(again, list), err)
			}
		})
	}
	_, err := Formats(Read{}, objects("a.csv", "README", "b.parquet.gz", "c.zip", "d.csv"), As{})
	var unclear *NamesError
	if !errors.As(err, &unclear) || !errors.Is(err, ErrNoFormat) {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"s3://box/README", "s3://box/b.parquet.gz", "s3://box/c.zip"}, unclear.Names); diff != "" {
		t.Error(diff)
	}
	wantText(t, err, "--format")
	for _, as := range []As{{Format: "xml"}, {Format: rows.CSV, Compression: "lz4"}, {Format: rows.Parquet, Compression: rows.Gzip}} {
		if _, err := Formats(Read{}, objects("a"), as); !errors.Is(err, ErrNoFormat) {
			t.Errorf("%+v: %v", as, err)
		}
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	write("b/2.csv", "x\n")
	write("b/1.csv", "")
	write("a/z.csv", "xyz")
	write("c.txt", "text")
	far := write("far/f.csv", "far")
	for link, to := range map[string]string{"b/link.csv": far, "b/folder": filepath.Dir(far), "b/dangling": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	paths := func(l Listing) (list []string) {
		for _, o := range l.Objects {
			p, err := filepath.Rel(root, o.Path)
			if err != nil || !isPath(o.Path) {
				t.Fatal(o.Path, err)
			}
			list = append(list, filepath.ToSlash(p))
		}
		return list
	}
	l, err := Files(t.Context(), []string{filepath.Join(root, "b"), filepath.Join(root, "c.txt"), filepath.Join(root, "a")}, Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"b/1.csv", "b/2.csv", "b/link.csv", "c.txt", "a/z.csv"}, paths(l)) + cmp.Diff(Left{Irregular: 2}, l.Left); diff != "" {
		t.Error(diff)
	}
	if l.Objects[0].Size != 0 || l.Objects[1].Size != 2 || l.Objects[2].Size != 3 {
		t.Errorf("%+v", l.Objects)
	}
	l, err = Files(t.Context(), []string{root}, Filter{Include: []string{"b/*"}, Exclude: []string{"1*"}})
	if err != nil || !slices.Equal(paths(l), []string{"b/2.csv", "b/link.csv"}) {
		t.Errorf("%v, %v", paths(l), err)
	}
	if _, err := Files(t.Context(), []string{root, far}, Filter{}); !errors.Is(err, ErrTwice) {
		t.Error(err)
	}
	if _, err := Files(t.Context(), []string{filepath.Join(root, "none")}, Filter{}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Files(t.Context(), []string{os.DevNull}, Filter{}); err == nil {
		t.Error("a device")
	}
	write("hostile/a\nb.csv", "")
	if _, err := Files(t.Context(), []string{root}, Filter{}); !errors.Is(err, ErrHostile) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Files(ctx, []string{root}, Filter{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestFileETag: whatever is done to a file, it has another one.
func TestFileETag(t *testing.T) {
	p := filepath.Join(t.TempDir(), "a")
	seen := map[string]string{}
	etag := func(what string) {
		t.Helper()
		info, err := os.Stat(p)
		if err != nil {
			t.Fatal(err)
		}
		e := FileETag(info)
		if seen[e] != "" || e != FileETag(info) {
			t.Errorf("%s: as %s", what, seen[e])
		}
		seen[e] = what
	}
	write := func(text string, at time.Time) {
		t.Helper()
		if err := errors.Join(os.WriteFile(p, []byte(text), 0o644), os.Chtimes(p, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("a", dawn)
	etag("new")
	write("b", dawn.Add(1))
	etag("written again")
	write("ab", dawn)
	etag("longer")
	if err := os.Rename(p, p+".old"); err != nil {
		t.Fatal(err)
	}
	write("x", dawn)
	etag("another file, as large and as old as the first")
}
