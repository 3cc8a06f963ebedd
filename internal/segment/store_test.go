package segment

import (
	"errors"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// TestCreateCrash crashes a creation after every call; the next one works.
func TestCreateCrash(t *testing.T) {
	for n := 0; ; n++ {
		fs := memfs.New()
		ctx, s, calls := crashing(t.Context(), fs, n)
		_, crash := s.CreateTopic(ctx, orders, 2, noon)
		_, err := testStore(fs, nil).CreateTopic(t.Context(), orders, 2, noon)
		if err != nil && !errors.Is(err, ErrTopicExists) {
			t.Fatalf("after a crash after call %d: %v", n, err)
		}
		checkUsable(t, fs, 2)
		if crash == nil {
			if *calls > n || err == nil {
				t.Fatalf("created after %d calls of %d, then error %v", n, *calls, err)
			}
			return
		}
	}
}

func checkUsable(t *testing.T, fs *memfs.FS, segments int) {
	t.Helper()
	top, err := testStore(fs, nil).Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	segs, err := top.Segments(t.Context())
	if err != nil || len(segs) != segments {
		t.Fatalf("%d segments, error %v", len(segs), err)
	}
	mustAppend(t, segs[0], input(t, "a", 1, 2))
}

// TestDeleteCrash crashes a deletion after every call; the next one finishes
// it, and the topic can be made again.
func TestDeleteCrash(t *testing.T) {
	for n := 0; ; n++ {
		fs := memfs.New()
		_, segs := newTopic(t, fs, 2)
		mustAppend(t, segs[0], input(t, "a", 1, 2))
		ctx, s, calls := crashing(t.Context(), fs, n)
		crash := s.DeleteTopic(ctx, "orders", noon)
		if err := testStore(fs, nil).DeleteTopic(t.Context(), "orders", noon); err != nil && !errors.Is(err, ErrNoTopic) {
			t.Fatalf("after a crash after call %d: %v", n, err)
		}
		if paths := fs.Paths(); len(paths) > 0 || fs.Blobs() > 0 {
			t.Fatalf("after a crash after call %d: left %q and %d blobs", n, paths, fs.Blobs())
		}
		newTopic(t, fs, 2)
		checkUsable(t, fs, 2)
		if crash == nil {
			if *calls > n {
				t.Fatalf("no error from call %d of %d", n, *calls)
			}
			return
		}
	}
}

func TestTwoCreators(t *testing.T) {
	for range 20 {
		fs := memfs.New()
		var g errgroup.Group
		errs := make([]error, 2)
		for i := range errs {
			g.Go(func() error {
				_, errs[i] = testStore(fs, nil).CreateTopic(t.Context(), orders, 3, noon)
				return nil
			})
		}
		_ = g.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, ErrTopicExists) {
				t.Error(err)
			}
		}
		// topic.json, its mark, layout 0 and its head, and two files per segment.
		if paths := fs.Paths(); won != 1 || len(paths) != 10 {
			t.Fatalf("%d won, and there is %q", won, paths)
		}
	}
}
