package filertest

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

func (e *env) list(dir, after string, limit int) []string {
	e.t.Helper()
	entries, err := e.List(e.ctx, dir, after, limit)
	e.ok(err)
	var names []string
	for _, entry := range entries {
		if path.Dir(entry.Path) != dir {
			e.t.Fatalf("list of %s has %s", dir, entry.Path)
		}
		names = append(names, path.Base(entry.Path))
	}
	return names
}

func (e *env) wantNames(got []string, want ...string) {
	e.t.Helper()
	if !slices.Equal(got, want) {
		e.t.Fatalf("got names %q, want %q", got, want)
	}
}

func listOrder(_ *testing.T, e *env) {
	e.wantNames(e.list(e.path("missing"), "", 0))
	e.wantNames(e.list(e.path("missing"), "x", 5))
	for _, name := range []string{"é", "b", "_x", "a-b", "a.b", "9", "10", "B", "a", "~", "a b"} {
		e.create(e.path("d/"+name), name)
	}
	e.create(e.path("d/a+/inner"), "")
	want := []string{"10", "9", "B", "_x", "a", "a b", "a+", "a-b", "a.b", "b", "~", "é"}
	e.wantNames(e.list(e.path("d"), "", 0), want...)
	e.wantNames(e.list(e.path("d"), "a b", 0), want[6:]...)
	e.wantNames(e.list(e.path("d"), "a!", 0), want[6:]...) // between two names
	e.wantNames(e.list(e.path("d"), "é", 0))
	e.wantNames(e.list(e.path("d/a"), "", 0)) // a file
}

func listPages(_ *testing.T, e *env) {
	var want []string
	for i := range 25 {
		want = append(want, fmt.Sprintf("%04d", i))
	}
	e.together(len(want), func(i int) error {
		return e.Create(e.ctx, e.path("d/"+want[i]), filer.File{ID: filer.NewID()})
	})
	var got []string
	for after, page := "", 0; ; page++ {
		names := e.list(e.path("d"), after, 7)
		got = append(got, names...)
		if len(names) < 7 {
			if page != 3 || len(names) != 4 {
				e.t.Fatalf("page %d has %d names", page, len(names))
			}
			break
		}
		after = names[6]
	}
	e.wantNames(got, want...)
	e.wantNames(e.list(e.path("d"), "", 1), want[0])
	e.wantNames(e.list(e.path("d"), "", 25), want...)
	e.wantNames(e.list(e.path("d"), "", 5000), want...)
}

func listDescribes(t *testing.T, e *env) {
	data := random(80_000)
	files := []filer.File{
		{ID: filer.NewID(), Attrs: filer.Attrs{"Base": "0"}, Content: []byte("inline")},
		{ID: filer.NewID(), Attrs: filer.Attrs{"Base": "1"}, Blobs: []filer.Blob{e.upload(e.path("d/1"), data)}},
	}
	for i, f := range files {
		e.ok(e.Create(e.ctx, e.path(fmt.Sprintf("d/%d", i)), f))
	}
	e.create(e.path("d/2/inner"), "")
	entries, err := e.List(e.ctx, e.path("d"), "", 0)
	e.ok(err)
	if len(entries) != 3 || !entries[2].IsDir || entries[0].IsDir || entries[1].IsDir {
		t.Fatalf("got %+v", entries)
	}
	for i, f := range files {
		if entries[i].ID != f.ID || entries[i].Size == 0 {
			t.Fatalf("entry %d is %+v, want ID %s", i, entries[i], f.ID)
		}
		e.wantAttrs(entries[i].Attrs, f.Attrs)
	}
	e.wantBytes(entries[0], 0, files[0].Content)
	e.wantBytes(entries[1], 0, data)
}

func listDefault(t *testing.T, e *env) {
	const writers, each = 13, 77
	e.together(writers, func(w int) error {
		for i := range each {
			if err := e.Create(e.ctx, e.path(fmt.Sprintf("d/%04d", w*each+i)), filer.File{ID: filer.NewID()}); err != nil {
				return err
			}
		}
		return nil
	})
	if names := e.list(e.path("d"), "", 0); len(names) != 1000 || names[999] != "0999" {
		t.Fatalf("%d names without a limit, want 1000", len(names))
	}
	e.wantNames(e.list(e.path("d"), "0999", 0), "1000")
	if names := e.list(e.path("d"), "", 2000); len(names) != writers*each {
		t.Fatalf("%d names, want %d", len(names), writers*each)
	}
}

func attributes(_ *testing.T, e *env) {
	many := filer.Attrs{"Empty": "", "Space": " a  b ", "Json": `{"a":[1,"x=y;z"],"b":null}`, "A": "1", "X-Y-Z1": "~!@#$%^&*()_+"}
	for i := range 100 {
		many[fmt.Sprintf("Range-%d", i)] = strings.Repeat("v", i)
	}
	for name, attrs := range map[string]filer.Attrs{"many": many, "none": nil, "long": {"Long": strings.Repeat("x", 60_000)}} {
		want := filer.Attrs{}
		for k, v := range attrs {
			want[k] = v
		}
		e.ok(e.Create(e.ctx, e.path(name), filer.File{ID: filer.NewID(), Attrs: attrs, Content: []byte(name)}))
		e.wantAttrs(e.lookup(e.path(name)).Attrs, want)
	}
}

func contentSizes(t *testing.T, e *env) {
	for _, size := range []int{0, 1, filer.InlineLimit, filer.MaxInline} {
		p := e.path(fmt.Sprint(size))
		f := filer.File{ID: filer.NewID(), Content: random(size)}
		e.ok(e.Create(e.ctx, p, f))
		got := e.lookup(p)
		if got.Content == nil || !bytes.Equal(got.Content, f.Content) || got.Size != int64(size) || len(got.Blobs) > 0 {
			t.Fatalf("content of %d bytes came back with %d and size %d", size, len(got.Content), got.Size)
		}
		for _, off := range []int64{0, int64(size) / 2, int64(size)} {
			e.wantBytes(got, off, f.Content[off:])
		}
		e.wantBytes(got, int64(size)+1, nil)
	}
}

func blobSizes(t *testing.T, e *env) {
	text := []byte(strings.Repeat("a line of text, which compresses\n", 5000))
	for i, data := range [][]byte{random(1), random(4096), random(1<<20 - 1), random(8 << 20), random(filer.MaxBlob), text} {
		p := e.path(fmt.Sprint(i))
		f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(p, data)}}
		e.ok(e.Create(e.ctx, p, f))
		got := e.lookup(p)
		if got.Content != nil || got.Size != int64(len(data)) || len(got.Blobs) != 1 || got.Blobs[0].ID != f.Blobs[0].ID {
			t.Fatalf("blob of %d bytes came back as %+v", len(data), got)
		}
		e.wantBytes(got, 0, data)
		e.wantBytes(got, int64(len(data)/2), data[len(data)/2:])
	}
	for _, size := range []int{0, filer.MaxBlob + 1} {
		_, err := e.Upload(e.ctx, e.path("x"), make([]byte, size))
		e.want(err, filer.ErrInvalid)
	}
}

func blobOffsets(_ *testing.T, e *env) {
	p := e.path("f")
	var whole []byte
	f := filer.File{ID: filer.NewID()}
	for _, size := range []int{1000, 1, 300_000, 77} {
		whole = append(whole, random(size)...)
		f.Blobs = append(f.Blobs, e.upload(p, random(size)))
	}
	e.ok(e.Create(e.ctx, p, f))
	got := e.lookup(p)
	size := int64(len(whole))
	for _, off := range []int64{0, 1, 999, 1000, 1001, 1002, 150_000, 301_000, 301_001, size - 1, size} {
		e.wantBytes(got, off, whole[off:])
	}
	for _, off := range []int64{size + 1, size * 10} {
		e.wantBytes(got, off, nil)
	}
	_, err := e.Open(e.ctx, got, -1)
	e.want(err, filer.ErrInvalid)
	_, err = e.Open(e.ctx, e.lookup(e.root), 0)
	e.want(err, filer.ErrInvalid)
}

func discard(_ *testing.T, e *env) {
	b, kept := e.upload(e.path("f"), random(3000)), e.upload(e.path("f"), random(3001))
	entry := filer.Entry{Path: e.path("f"), Size: b.Size, Blobs: []filer.Blob{b}}
	e.wantBytes(entry, 0, random(3000))
	e.ok(e.Discard(e.ctx, b))
	e.wantGone(entry)
	e.ok(e.Discard(e.ctx, b))
	entry = filer.Entry{Path: e.path("f"), Size: b.Size + kept.Size, Blobs: []filer.Blob{kept, b}}
	e.wantGone(entry)
	e.wantBytes(filer.Entry{Path: e.path("f"), Size: kept.Size, Blobs: []filer.Blob{kept}}, 0, random(3001))
	e.ok(e.Discard(e.ctx, kept))
}

func dataNotKept(_ *testing.T, e *env) {
	p := e.path("f")
	data := random(2000)
	b := e.upload(p, data)
	clear(data)
	e.wantBytes(filer.Entry{Path: p, Size: b.Size, Blobs: []filer.Blob{b}}, 0, random(2000))
	e.ok(e.Discard(e.ctx, b))
	f := filer.File{ID: filer.NewID(), Content: []byte("content"), Attrs: filer.Attrs{"A": "1"}}
	e.ok(e.Create(e.ctx, p, f))
	clear(f.Content)
	f.Attrs["A"] = "2"
	got := e.lookup(p)
	e.wantAttrs(got.Attrs, filer.Attrs{"A": "1"})
	clear(got.Content)
	got.Attrs["A"] = "3"
	e.wantFile(p, f.ID, "content")
	e.wantAttrs(e.lookup(p).Attrs, filer.Attrs{"A": "1"})
}

func names(t *testing.T, e *env) {
	list := []string{
		"with space", " leading", "tab%09", "100%", "a?b#c&d=e", "plus+plus", `quo"te's`, "back`tick", "semi;colon:comma,",
		".hidden", "..double", "end.", "a..b", "...", "@", "{}[]|<>^~", "日本語のトピック", "Straße-ÿ", "👍🏽", "e\u0301", "\u00e9",
		strings.Repeat("n", 200) + ".avro", strings.Repeat("é", filer.MaxName/2), strings.Repeat("m", filer.MaxName),
	}
	for _, name := range list {
		p := e.path("d/" + name + "/" + name)
		data := random(70_000)
		f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(p, data)}}
		e.ok(e.Create(e.ctx, p, f))
		got := e.lookup(p)
		if got.Path != p || got.ID != f.ID {
			t.Fatalf("%q came back as %q with ID %q", p, got.Path, got.ID)
		}
		e.wantBytes(got, 69_000, data[69_000:])
		e.wantNames(e.list(e.path("d/"+name), "", 0), name)
		e.ok(e.Delete(e.ctx, p, f.ID))
	}
	slices.Sort(list)
	e.wantNames(e.list(e.path("d"), "", 0), list...)
}

func readYourWrites(_ *testing.T, e *env) {
	p := e.path("d/f")
	for i := range 30 {
		id := e.create(p, fmt.Sprint(i))
		e.wantFile(p, id, fmt.Sprint(i))
		f := filer.File{ID: filer.NewID(), Content: []byte("updated")}
		e.ok(e.Update(e.ctx, p, id, f))
		e.wantFile(p, f.ID, "updated")
		e.wantNames(e.list(e.path("d"), "", 0), "f")
		e.ok(e.Delete(e.ctx, p, f.ID))
		_, err := e.Lookup(e.ctx, p)
		e.want(err, filer.ErrNotFound)
		e.wantNames(e.list(e.path("d"), "", 0))
		f = filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(p, random(9))}}
		e.ok(e.Create(e.ctx, p, f))
		r, err := e.Open(e.ctx, e.lookup(p), 4)
		e.ok(err)
		got, err := io.ReadAll(r)
		e.ok(err)
		e.ok(r.Close())
		if !bytes.Equal(got, random(9)[4:]) {
			e.t.Fatal("wrong bytes")
		}
		e.ok(e.Delete(e.ctx, p, ""))
	}
}

func times(t *testing.T, e *env) {
	const slack = 2 * time.Second // clocks of two machines
	before := time.Now().Add(-slack)
	id := e.create(e.path("f"), "")
	first := e.lookup(e.path("f")).MTime
	if after := time.Now().Add(slack); first.Before(before) || first.After(after) {
		t.Fatalf("time is %v, want one between %v and %v", first, before, after)
	}
	given := time.Unix(1_700_000_000, 999_999_999)
	e.ok(e.Update(e.ctx, e.path("f"), id, filer.File{ID: filer.NewID(), MTime: given}))
	if got := e.lookup(e.path("f")).MTime; !got.Equal(given) {
		t.Fatalf("time is %v, want %v", got, given)
	}
}
