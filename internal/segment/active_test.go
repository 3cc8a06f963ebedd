package segment

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

func marked(t *testing.T, s *Store) (list []ActiveMark) {
	t.Helper()
	for m, err := range s.Active(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, m)
	}
	return list
}

func mustMark(t *testing.T, s *Store, name string, now time.Time) ActiveMark {
	t.Helper()
	if err := s.MarkActive(t.Context(), name, now); err != nil {
		t.Fatal(err)
	}
	m, err := s.MarkOf(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if m.Topic != name || m.ID == "" || !m.At.Equal(now) {
		t.Fatalf("the mark is %+v", m)
	}
	return m
}

// TestMarks: a mark is another one each time that it is written, and goes only if
// it is the one that was read.
func TestMarks(t *testing.T) {
	s := testStore(memfs.New(), nil)
	if _, err := s.MarkOf(t.Context(), "orders"); !errors.Is(err, filer.ErrNotFound) {
		t.Fatalf("a mark that nobody wrote: %v", err)
	}
	first := mustMark(t, s, "orders", noon)
	second := mustMark(t, s, "orders", noon.Add(-time.Hour)) // clocks differ
	if first.ID == second.ID {
		t.Error("written again, and it is the same")
	}
	if err := s.Rest(t.Context(), first); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("removing a mark that was written again: %v", err)
	}
	other := mustMark(t, s, "clicks", noon)
	if got := marked(t, s); !slices.Equal(got, []ActiveMark{other, second}) {
		t.Errorf("marks %+v", got)
	}
	for range 2 { // gone already is fine
		if err := s.Rest(t.Context(), second); err != nil {
			t.Fatal(err)
		}
	}
	if got := marked(t, s); !slices.Equal(got, []ActiveMark{other}) {
		t.Errorf("marks %+v", got)
	}
	for age, want := range map[time.Duration]bool{-time.Hour: false, RestAfter - 1: false, RestAfter: true} {
		if got := other.MayRest(noon.Add(age)); got != want {
			t.Errorf("may rest after %s: %v", age, got)
		}
	}
}

// TestManyMarks: they come page by page, and what is no mark is not among them.
func TestManyMarks(t *testing.T) {
	fs := memfs.New()
	lists := 0
	s := testStore(fs, func(op memfs.Op) memfs.Fault {
		if op.Name == "List" {
			lists++
		}
		return memfs.Fault{}
	})
	var want []string
	for i := range 2500 {
		want = append(want, fmt.Sprintf("topic-%04d", i))
		mustMark(t, s, want[i], noon)
	}
	for _, name := range []string{"A", "a.b", "Ä", "-x", strings.Repeat("x", 101)} {
		if err := s.Filer.Create(t.Context(), path.Join(s.activeDir(), name), filer.File{ID: "x"}); err != nil {
			t.Fatal(err)
		}
		if err := s.MarkActive(t.Context(), name, noon); err == nil {
			t.Errorf("marked topic %q", name)
		}
	}
	var got []string
	for _, m := range marked(t, s) {
		got = append(got, m.Topic)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d marks, want %d", len(got), len(want))
	}
	if lists != 4 {
		t.Errorf("%d calls for 2500 marks", lists)
	}
	for _, err := range s.Active(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if lists != 5 {
		t.Errorf("%d calls for the first mark", lists-4)
	}
}

// TestForeignMark: something of somebody else's where a mark would be wakes the
// topic, keeps nobody from writing records, and is never removed. Nor does Rest
// remove what is no mark.
func TestForeignMark(t *testing.T) {
	s := testStore(memfs.New(), nil)
	inside := path.Join(s.markPath("orders"), "notes.txt")
	if err := s.Filer.Create(t.Context(), inside, filer.File{ID: "x"}); err != nil {
		t.Fatal(err)
	}
	if err := s.MarkActive(t.Context(), "orders", noon); err != nil {
		t.Fatal(err)
	}
	got := marked(t, s)
	if len(got) != 1 || got[0].Topic != "orders" || got[0].MayRest(noon.Add(time.Hour)) {
		t.Fatalf("marks %+v", got)
	}
	if err := s.Rest(t.Context(), got[0]); !errors.Is(err, filer.ErrConflict) {
		t.Errorf("removing it: %v", err)
	}
	var bad *topic.NameError
	if err := s.Rest(t.Context(), ActiveMark{Topic: "../active/orders/notes.txt", ID: "x"}); !errors.As(err, &bad) {
		t.Errorf("removing a file elsewhere: %v", err)
	}
	if _, err := s.Filer.Lookup(t.Context(), inside); err != nil {
		t.Error(err)
	}
}

// TestMarkFaults: whatever happens to each call, a mark that was written is there,
// and one that was removed is not.
func TestMarkFaults(t *testing.T) {
	broken := errors.New("broken")
	for name, fault := range map[string]memfs.Fault{
		"refused": {Before: broken}, "lost": {After: broken}, "late": {Late: 3 * time.Second}, "slow": {Hold: time.Hour},
	} {
		for _, was := range []string{"absent", "there"} {
			for at := range 4 {
				t.Run(fmt.Sprintf("%s %s %d", name, was, at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						fs := memfs.New()
						defer fs.Settle()
						if was == "there" {
							mustMark(t, testStore(fs, nil), "orders", noon)
						}
						calls := 0
						s := testStore(fs, func(memfs.Op) memfs.Fault {
							if calls++; calls == at+1 {
								return fault
							}
							return memfs.Fault{}
						})
						now := noon.Add(time.Hour)
						if err := s.MarkActive(t.Context(), "orders", now); err != nil {
							t.Fatal(err)
						}
						m := mustMarkOf(t, fs, now)
						bubble.Pass(time.Minute) // what is late arrives
						if again := mustMarkOf(t, fs, now); again != m {
							t.Errorf("the mark was %+v, and is %+v", m, again)
						}
						calls = 0
						if err := s.Rest(t.Context(), m); err != nil {
							t.Fatal(err)
						}
						if _, err := testStore(fs, nil).MarkOf(t.Context(), "orders"); !errors.Is(err, filer.ErrNotFound) {
							t.Errorf("removed, and still there: %v", err)
						}
					})
				})
			}
		}
	}
}

func mustMarkOf(t *testing.T, fs *memfs.FS, at time.Time) ActiveMark {
	t.Helper()
	m, err := testStore(fs, nil).MarkOf(t.Context(), "orders")
	if err != nil || !m.At.Equal(at) {
		t.Fatalf("mark %+v, error %v", m, err)
	}
	return m
}

// TestMarksRace: any number may mark a topic at once.
func TestMarksRace(t *testing.T) {
	fs := memfs.New()
	var g errgroup.Group
	for range 16 {
		s := testStore(fs, nil)
		g.Go(func() error {
			for range 20 {
				if err := s.MarkActive(t.Context(), "orders", noon); err != nil {
					return err
				}
				m, err := s.MarkOf(t.Context(), "orders")
				if err == nil {
					err = s.Rest(t.Context(), m)
				}
				if err != nil && !errors.Is(err, filer.ErrConflict) && !errors.Is(err, filer.ErrNotFound) {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
