package commitlog

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const logDir = "/buckets/log/x"

type tester interface {
	Helper()
	Fatal(...any)
}

// fill makes a log of n entries.
func fill(t tester, store filer.Store, n int) (*Log, []Entry) {
	t.Helper()
	l := New(store, logDir, ".x")
	if err := l.Init(context.Background()); err != nil {
		t.Fatal(err)
	}
	var tail Entry
	var all []Entry
	for range n {
		e, err := l.Append(context.Background(), tail, filer.File{ID: filer.NewID()})
		if err != nil {
			t.Fatal(err)
		}
		tail = e
		all = append(all, e)
	}
	return l, all
}

func TestTail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fs := memfs.New()
		n := rapid.IntRange(0, 70).Draw(t, "length")
		_, all := fill(t, fs.Client("writer", nil), n)
		lookups := 0
		l := New(fs.Client("reader", func(memfs.Op) memfs.Fault { lookups++; return memfs.Fault{} }), logDir, ".x")
		head, known := 0, Entry{}
		if n > 0 {
			head = rapid.IntRange(0, n-1).Draw(t, "head")
			if err := l.Trim(t.Context(), uint64(head)); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "known") {
				known = all[rapid.IntRange(0, n-1).Draw(t, "known entry")]
			}
		}
		lookups = 0
		tail, err := l.Tail(t.Context(), known)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 && tail.ID != "" || n > 0 && (tail.N != uint64(n-1) || tail.ID != all[n-1].ID) {
			t.Fatalf("the tail is %d (%s)", tail.N, tail.ID)
		}
		from := head
		if known.ID != "" {
			from = max(from, int(known.N))
		}
		if limit := 6 + 2*bits.Len(uint(n-from)); lookups > limit {
			t.Fatalf("%d lookups over a distance of %d, want at most %d", lookups, n-from, limit)
		}
	})
}

func TestTypedErrors(t *testing.T) {
	ctx := t.Context()
	fs := memfs.New()
	c := fs.Client("c", nil)
	none := New(c, logDir, ".x")
	if _, err := none.Tail(ctx, Entry{}); !errors.Is(err, ErrNoLog) {
		t.Errorf("no log: error %v", err)
	}
	l, all := fill(t, c, 4)

	var lost *LostError
	if _, err := l.Append(ctx, all[1], filer.File{ID: "late"}); !errors.As(err, &lost) || lost.Winner.ID != all[2].ID {
		t.Errorf("lost race: error %v", err)
	}
	fork := all[1]
	fork.ID = "another"
	var chain *ChainError
	if _, err := l.Append(ctx, fork, filer.File{ID: "fork"}); !errors.As(err, &chain) || chain.N != 2 || chain.Prev != all[1].ID {
		t.Errorf("fork: error %v", err)
	}
	if _, err := l.Tail(ctx, fork); !errors.Is(err, ErrWentBack) {
		t.Errorf("another entry at a known place: error %v", err)
	}
	if err := l.Confirm(ctx, fork); !errors.As(err, &lost) {
		t.Errorf("confirm another: error %v", err)
	}
	if err := l.Trim(ctx, 4); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("trim the tail: error %v", err)
	}
	if err := l.Trim(ctx, 3); err != nil {
		t.Fatal(err)
	}
	if err := l.Confirm(ctx, all[1]); err != nil {
		t.Errorf("confirm what was trimmed: %v", err)
	}
	// A writer that knows only entry 0 wins number 1 again, in vain.
	if _, err := l.Append(ctx, all[0], filer.File{ID: "void"}); !errors.Is(err, ErrVoid) {
		t.Errorf("win below head: error %v", err)
	}
	if _, err := l.At(ctx, 1); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("a void win is still there: %v", err)
	}
	if err := c.Delete(ctx, l.Path(3), ""); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"confirm": l.Confirm(ctx, all[3]), "tail": second(l.Tail(ctx, all[3])), "tail from head": second(l.Tail(ctx, Entry{}))} {
		if !errors.Is(err, ErrWentBack) {
			t.Errorf("%s after the tail was lost: error %v", name, err)
		}
	}
}

func second(_ Entry, err error) error { return err }

func TestBadHead(t *testing.T) {
	c := memfs.New().Client("c", nil)
	for i, head := range []string{"", "-1", "x", "18446744073709551616"} {
		dir := fmt.Sprintf("%s%d", logDir, i)
		if err := c.Create(t.Context(), dir+"/head", filer.File{ID: "h", Attrs: filer.Attrs{"Head": head}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := New(c, dir, ".x").Head(t.Context()); !errors.Is(err, filer.ErrCorrupt) {
			t.Errorf("head %q: error %v", head, err)
		}
	}
}

// hiding leaves one entry out of listings, as a listing does that races with
// its creation.
type hiding struct {
	filer.Store
	name string
}

func (h hiding) List(ctx context.Context, dir, after string, limit int) ([]filer.Entry, error) {
	page, err := h.Store.List(ctx, dir, after, limit)
	var seen []filer.Entry
	for _, e := range page {
		if e.Name() != h.name {
			seen = append(seen, e)
		}
	}
	return seen, err
}

func TestEntriesWithGap(t *testing.T) {
	c := memfs.New().Client("c", nil)
	full, all := fill(t, c, 5)
	l := New(hiding{c, full.Name(2)}, logDir, ".x")
	read := func() (n int, err error) {
		for e, err := range l.Entries(t.Context(), 0) {
			if err != nil {
				return n, err
			}
			if e.ID != all[n].ID {
				t.Fatalf("entry %d is %s, want %s", n, e.ID, all[n].ID)
			}
			n++
		}
		return n, nil
	}
	if n, err := read(); n != 5 || err != nil {
		t.Errorf("read %d entries, error %v", n, err)
	}
	if err := c.Delete(t.Context(), full.Path(2), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := read(); !errors.Is(err, ErrWentBack) {
		t.Errorf("with a lost entry: error %v", err)
	}
}

// TestTrimCrash kills a trim after every call, and lets another finish it.
func TestTrimCrash(t *testing.T) {
	for n := 1; ; n++ {
		fs := memfs.New()
		_, all := fill(t, fs.Client("writer", nil), 8)
		ctx, kill := context.WithCancel(t.Context())
		calls := 0
		c := fs.Client("trimmer", func(memfs.Op) memfs.Fault {
			if calls++; calls <= n {
				return memfs.Fault{}
			}
			kill()
			return memfs.Fault{Before: memfs.ErrKilled}
		})
		err := New(c, logDir, ".x").Trim(ctx, 5)
		kill()
		if (err == nil) != (calls <= n) {
			t.Fatalf("crash after call %d of %d: error %v", n, calls, err)
		}
		l := New(fs.Client("next", nil), logDir, ".x")
		if tail, err := l.Tail(t.Context(), all[7]); err != nil || tail.N != 7 {
			t.Fatalf("after a crash after call %d: tail %d, error %v", n, tail.N, err)
		}
		if err := l.Trim(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		if paths := fs.Paths(); len(paths) != 4 {
			t.Fatalf("after a crash after call %d: %q", n, paths)
		}
		if err == nil {
			return
		}
	}
}
