package memfs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

const path = "/buckets/mem/f"

var errFault = errors.New("injected")

// once gives a hook that injects a fault into the first call of a name.
func once(name string, f memfs.Fault) memfs.Hook {
	return func(op memfs.Op) memfs.Fault {
		if op.Name == name && op.N == 1 {
			return f
		}
		return memfs.Fault{}
	}
}

func file(content string) filer.File { return filer.File{ID: filer.NewID(), Content: []byte(content)} }

func exists(t *testing.T, fs *memfs.FS) bool {
	t.Helper()
	return slices.Contains(fs.Paths(), path)
}

func TestFaults(t *testing.T) {
	const second = time.Second
	tests := []struct {
		name    string
		fault   memfs.Fault
		want    error
		took    time.Duration
		effect  bool          // when the call returns
		effects time.Duration // when the effect is there, if not at once
	}{
		{"none", memfs.Fault{}, nil, 0, true, 0},
		{"before", memfs.Fault{Before: errFault}, errFault, 0, false, 0},
		{"lost reply", memfs.Fault{After: errFault}, errFault, 0, true, 0},
		{"delay", memfs.Fault{Delay: second}, nil, second, true, 0},
		{"delay, then failure", memfs.Fault{Delay: second, Before: errFault}, errFault, second, false, 0},
		{"hold", memfs.Fault{Hold: second}, nil, second, true, 0},
		{"delay, hold, lost reply", memfs.Fault{Delay: second, Hold: second, After: errFault}, errFault, 2 * second, true, 0},
		{"late", memfs.Fault{After: errFault, Late: second}, errFault, 0, false, second},
		{"late by default", memfs.Fault{Late: second}, memfs.ErrLost, 0, false, second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fs := memfs.New()
				begin := time.Now()
				err := fs.Client("c", once("Create", tt.fault)).Create(t.Context(), path, file("x"))
				if !errors.Is(err, tt.want) || time.Since(begin) != tt.took || exists(t, fs) != tt.effect {
					t.Errorf("error %v after %v, effect %v", err, time.Since(begin), exists(t, fs))
				}
				if tt.effects > 0 {
					<-time.After(tt.effects - 1)
					if exists(t, fs) {
						t.Error("the effect came too early")
					}
					fs.Settle()
					if !exists(t, fs) || time.Since(begin) != tt.effects {
						t.Errorf("after %v effect is %v", time.Since(begin), exists(t, fs))
					}
				}
			})
		})
	}
}

// TestLateLoses shows that a late create meets what was written meanwhile.
func TestLateLoses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		slow := fs.Client("slow", once("Create", memfs.Fault{Late: time.Second}))
		if err := slow.Create(t.Context(), path, file("slow")); !errors.Is(err, memfs.ErrLost) {
			t.Fatal(err)
		}
		quick := file("quick")
		if err := fs.Client("quick", nil).Create(t.Context(), path, quick); err != nil {
			t.Fatal(err)
		}
		fs.Settle()
		if e, err := slow.Lookup(t.Context(), path); err != nil || e.ID != quick.ID {
			t.Errorf("got %+v, error %v", e, err)
		}
	})
}

func TestKill(t *testing.T) {
	for name, tt := range map[string]struct {
		fault  memfs.Fault
		effect bool
	}{
		"in a delay": {memfs.Fault{Delay: time.Hour}, false},
		"in a hold":  {memfs.Fault{Hold: time.Hour}, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			fs := memfs.New()
			c := fs.Client("c", once("Create", tt.fault))
			done := make(chan error, 1)
			go func() { done <- c.Create(t.Context(), path, file("x")) }()
			synctest.Wait()
			c.Kill()
			c.Kill()
			if err := <-done; !errors.Is(err, memfs.ErrKilled) || exists(t, fs) != tt.effect {
				t.Errorf("%s: error %v, effect %v", name, err, exists(t, fs))
			}
			for call, err := range everyCall(t.Context(), c) {
				if !errors.Is(err, memfs.ErrKilled) {
					t.Errorf("%s: then %s gives error %v", name, call, err)
				}
			}
			if err := fs.Client("other", nil).Delete(t.Context(), path, ""); err != nil {
				t.Errorf("%s: another client: %v", name, err)
			}
		})
	}
}

func TestKillSparesLateEffects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		c := fs.Client("c", once("Create", memfs.Fault{Late: time.Minute}))
		_ = c.Create(t.Context(), path, file("x")) // its reply is lost
		c.Kill()
		fs.Settle()
		if !exists(t, fs) {
			t.Error("killing the client stopped a request that was on its way")
		}
	})
}

func everyCall(ctx context.Context, c *memfs.Client) map[string]error {
	calls := map[string]error{
		"Create":     c.Create(ctx, path, file("x")),
		"Update":     c.Update(ctx, path, "x", file("x")),
		"Delete":     c.Delete(ctx, path, ""),
		"DeleteTree": c.DeleteTree(ctx, path),
		"Discard":    c.Discard(ctx, filer.Blob{ID: "1,1", Size: 1}),
	}
	_, calls["Lookup"] = c.Lookup(ctx, path)
	_, calls["List"] = c.List(ctx, path, "", 0)
	_, calls["Upload"] = c.Upload(ctx, path, []byte("x"))
	_, calls["Open"] = c.Open(ctx, filer.Entry{Path: path}, 0)
	return calls
}

// TestHookSees checks what hooks are told, by making every call of a client.
func TestHookSees(t *testing.T) {
	var (
		mu   sync.Mutex
		seen = map[string]int{}
	)
	fs := memfs.New()
	c := fs.Client("me", func(op memfs.Op) memfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		seen[fmt.Sprintf("%s %s %s", op.Client, op.Name, op.Path)] = op.N
		return memfs.Fault{}
	})
	for range 3 {
		everyCall(t.Context(), c)
	}
	b, err := c.Upload(t.Context(), path, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Discard(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	r, err := c.Open(t.Context(), filer.Entry{Path: path, Size: 1, Content: []byte("x")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"Create": 3, "Update": 3, "Delete": 3, "DeleteTree": 3, "Lookup": 3, "List": 3, "Upload": 4, "Open": 4, "Discard": 1, "Read": 1}
	for name, n := range want {
		if got := seen["me "+name+" "+path]; got != n {
			t.Errorf("%s was seen %d times, want %d: %v", name, got, n, seen)
		}
	}
}

func TestReadBreaks(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", once("Read", memfs.Fault{Before: errFault}))
	if err := c.Create(t.Context(), path, file("0123456789")); err != nil {
		t.Fatal(err)
	}
	e, err := c.Lookup(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []error{errFault, nil} {
		r, err := c.Open(t.Context(), e, 0)
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 10)
		if n, err := io.ReadFull(r, buf); !errors.Is(err, want) || want != nil && string(buf[:n]) != "01234" {
			t.Errorf("got %q, error %v, want %v", buf[:n], err, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestProblems makes the mistakes that a real filer answers with lost data.
func TestProblems(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", nil)
	up := func() filer.Blob {
		b, err := c.Upload(t.Context(), path, []byte("data"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	create := func(name string, b filer.Blob) {
		if err := c.Create(t.Context(), path+name, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{b}}); err != nil {
			t.Fatal(err)
		}
	}
	steps := []struct {
		want string // of the new problem, "" for none
		do   func()
	}{
		{"", func() { create("1", up()) }},
		{"which is not there", func() { create("2", filer.Blob{ID: "9,99", Size: 4}) }},
		{"names too", func() {
			b := up()
			create("3", b)
			create("4", b)
		}},
		{"with size 5", func() {
			b := up()
			b.Size++
			create("5", b)
		}},
		{"discard of blob", func() {
			b := up()
			create("6", b)
			if err := c.Discard(t.Context(), b); !errors.Is(err, filer.ErrInvalid) {
				t.Error(err)
			}
		}},
		{"a parent is a file", func() {
			if err := c.Create(t.Context(), path+"1/x", file("")); !errors.Is(err, filer.ErrInvalid) {
				t.Error(err)
			}
		}},
	}
	for _, step := range steps {
		before := len(fs.Problems())
		step.do()
		got := fs.Problems()[before:]
		if step.want == "" && len(got) > 0 || step.want != "" && (len(got) != 1 || !strings.Contains(got[0], step.want)) {
			t.Errorf("got problems %q, want %q", got, step.want)
		}
	}
	if n := fs.Blobs(); n != 0 {
		t.Errorf("%d blobs without a file, want none", n)
	}
	up()
	if n := fs.Blobs(); n != 1 {
		t.Errorf("%d blobs without a file, want 1", n)
	}
}

func TestDamage(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", nil)
	b, err := c.Upload(t.Context(), path, []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]filer.File{"blob": {ID: "1", Blobs: []filer.Blob{b}}, "inline": {ID: "2", Content: []byte("data")}, "empty": {ID: "3"}} {
		if err := c.Create(t.Context(), path+name, f); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) (string, error) {
		e, err := c.Lookup(t.Context(), path+name)
		if err != nil {
			return "", err
		}
		r, err := c.Open(t.Context(), e, 0)
		if err != nil {
			return "", err
		}
		data, err := io.ReadAll(r)
		return string(data), err
	}
	for _, name := range []string{"blob", "inline"} {
		if err := fs.Corrupt(path + name); err != nil {
			t.Fatal(err)
		}
		if got, err := read(name); err != nil || got != "daua" {
			t.Errorf("%s: read %q, error %v, want one flipped bit", name, got, err)
		}
	}
	if err := fs.LoseBlobs(path + "blob"); err != nil {
		t.Fatal(err)
	}
	if _, err := read("blob"); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("after its blobs were lost: error %v", err)
	}
	for name, err := range map[string]error{
		"corrupt nothing": fs.Corrupt(path), "corrupt the empty": fs.Corrupt(path + "empty"), "corrupt the lost": fs.Corrupt(path + "blob"),
		"lose nothing": fs.LoseBlobs(path), "lose inline": fs.LoseBlobs(path + "inline"),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestReadOnly(t *testing.T) {
	fs := memfs.New()
	c := fs.Client("c", nil)
	old := file("old")
	if err := c.Create(t.Context(), path, old); err != nil {
		t.Fatal(err)
	}
	fs.SetReadOnly("/buckets/mem", true)
	_, uploadErr := c.Upload(t.Context(), path, []byte("x"))
	for name, err := range map[string]error{"create": c.Create(t.Context(), path+"2", file("")), "upload": uploadErr} {
		if !errors.Is(err, filer.ErrReadOnly) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if err := c.Create(t.Context(), "/buckets/memory/f", file("")); err != nil {
		t.Errorf("beside it: %v", err)
	}
	if err := c.Update(t.Context(), path, old.ID, file("new")); err != nil {
		t.Errorf("update: %v", err)
	}
	fs.SetReadOnly("/buckets/mem", false)
	if err := c.Create(t.Context(), path+"2", file("")); err != nil {
		t.Error(err)
	}
}
