package segment

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// allow is a change that puts a bucket on the list.
func allow(bucket string) func(*topic.Definition) error {
	return func(d *topic.Definition) error { d.Allow(bucket); return nil }
}

func bucketsOf(t *testing.T, fs *memfs.FS) []string {
	t.Helper()
	top, err := testStore(fs, nil).Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	return top.Buckets
}

// TestChangesLand: of changes at the same time all land, whoever is faster, and a
// handle that was opened before still has what it had.
func TestChangesLand(t *testing.T) {
	fs := memfs.New()
	old, _ := newTopic(t, fs, 1)
	var want []string
	var g errgroup.Group
	for i := range 20 {
		bucket := fmt.Sprintf("bucket-%02d", i)
		want = append(want, bucket)
		g.Go(func() error {
			_, is, err := testStore(fs, nil).ChangeTopic(t.Context(), "orders", allow(bucket))
			if err == nil && !is.Allows(bucket, "k") {
				err = fmt.Errorf("%s is not on %q", bucket, is.Buckets)
			}
			return err
		})
		g.Go(func() error {
			_, err := testStore(fs, nil).SetLanes(t.Context(), "orders", fmt.Sprintf("group-%d", i%3))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, bucketsOf(t, fs)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if old.Buckets != nil {
		t.Errorf("the handle of before has %q", old.Buckets)
	}
	checkUsable(t, fs, 1)
}

// TestChangeLostReplies: whatever becomes of one call's request or reply, the
// change lands once.
func TestChangeLostReplies(t *testing.T) {
	for _, fault := range []memfs.Fault{{After: memfs.ErrLost}, {Before: errors.New("down")}, {Late: 30 * time.Millisecond}} {
		for n := 1; ; n++ {
			calls := 0
			synctest.Test(t, func(t *testing.T) {
				fs := memfs.New()
				newTopic(t, fs, 1)
				s := testStore(fs, func(memfs.Op) memfs.Fault {
					if calls++; calls == n {
						return fault
					}
					return memfs.Fault{}
				})
				was, is, err := s.ChangeTopic(t.Context(), "orders", allow("photos"))
				fs.Settle()
				if err != nil || was.Buckets != nil || !is.Allows("photos", "k") {
					t.Errorf("%+v at call %d: from %q to %q, error %v", fault, n, was.Buckets, is.Buckets, err)
				}
				if diff := cmp.Diff([]string{"photos"}, bucketsOf(t, fs)); diff != "" {
					t.Errorf("%+v at call %d: (-want +got)\n%s", fault, n, diff)
				}
			})
			if calls < n {
				break
			}
		}
	}
}

// TestChangeCrash: a change that crashes after any call has landed as a whole, or
// not at all.
func TestChangeCrash(t *testing.T) {
	both := func(d *topic.Definition) error {
		d.Allow("photos")
		d.RecordRemovals = true
		return nil
	}
	for n := 0; ; n++ {
		fs := memfs.New()
		newTopic(t, fs, 1)
		ctx, s, calls := crashing(t.Context(), fs, n)
		_, _, crash := s.ChangeTopic(ctx, "orders", both)
		top, err := testStore(fs, nil).Topic(t.Context(), "orders")
		if err != nil || top.RecordRemovals != top.Allows("photos", "k") || crash == nil && !top.RecordRemovals {
			t.Fatalf("after a crash after call %d: %+v, error %v", n, top.Definition, err)
		}
		if crash == nil && *calls <= n {
			return
		}
	}
}

func TestChangeRefuses(t *testing.T) {
	fs := memfs.New()
	s := testStore(fs, nil)
	if _, _, err := s.ChangeTopic(t.Context(), "orders", allow("photos")); !errors.Is(err, ErrNoTopic) {
		t.Errorf("no topic: %v", err)
	}
	if _, _, err := s.ChangeTopic(t.Context(), "../x", allow("photos")); !isName(err) {
		t.Errorf("no name: %v", err)
	}
	before, _ := newTopic(t, fs, 1)
	no := errors.New("no")
	var invalid *InvalidError
	if _, _, err := s.ChangeTopic(t.Context(), "orders", func(d *topic.Definition) error { d.Allow("photos"); return no }); !errors.Is(err, no) {
		t.Errorf("a change that fails: %v", err)
	}
	if _, _, err := s.ChangeTopic(t.Context(), "orders", allow("a/../b")); !errors.As(err, &invalid) {
		t.Errorf("an invalid definition: %v", err)
	}
	was, is, err := s.ChangeTopic(t.Context(), "orders", func(d *topic.Definition) error {
		*d = topic.Definition{Key: d.Key, FlushAge: d.FlushAge, Lanes: d.Lanes, State: topic.StateDeleting, Name: "x", Roots: 7}
		return nil
	})
	if diff := cmp.Diff(was, is); err != nil || diff != "" {
		t.Errorf("another topic: error %v (-want +got)\n%s", err, diff)
	}
	after, err := s.Topic(t.Context(), "orders")
	if err != nil || after.version != before.version {
		t.Errorf("the file was written: %q, then %q, error %v", before.version, after.version, err)
	}
}

func isName(err error) bool {
	var bad *topic.NameError
	return errors.As(err, &bad)
}

// TestChangeWhileDeleted: a change and a deletion at the same time: the deletion
// ends, and the topic does not come back.
func TestChangeWhileDeleted(t *testing.T) {
	for range 50 {
		fs := memfs.New()
		newTopic(t, fs, 1)
		var g errgroup.Group
		g.Go(func() error { return testStore(fs, nil).DeleteTopic(t.Context(), "orders", noon) })
		for i := range 3 {
			g.Go(func() error {
				_, _, err := testStore(fs, nil).ChangeTopic(t.Context(), "orders", allow(fmt.Sprintf("bucket-%d", i)))
				if errors.Is(err, ErrDeleting) || errors.Is(err, ErrNoTopic) {
					err = nil
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if paths := fs.Paths(); len(paths) > 0 {
			t.Fatalf("there is %q", paths)
		}
	}
}

// TestChangeUnfinished: a topic whose creation was interrupted is finished first;
// one whose deletion was is left alone.
func TestChangeUnfinished(t *testing.T) {
	fs := memfs.New()
	ctx, s, _ := crashing(t.Context(), fs, 3)
	if _, err := s.CreateTopic(ctx, orders, 2, noon); err == nil {
		t.Fatal("it did not crash")
	}
	if _, _, err := testStore(fs, nil).ChangeTopic(t.Context(), "orders", allow("photos")); err != nil {
		t.Fatal(err)
	}
	checkUsable(t, fs, 2)
	ctx, s, _ = crashing(context.WithoutCancel(t.Context()), fs, 4)
	if err := s.DeleteTopic(ctx, "orders", noon); err == nil {
		t.Fatal("it did not crash")
	}
	if _, _, err := testStore(fs, nil).ChangeTopic(t.Context(), "orders", allow("films")); !errors.Is(err, ErrDeleting) {
		t.Errorf("error %v", err)
	}
}
