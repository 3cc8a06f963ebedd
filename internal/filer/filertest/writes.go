package filertest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

func createLookup(t *testing.T, e *env) {
	path := e.path("a/b/c")
	mtime := time.Date(2024, 2, 29, 12, 30, 15, 123456789, time.UTC)
	f := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{"Base": "7"}, Content: []byte("hello"), MTime: mtime}
	e.ok(e.Create(e.ctx, path, f))
	got := e.lookup(path)
	if got.Path != path || got.ID != f.ID || got.Size != 5 || string(got.Content) != "hello" || got.IsDir || len(got.Blobs) > 0 {
		t.Fatalf("got %+v", got)
	}
	if !got.MTime.Equal(mtime) {
		t.Fatalf("time is %v, want %v", got.MTime, mtime)
	}
	e.wantAttrs(got.Attrs, f.Attrs)
	if dir := e.lookup(e.path("a")); !dir.IsDir || dir.ID != "" {
		t.Fatalf("parent is %+v, want a directory", dir)
	}
	for _, missing := range []string{e.path("a/b/d"), e.path("no/such/folder"), path + "/below"} {
		_, err := e.Lookup(e.ctx, missing)
		e.want(err, filer.ErrNotFound)
	}
}

func createExclusive(t *testing.T, e *env) {
	path := e.path("one")
	winners := make([]string, racers)
	e.together(racers, func(i int) error {
		f := filer.File{ID: filer.NewID(), Content: []byte(strconv.Itoa(i))}
		err := e.Create(e.ctx, path, f)
		if errors.Is(err, filer.ErrExists) {
			return nil
		}
		winners[i] = f.ID
		return err
	})
	won := -1
	for i, id := range winners {
		if id != "" && won >= 0 {
			t.Fatalf("writers %d and %d were both told that they won", won, i)
		}
		if id != "" {
			won = i
		}
	}
	if won < 0 {
		t.Fatal("nobody won")
	}
	e.wantFile(path, winners[won], strconv.Itoa(won))
}

func loserKeepsBlob(t *testing.T, e *env) {
	taken, free := e.path("0"), e.path("1")
	e.create(taken, "first")
	data := random(100_000)
	f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(taken, data)}}
	e.want(e.Create(e.ctx, taken, f), filer.ErrExists)
	e.wantBytes(filer.Entry{Path: taken, Size: int64(len(data)), Blobs: f.Blobs}, 0, data)
	f.Attrs = filer.Attrs{"Base": "1"}
	e.ok(e.Create(e.ctx, free, f))
	got := e.lookup(free)
	e.wantBytes(got, 0, data)
	if got.ID != f.ID || got.Size != int64(len(data)) || got.Content != nil {
		t.Fatalf("got %+v", got)
	}
}

func createOnExisting(_ *testing.T, e *env) {
	id := e.create(e.path("dir/file"), "x")
	again := filer.File{ID: filer.NewID()}
	e.want(e.Create(e.ctx, e.path("dir/file"), again), filer.ErrExists)
	e.want(e.Create(e.ctx, e.path("dir"), again), filer.ErrExists)
	e.wantFile(e.path("dir/file"), id, "x")
}

// appendersRace is the use that everything stands on: writers that each take
// the next free number of a log.
func appendersRace(t *testing.T, e *env) {
	const writers, each = 8, 20
	var (
		mu   sync.Mutex
		wins = map[int]string{}
	)
	e.together(writers, func(w int) error {
		for n, left := 0, each; left > 0; n++ {
			f := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{"Writer": strconv.Itoa(w)}}
			err := e.Create(e.ctx, e.path(fmt.Sprintf("%016d", n)), f)
			if errors.Is(err, filer.ErrExists) {
				continue
			}
			if err != nil {
				return err
			}
			mu.Lock()
			other := wins[n]
			wins[n] = f.ID
			mu.Unlock()
			if other != "" {
				return fmt.Errorf("number %d was won by %s and %s", n, other, f.ID)
			}
			left--
		}
		return nil
	})
	entries, err := e.List(e.ctx, e.root, "", 0)
	e.ok(err)
	if len(entries) != writers*each || len(wins) != writers*each {
		t.Fatalf("%d entries and %d wins, want %d", len(entries), len(wins), writers*each)
	}
	for n, entry := range entries {
		if entry.ID != wins[n] || entry.Path != e.path(fmt.Sprintf("%016d", n)) {
			t.Fatalf("entry %d is %s with ID %s, want ID %s", n, entry.Path, entry.ID, wins[n])
		}
	}
}

func updateConditional(_ *testing.T, e *env) {
	path := e.path("f")
	f := filer.File{ID: filer.NewID(), Content: []byte("new")}
	e.want(e.Update(e.ctx, path, filer.NewID(), f), filer.ErrNotFound)
	first := filer.File{ID: filer.NewID(), Content: []byte("old"), Attrs: filer.Attrs{"Old": "1"}}
	e.ok(e.Create(e.ctx, path, first))
	e.want(e.Update(e.ctx, path, filer.NewID(), f), filer.ErrConflict)
	e.want(e.Update(e.ctx, path, "", f), filer.ErrInvalid)
	e.wantFile(path, first.ID, "old")
	e.ok(e.Update(e.ctx, path, first.ID, f))
	e.wantFile(path, f.ID, "new")
	e.wantAttrs(e.lookup(path).Attrs, filer.Attrs{})
	e.want(e.Update(e.ctx, path, first.ID, first), filer.ErrConflict)
	e.create(e.path("dir/x"), "")
	e.want(e.Update(e.ctx, e.path("dir"), first.ID, f), filer.ErrConflict)
}

func updatesRace(t *testing.T, e *env) {
	path := e.path("counter")
	e.create(path, "0")
	var conflicts atomic.Int64
	e.together(racers, func(int) error {
		for {
			old, err := e.Lookup(e.ctx, path)
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(old.Content))
			if err != nil {
				return err
			}
			err = e.Update(e.ctx, path, old.ID, filer.File{ID: filer.NewID(), Content: []byte(strconv.Itoa(n + 1))})
			if !errors.Is(err, filer.ErrConflict) {
				return err
			}
			conflicts.Add(1)
		}
	})
	if got := string(e.lookup(path).Content); got != strconv.Itoa(racers) {
		t.Fatalf("after %d increments the counter is %s (%d conflicts)", racers, got, conflicts.Load())
	}
}

func updateFrees(_ *testing.T, e *env) {
	path := e.path("f")
	f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(path, random(70_000)), e.upload(path, random(10))}}
	e.ok(e.Create(e.ctx, path, f))
	old := e.lookup(path)
	e.ok(e.Update(e.ctx, path, f.ID, filer.File{ID: filer.NewID(), Content: []byte("small")}))
	e.wantGone(old)
	e.wantGone(filer.Entry{Path: path, Size: 10, Blobs: old.Blobs[1:]})
}

// updateKeeps replaces attributes and adds a blob, as found and as uploaded.
func updateKeeps(_ *testing.T, e *env) {
	path := e.path("f")
	one, two, three := random(70_000), random(300), random(5000)
	f := filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(path, one), e.upload(path, two)}}
	e.ok(e.Create(e.ctx, path, f))
	old := e.lookup(path)
	added := filer.File{ID: filer.NewID(), Attrs: filer.Attrs{"Pinned": "1"}, Blobs: []filer.Blob{old.Blobs[0], e.upload(path, three)}}
	e.ok(e.Update(e.ctx, path, f.ID, added))
	e.wantGone(filer.Entry{Path: path, Size: 300, Blobs: old.Blobs[1:]})
	got := e.lookup(path)
	e.wantBytes(got, 0, append(one, three...))
	e.wantAttrs(got.Attrs, added.Attrs)
}

func deleteConditional(_ *testing.T, e *env) {
	path := e.path("f")
	for _, expect := range []string{"", filer.NewID()} {
		e.ok(e.Delete(e.ctx, path, expect))
		e.ok(e.Delete(e.ctx, e.path("no/such/folder/f"), expect))
	}
	id := e.create(path, "1")
	e.want(e.Delete(e.ctx, path, filer.NewID()), filer.ErrConflict)
	e.wantFile(path, id, "1")
	e.ok(e.Delete(e.ctx, path, id))
	_, err := e.Lookup(e.ctx, path)
	e.want(err, filer.ErrNotFound)
	e.ok(e.Delete(e.ctx, path, id))

	id = e.create(path, "2") // a number that was deleted can be won again
	e.wantFile(path, id, "2")
	e.ok(e.Delete(e.ctx, path, ""))
	_, err = e.Lookup(e.ctx, path)
	e.want(err, filer.ErrNotFound)
}

func deleteFrees(_ *testing.T, e *env) {
	file, tree := e.path("file"), e.path("tree/a/b")
	var old []filer.Entry
	for _, path := range []string{file, tree} {
		e.ok(e.Create(e.ctx, path, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{e.upload(path, random(70_000))}}))
		old = append(old, e.lookup(path))
	}
	e.ok(e.Delete(e.ctx, file, old[0].ID))
	e.ok(e.DeleteTree(e.ctx, e.path("tree")))
	for _, entry := range old {
		e.wantGone(entry)
	}
}

func deleteTree(_ *testing.T, e *env) {
	e.ok(e.DeleteTree(e.ctx, e.path("no/such/folder")))
	inside := e.create(e.path("a/b/c"), "in")
	e.create(e.path("a/d"), "in too")
	outside := e.create(e.path("ab"), "out")
	e.want(e.Delete(e.ctx, e.path("a"), ""), filer.ErrInvalid)
	e.want(e.Delete(e.ctx, e.path("a"), inside), filer.ErrConflict)
	e.wantFile(e.path("a/b/c"), inside, "in")
	e.ok(e.DeleteTree(e.ctx, e.path("a")))
	for _, gone := range []string{"a", "a/b", "a/b/c", "a/d"} {
		_, err := e.Lookup(e.ctx, e.path(gone))
		e.want(err, filer.ErrNotFound)
	}
	e.wantFile(e.path("ab"), outside, "out")
	e.ok(e.DeleteTree(e.ctx, e.path("a")))
	again := e.create(e.path("a/b/c"), "again")
	e.wantFile(e.path("a/b/c"), again, "again")
}
