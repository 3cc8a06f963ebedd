package segment

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// inputFor is messages of a source, one record each, for a segment.
func inputFor(t *testing.T, s *Segment, from, to uint64) Input {
	t.Helper()
	in := input(t, "a", from, to)
	for i := range in.Set.Recs {
		in.Set.Recs[i].Slot = topic.Slot(s.Range.Lo)
	}
	return in
}

// TestMarkComesFirst: the mark is written before the first chunk of a segment is,
// and before an intent; once a minute by a handle on the topic, however many
// segments begin, and never for chunks that follow.
func TestMarkComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var writes []string
		fs := memfs.New()
		newTopic(t, fs, 4)
		s := testStore(fs, func(op memfs.Op) memfs.Fault {
			switch {
			case op.Name != "Create" && op.Name != "Update":
			case path.Dir(op.Path) == "/buckets/test/active":
				writes = append(writes, "mark")
			case path.Base(op.Path) == "0000000000000000.avro":
				writes = append(writes, "first")
			case path.Ext(op.Path) == ".avro":
				writes = append(writes, "chunk")
			case path.Base(path.Dir(op.Path)) == "layout":
				writes = append(writes, "layout")
			}
			return memfs.Fault{}
		})
		check := func(want string) {
			t.Helper()
			if got := strings.Join(writes, " "); got != want {
				t.Errorf("writes: %s; want: %s", got, want)
			}
			writes = nil
		}
		top, err := s.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		segs, err := top.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, segs[0], inputFor(t, segs[0], 1, 2))
		check("mark first")
		mustAppend(t, segs[1], inputFor(t, segs[1], 3, 4))
		mustAppend(t, segs[1], inputFor(t, segs[1], 5, 6))
		check("first chunk")
		bubble.Pass(2 * markFor)
		mustAppend(t, segs[1], inputFor(t, segs[1], 7, 8))
		check("chunk")
		mustAppend(t, segs[2], inputFor(t, segs[2], 9, 10))
		check("mark first")
		bubble.Pass(2 * markFor)
		mustEdit(t, top, rollFirst) // its seal is a chunk
		check("mark layout chunk layout")
		follower, err := s.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		follower.Follow(top)
		mustEdit(t, follower, rollFirst)
		check("layout first layout")
	})
}

// TestMarkAfterSlowCreate: a first chunk whose create takes longer than a mark is
// kept gets another mark.
func TestMarkAfterSlowCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		newTopic(t, fs, 1)
		admin := testStore(fs, nil)
		until := time.Now().Add(RestAfter + time.Minute)
		s := testStore(fs, func(op memfs.Op) memfs.Fault {
			if op.Name == "Create" && path.Ext(op.Path) == ".avro" && time.Now().Before(until) {
				return memfs.Fault{Before: errors.New("cut off")}
			}
			return memfs.Fault{}
		})
		top, err := s.Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		segs, err := top.Segments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var g errgroup.Group
		g.Go(func() error { _, err := segs[0].Append(t.Context(), input(t, "a", 1, 2)); return err })
		bubble.Pass(RestAfter + 30*time.Second)
		m, err := admin.MarkOf(t.Context(), "orders")
		if err != nil || !m.MayRest(time.Now()) {
			t.Fatalf("mark %+v, error %v", m, err)
		}
		if err := admin.Rest(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if err := checkAwake(t.Context(), admin); err != nil {
			t.Error(err)
		}
	})
}

// atRest tells whether no edit is under way and no live segment has anything.
func atRest(ctx context.Context, s *Store) (bool, error) {
	top, err := s.Topic(ctx, "orders")
	if err != nil {
		return false, err
	}
	l, err := top.Layout(ctx)
	if err != nil || l.Pending {
		return false, err
	}
	for _, live := range l.Live {
		seg, err := top.Segment(ctx, live.ID)
		if err != nil {
			return false, err
		}
		if tail, err := seg.Tail(ctx); err != nil || tail.Entry.ID != "" {
			return false, err
		}
	}
	return true, nil
}

// checkAwake: what is not at rest has a mark.
func checkAwake(ctx context.Context, s *Store) error {
	rest, err := atRest(ctx, s)
	if rest || errors.Is(err, ErrNoTopic) {
		return nil
	}
	if err == nil {
		_, err = s.MarkOf(ctx, "orders")
	}
	if err != nil {
		err = fmt.Errorf("not at rest, and without a mark: %w", err)
	}
	return err
}

// TestMarkCrash crashes after every call of whatever ends the rest of a topic whose
// mark is gone: there is a mark then, or it is still at rest.
func TestMarkCrash(t *testing.T) {
	for name, do := range map[string]func(ctx context.Context, top *Topic) error{
		"append": func(ctx context.Context, top *Topic) error {
			segs, err := top.Segments(ctx)
			if err == nil {
				_, err = segs[0].Append(ctx, input(t, "a", 1, 2))
			}
			return err
		},
		"edit": func(ctx context.Context, top *Topic) error { _, err := top.Edit(ctx, noon, splitFirst); return err },
	} {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				fs := memfs.New()
				newTopic(t, fs, 2)
				admin := testStore(fs, nil)
				m, err := admin.MarkOf(t.Context(), "orders")
				if err != nil {
					t.Fatalf("a new topic: %v", err)
				}
				if err := admin.Rest(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				ctx, s, _ := crashing(t.Context(), fs, n)
				top, err := s.Topic(ctx, "orders")
				if err == nil {
					err = do(ctx, top)
				}
				if err2 := checkAwake(t.Context(), admin); err2 != nil {
					t.Fatalf("after a crash after call %d (%v): %v", n, err, err2)
				}
				if err == nil {
					return
				}
			}
		})
	}
}

// TestDeletedTopicsMark: it goes with the topic, and one that a worker leaves that
// did not know is that of no topic.
func TestDeletedTopicsMark(t *testing.T) {
	fs := memfs.New()
	s := testStore(fs, nil)
	_, segs := newTopic(t, fs, 1)
	if err := s.DeleteTopic(t.Context(), "orders", noon); err != nil {
		t.Fatal(err)
	}
	if got := marked(t, s); len(got) > 0 {
		t.Errorf("marks %+v", got)
	}
	if _, err := segs[0].Append(t.Context(), input(t, "a", 1, 2)); err == nil {
		t.Error("appended to a topic that is deleted")
	}
	newTopic(t, fs, 1)
	if got := marked(t, s); len(got) != 1 {
		t.Errorf("marks of a new topic: %+v", got)
	}
}
