package followup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestTrimmed: records that are trimmed while their references are open, or before
// they were looked at, are followed up no more.
func TestTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		id := w.first(t)
		for range 4 {
			w.commit(t, id, "pp")
		}
		if r := w.follow(t); r.Open != 8 {
			t.Fatalf("%+v", r)
		}
		for range 3 {
			w.commit(t, id, "pp")
		}
		s, err := w.top.Segment(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Trim(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		if r := w.follow(t); r.Looked != 2 || r.Open != 10 {
			t.Errorf("before they are due: %+v", r)
		}
		bubble.Pass(DefaultRetryAfter)
		if r := w.follow(t); r.Looked != 2 || r.Open != 2 || r.Trimmed != 8 {
			t.Errorf("%+v", r)
		}
	})
}

// TestTrimmedMeanwhile: a chunk that goes between its listing and the reading of its
// bytes is passed by.
func TestTrimmedMeanwhile(t *testing.T) {
	w := newWorld(t, 1)
	w.store.Inline = 0
	id := w.first(t)
	for range 3 {
		w.commit(t, id, "p")
	}
	s, err := w.top.Segment(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	trimmed := false
	store := segment.NewStore(w.fs.Client("reader", func(op memfs.Op) memfs.Fault {
		if op.Name == "Open" && !trimmed {
			trimmed = true
			if err := s.Trim(t.Context(), 2); err != nil {
				t.Error(err)
			}
		}
		return memfs.Fault{}
	}), "test")
	r, err := w.follower(store).Topic(t.Context(), t.Context(), "orders")
	if err != nil || r.Looked != 1 || r.Open != 1 || !trimmed {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestNoReference: an open reference that its chunk does not have is dropped, and those
// beside it are looked at.
func TestNoReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), ".pvp")
		w.follow(t)
		file := fileOf(w.store, w.top)
		s, version, err := file.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []Open
		for offset := range uint64(5) {
			o := s.Open[0]
			o.Offset = offset
			all = append(all, o)
		}
		s.Open = all
		if _, err := file.Save(t.Context(), s, version); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(DefaultRetryAfter)
		if r := w.follow(t); r.Looked != 2 || r.Open != 2 || r.Trimmed != 3 {
			t.Errorf("%+v", r)
		}
	})
}

// damaged commits a pending reference to a new segment, in a chunk that cannot be
// read.
func (w *world) damaged(t *testing.T, id topic.SegmentID) {
	t.Helper()
	w.store.Inline = 0
	w.commit(t, id, "p")
	s, err := w.top.Segment(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.ChunkAt(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.fs.LoseBlobs(c.Entry.Path); err != nil {
		t.Fatal(err)
	}
}

// TestDamaged: a segment that cannot be read is told, and the others are followed
// up all the same.
func TestDamaged(t *testing.T) {
	w := newWorld(t, 3)
	live := w.live(t)
	w.commit(t, live[0].ID, "p")
	w.damaged(t, live[1].ID)
	w.commit(t, live[2].ID, "p")
	r, err := w.Topic(t.Context(), t.Context(), "orders")
	if !errors.Is(err, filer.ErrNotFound) || !strings.Contains(err.Error(), string(live[1].ID)) || r.Open != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if got := w.state(t).Segments; got[1].Offset != 0 || got[0].Offset != 1 || got[2].Offset != 1 {
		t.Errorf("watermarks %+v", got)
	}
}

// TestDeletedAndMadeAgain: a topic that is gone is no fault; another one of its name
// has nothing to do with it.
func TestDeletedAndMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.commit(t, w.first(t), "pp")
		w.follow(t)
		if err := w.store.DeleteTopic(t.Context(), "orders", time.Now()); err != nil {
			t.Fatal(err)
		}
		bubble.Pass(DefaultRetryAfter)
		sum, err := w.Sweep(t.Context(), t.Context(), true)
		if err != nil || sum.Gone != 1 || sum.Topics != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		if _, err := w.Topic(t.Context(), t.Context(), "orders"); !errors.Is(err, segment.ErrNoTopic) {
			t.Errorf("error %v", err)
		}
		if left := w.fs.Paths(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		old := w.top
		w.top, w.refs, w.seq = w.create(t, "orders", 1), nil, 0
		w.commit(t, w.first(t), ".p")
		if r := w.follow(t); r.Looked != 1 || r.Open != 1 {
			t.Errorf("%+v", r)
		}
		if n := w.objects.looked(old, "s3://bucket/1"); n != 1 {
			t.Errorf("an object of the old topic was looked at %d times", n)
		}
	})
}

// TestDeletedMeanwhile: whenever the topic is deleted during a pass, and made again
// or not, the pass ends without a fault, and the next sweep too.
func TestDeletedMeanwhile(t *testing.T) {
	for _, again := range []bool{false, true} {
		for n := 1; ; n++ {
			w := newWorld(t, 2)
			for _, l := range w.live(t) {
				w.commit(t, l.ID, "p.p")
			}
			calls := 0
			store := segment.NewStore(w.fs.Client("follower", func(memfs.Op) memfs.Fault {
				if calls++; calls == n {
					if err := w.store.DeleteTopic(context.Background(), "orders", time.Now()); err != nil {
						t.Error(err)
					}
					if again {
						w.top = w.create(t, "orders", 1)
					}
				}
				return memfs.Fault{}
			}), "test")
			f := w.follower(store)
			_, err := f.Topic(t.Context(), t.Context(), "orders")
			if err != nil && !noTopic(err) {
				t.Fatalf("deleted before call %d: %v", n, err)
			}
			if sum, err := f.Sweep(t.Context(), t.Context(), true); err != nil {
				t.Fatalf("deleted before call %d: %+v, %v", n, sum, err)
			}
			if calls < n {
				break
			}
		}
	}
}

// TestCorrupt: a state that cannot be read is told with what to do, and other topics
// are followed up.
func TestCorrupt(t *testing.T) {
	w := newWorld(t, 1)
	w.commit(t, w.first(t), "p")
	w.follow(t)
	bad := w.top
	w.top = w.create(t, "others", 1)
	w.commit(t, w.first(t), "p")
	path := bad.Dir() + "/refs.json"
	for _, content := range []string{"", "{", "null", "{}", "null x", `{"segments":[{"segment":"../x"}]}`, `{"open":[{"segment":"a"},{"segment":"a"}]}`, `{"epoch":-1}`} {
		if err := w.store.Filer.Delete(t.Context(), path, ""); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Filer.Create(t.Context(), path, filer.File{ID: filer.NewID(), Content: []byte(content)}); err != nil {
			t.Fatal(err)
		}
		sum, err := w.Sweep(t.Context(), t.Context(), true)
		var several *SweepError
		if !errors.Is(err, filer.ErrCorrupt) || !errors.As(err, &several) || sum.Failed != 1 || sum.Topics != 1 {
			t.Errorf("%s: %+v, %v", content, sum, err)
		}
		if err == nil || !strings.Contains(err.Error(), "delete it") || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v does not say what to do", content, err)
		}
	}
	if w.objects.looked(w.top, "s3://bucket/2") != 1 {
		t.Error("the other topic was not followed up")
	}
	if err := w.store.Filer.Delete(t.Context(), path, ""); err != nil {
		t.Fatal(err)
	}
	if r := w.follow(t); r.Looked != 1 || r.Open != 1 {
		t.Errorf("from the beginning: %+v", r)
	}
}
