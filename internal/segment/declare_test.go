package segment

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

func declaring(id string, bytes uint64) DeclaredLoad {
	return DeclaredLoad{ID: id, Bytes: bytes, From: noon, Until: noon.Add(time.Hour), Reason: "test"}
}

// declaredNow lists what is declared: "a=1 b=2".
func declaredNow(t *testing.T, top *Topic) string {
	t.Helper()
	loads, err := top.Declared(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(loads))
	for i, d := range loads {
		texts[i] = fmt.Sprintf("%s=%d", d.ID, d.Bytes)
	}
	return strings.Join(texts, " ")
}

// TestDeclare: declarations are kept by id, the last one of an id counts, and the
// topic gets a mark, so that a planner hears of them.
func TestDeclare(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	store := testStore(fs, nil)
	store.restGone(t.Context(), "orders")
	again, err := store.Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []DeclaredLoad{declaring("b", 2), declaring("a", 1), declaring("b", 3)} {
		if err := again.Declare(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if got := declaredNow(t, top); got != "a=1 b=3" {
		t.Errorf("declared: %s", got)
	}
	if _, err := store.MarkOf(t.Context(), "orders"); err != nil {
		t.Errorf("the topic has no mark: %v", err)
	}
	if err := top.Withdraw(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := top.Withdraw(t.Context(), "a"); !errors.Is(err, filer.ErrNotFound) {
		t.Errorf("withdrawn twice: %v", err)
	}
	if got := declaredNow(t, top); got != "b=3" {
		t.Errorf("declared: %s", got)
	}
}

// TestExpire: what is over goes, and what was declared anew meanwhile stays.
func TestExpire(t *testing.T) {
	top, _ := newTopic(t, memfs.New(), 1)
	if err := top.Declare(t.Context(), declaring("a", 1)); err != nil {
		t.Fatal(err)
	}
	end := noon.Add(time.Hour)
	for _, step := range []struct {
		now  time.Time
		left string
	}{{end.Add(-time.Nanosecond), "a=1"}, {end, ""}, {end, ""}} {
		if err := top.Expire(t.Context(), "a", step.now); err != nil {
			t.Fatal(err)
		}
		if got := declaredNow(t, top); got != step.left {
			t.Errorf("at %s: %q, want %q", step.now, got, step.left)
		}
	}
}

// TestDeclareNonsense: everything that is wrong is said, and nothing is stored or
// removed by an id that is a path.
func TestDeclareNonsense(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	before := fs.Paths()
	err := top.Declare(t.Context(), DeclaredLoad{ID: "../x", From: noon, Until: noon, Reason: strings.Repeat("r", 1001)})
	for _, want := range []string{`id "../x"`, "it is no load", "before it begins", "its reason has 1001 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	for _, id := range []string{"", "../../topic", "../layout/0000000000000000", "A", strings.Repeat("a", 300)} {
		if err := top.Withdraw(t.Context(), id); err == nil || errors.Is(err, filer.ErrNotFound) {
			t.Errorf("withdraw %.30q: %v", id, err)
		}
	}
	if !slices.Equal(before, fs.Paths()) {
		t.Errorf("files are now %q", fs.Paths())
	}
}

// TestDeclaredRubbish: what lies among declarations and is none keeps nobody from
// planning, and can be withdrawn or replaced.
func TestDeclaredRubbish(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	for name, content := range map[string]string{
		"junk.json": "{", "empty.json": "", "none.json": "{}", "huge.json": `{"bytes":1e40}`, "readme.txt": "x", "UP.json": "{}",
		"over.json": `{"id":"other","bytes":7,"from":"2026-01-01T00:00:00Z","until":"2026-01-02T00:00:00Z"}`,
	} {
		f := filer.File{ID: filer.NewID(), Content: []byte(content)}
		if err := fs.Client("x", nil).Create(t.Context(), path.Join(top.declaredDir(), name), f); err != nil {
			t.Fatal(err)
		}
	}
	if got := declaredNow(t, top); got != "over=7" {
		t.Errorf("declared: %s", got)
	}
	if err := top.Withdraw(t.Context(), "junk"); err != nil {
		t.Errorf("withdraw rubbish: %v", err)
	}
	if err := top.Declare(t.Context(), declaring("empty", 5)); err != nil {
		t.Errorf("replace rubbish: %v", err)
	}
	if got := declaredNow(t, top); got != "empty=5 over=7" {
		t.Errorf("declared: %s", got)
	}
}

// TestTooManyDeclared: their number is bounded.
func TestTooManyDeclared(t *testing.T) {
	top, _ := newTopic(t, memfs.New(), 1)
	for i := range MaxDeclared {
		if err := top.Declare(t.Context(), declaring(fmt.Sprint("l", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := top.Declare(t.Context(), declaring("more", 1)); !errors.Is(err, ErrTooManyDeclared) {
		t.Errorf("error %v", err)
	}
}

// TestDeclareRace: of those that declare under one id at once, one counts.
func TestDeclareRace(t *testing.T) {
	top, _ := newTopic(t, memfs.New(), 1)
	var g errgroup.Group
	for i := range uint64(8) {
		g.Go(func() error {
			for range 10 {
				if err := top.Declare(t.Context(), declaring("a", i+1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		for range 20 {
			if err := top.Withdraw(t.Context(), "a"); err != nil && !errors.Is(err, filer.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := top.Declare(t.Context(), declaring("a", 99)); err != nil {
		t.Fatal(err)
	}
	if got := declaredNow(t, top); got != "a=99" {
		t.Errorf("declared: %s", got)
	}
}
