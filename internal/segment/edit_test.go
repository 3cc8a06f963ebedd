package segment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// plans of edits, by what the layout looks like.
func splitFirst(l topic.Layout) (topic.Edit, error) { return l.SplitWays(l.Live[0].ID, 2) }

func splitWidest(l topic.Layout) (topic.Edit, error) {
	widest := slices.MaxFunc(l.Live, func(a, b topic.Live) int { return int(a.Size()) - int(b.Size()) })
	return l.SplitWays(widest.ID, 2)
}

func mergeAll(l topic.Layout) (topic.Edit, error) {
	var ids []topic.SegmentID
	for _, s := range l.Live {
		ids = append(ids, s.ID)
	}
	return l.Merge(ids...)
}

func rollFirst(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) }

func mustEdit(t *testing.T, top *Topic, plan func(topic.Layout) (topic.Edit, error)) topic.Layout {
	t.Helper()
	l, err := top.Edit(t.Context(), noon, plan)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// spread is messages from..to of a source, one record each, spread over all slots.
func spread(t *testing.T, source string, from, to uint64) Input {
	t.Helper()
	in := input(t, source, from, to)
	set := &record.Set{}
	for seq := from; seq <= to; seq++ {
		r := record.Record{Time: noon.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq}, Value: fmt.Appendf(nil, "%s%d", source, seq)}
		if err := set.Append(&r, topic.Slot(seq*13007)); err != nil {
			t.Fatal(err)
		}
	}
	in.Set = set
	return in
}

// commitBy appends messages to the live segments that they belong to.
func commitBy(t *testing.T, top *Topic, in Input) (taken int) {
	t.Helper()
	l, err := top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sets := map[topic.SegmentID]*record.Set{}
	for _, r := range in.Set.Recs {
		id := l.Route(r.Slot)
		if sets[id] == nil {
			sets[id] = &record.Set{}
		}
		if err := sets[id].Copy(in.Set, r); err != nil {
			t.Fatal(err)
		}
	}
	for id, set := range sets {
		seg, err := top.Segment(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		part := in
		part.Set = set
		taken += mustAppend(t, seg, part).Taken
	}
	return taken
}

// TestFloorsDropWhatAncestorsHave appends the same messages again after every
// edit of a chain: nothing is taken twice, whatever was split or merged, and
// through segments that stayed empty.
func TestFloorsDropWhatAncestorsHave(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 2)
	if taken := commitBy(t, top, spread(t, "lane", 1, 40)); taken != 40 {
		t.Fatalf("%d taken", taken)
	}
	if taken := commitBy(t, top, spread(t, "other", 1, 25)); taken != 25 {
		t.Fatalf("%d taken", taken)
	}
	for i, plan := range []func(topic.Layout) (topic.Edit, error){
		splitFirst, mergeAll, splitFirst, rollFirst, rollFirst, splitFirst, mergeAll, rollFirst,
	} {
		mustEdit(t, top, plan)
		if taken := commitBy(t, top, spread(t, "lane", 1, 40)) + commitBy(t, top, spread(t, "other", 1, 25)); taken != 0 {
			t.Fatalf("after edit %d: %d taken again", i, taken)
		}
	}
	if taken := commitBy(t, top, spread(t, "lane", 30, 50)); taken != 10 {
		t.Errorf("%d taken of what is new", taken)
	}
	if got := values(t, mustRead(t, top, nil)); len(got) != 75 {
		t.Errorf("read %d records", len(got))
	}
	clean(t, fs)
}

// TestMergeOfUnequalParents: a source can have got further in one parent than in
// the other; per range, nothing is lost and nothing doubled.
func TestMergeOfUnequalParents(t *testing.T) {
	fs := memfs.New()
	top, segs := newTopic(t, fs, 2)
	in := spread(t, "lane", 1, 40)
	low := in
	low.Set = &record.Set{}
	for _, r := range in.Set.Recs {
		if segs[0].Range.Contains(r.Slot) {
			if err := low.Set.Copy(in.Set, r); err != nil {
				t.Fatal(err)
			}
		}
	}
	n := mustAppend(t, segs[0], low).Taken
	mustEdit(t, top, mergeAll)
	if taken := commitBy(t, top, in); taken != 40-n {
		t.Errorf("%d taken, %d were there, of 40", taken, n)
	}
	clean(t, fs)
}

// TestPassedFloorsAreLeftOut: what a checkpoint covers needs no floor.
func TestPassedFloorsAreLeftOut(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	commitBy(t, top, spread(t, "passed", 1, 9))
	commitBy(t, top, spread(t, "open", 1, 9))
	if err := top.store.CreateCheckpoint(t.Context(), "passed"); err != nil {
		t.Fatal(err)
	}
	file := top.store.CheckpointFile("passed")
	c, v, err := file.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Save(t.Context(), c.Advance(9, noon, nil), v); err != nil {
		t.Fatal(err)
	}
	l := mustEdit(t, top, rollFirst)
	child, err := top.Segment(t.Context(), l.Live[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	want := []topic.Floor{{Range: topic.Full, Source: "open", At: topic.Position{Sequence: 9}, Time: noon.Add(9 * time.Second)}}
	if diff := cmp.Diff(want, child.Floors); diff != "" {
		t.Error(diff)
	}
}

// TestEditCrashes kills whoever makes an edit after each of its calls to the
// filer, with and without the last one's effect. Whoever comes next finishes it;
// or there is nothing to finish, and the old layout holds.
func TestEditCrashes(t *testing.T) {
	for _, plan := range []func(topic.Layout) (topic.Edit, error){splitFirst, mergeAll, rollFirst} {
		for _, lost := range []bool{false, true} {
			for n := 0; ; n++ {
				fs := memfs.New()
				top, _ := newTopic(t, fs, 3)
				commitBy(t, top, spread(t, "lane", 1, 20))
				if !crashEdit(t, fs, plan, n, lost) {
					if n < 8 {
						t.Fatalf("an edit made only %d calls", n)
					}
					break
				}
				checkAfterCrash(t, fs, fmt.Sprintf("after call %d, lost %v", n, lost))
			}
		}
	}
}

// crashEdit makes an edit that dies at its n-th call; false if it makes fewer.
func crashEdit(t *testing.T, fs *memfs.FS, plan func(topic.Layout) (topic.Edit, error), n int, lost bool) bool {
	t.Helper()
	ctx, kill := context.WithCancel(t.Context())
	defer kill()
	dead, calls := false, 0
	var mu sync.Mutex // children are created side by side
	store := testStore(fs, func(memfs.Op) memfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch calls++; {
		case dead || calls == n+1 && !lost:
			dead = true
			kill()
			return memfs.Fault{Before: errors.New("crashed")}
		case calls == n+1:
			dead = true
			kill()
			return memfs.Fault{After: errors.New("crashed")}
		}
		return memfs.Fault{}
	})
	top, err := store.Topic(ctx, "orders")
	if err == nil {
		_, err = top.Edit(ctx, noon, plan)
	}
	if err != nil && !dead {
		t.Fatal(err)
	}
	return dead
}

func checkAfterCrash(t *testing.T, fs *memfs.FS, when string) {
	t.Helper()
	top, err := testStore(fs, nil).Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	before, err := top.Layout(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	l, err := top.Finish(t.Context())
	if err != nil || l.Pending {
		t.Fatalf("%s: the layout is %+v, error %v", when, l, err)
	}
	if l.Epoch != 0 && l.Epoch != 2 || before.Pending != (before.Epoch == 1) {
		t.Fatalf("%s: epoch %d, then %d", when, before.Epoch, l.Epoch)
	}
	if taken := commitBy(t, top, spread(t, "lane", 1, 30)); taken != 10 {
		t.Fatalf("%s: %d taken", when, taken)
	}
	if got := values(t, mustRead(t, top, nil)); len(got) != 30 {
		t.Fatalf("%s: read %d records", when, len(got))
	}
	for _, live := range l.Live {
		s, err := top.Segment(t.Context(), live.ID)
		if err != nil {
			t.Fatal(err)
		}
		if tail, err := s.Tail(t.Context()); err != nil || tail.Sealed {
			t.Fatalf("%s: live segment %s is sealed, error %v", when, live.ID, err)
		}
	}
}

// TestPlannersRace: of edits that are made at once each happens once or is
// refused, and the layout stays whole.
func TestPlannersRace(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	var g errgroup.Group
	const planners, each = 4, 5
	for range planners {
		mine, err := testStore(fs, nil).Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		g.Go(func() error {
			for range each {
				if _, err := mine.Edit(t.Context(), noon, splitWidest); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	layouts, err := top.Layouts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last := layouts[len(layouts)-1]; last.Epoch != 2*planners*each || len(last.Live) != 1+planners*each || last.Pending {
		t.Errorf("epoch %d with %d live segments", last.Epoch, len(last.Live))
	}
	clean(t, fs)
}

// TestEditRefused: what the plan refuses changes nothing.
func TestEditRefused(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 2)
	_, err := top.Edit(t.Context(), noon, func(l topic.Layout) (topic.Edit, error) { return l.Roll("nobody") })
	var bad *topic.EditError
	if !errors.As(err, &bad) || !errors.Is(err, topic.ErrNotLive) {
		t.Errorf("error %v", err)
	}
	if l, err := top.Layout(t.Context()); err != nil || l.Epoch != 0 {
		t.Errorf("epoch %d, error %v", l.Epoch, err)
	}
}

// TestForgedDescription: a child's description that is not what the seals make
// it stops the edit, for everybody, before the child takes a record.
func TestForgedDescription(t *testing.T) {
	fs := memfs.New()
	top, _ := newTopic(t, fs, 1)
	commitBy(t, top, spread(t, "lane", 1, 9))
	l, err := top.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	e, err := splitFirst(l)
	if err != nil {
		t.Fatal(err)
	}
	intent, err := l.Intent(e, noon, func() string { return "t" })
	if err != nil {
		t.Fatal(err)
	}
	tail, err := top.layoutTail(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := top.appendLayout(t.Context(), tail, intent); err != nil {
		t.Fatal(err)
	}
	child := intent.Edit.Children[1]
	if err := top.createSegment(t.Context(), topic.Segment{ID: child.ID, Range: child.Range, Epoch: 2, Parents: e.Parents, Floors: []topic.Floor{}, Created: noon}); err != nil {
		t.Fatal(err)
	}
	if _, err := top.Finish(t.Context()); !errors.Is(err, ErrDiffers) || !errors.Is(err, filer.ErrCorrupt) {
		t.Errorf("error %v", err)
	}
	if l, err := top.Layout(t.Context()); err != nil || !l.Pending {
		t.Errorf("the layout is %+v, error %v", l, err)
	}
}
