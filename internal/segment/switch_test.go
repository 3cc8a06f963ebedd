package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
)

// switching is a topic whose segments are compacted and trimmed, step by step, while
// some read it. Everything happens in one goroutine: which step comes when is drawn,
// between any two records, and between any two calls of a reader.
type switching struct {
	*family
	mu    sync.Mutex // segments are opened side by side
	rand  *rand.Rand
	steps [][]func() error // of each segment that is compacted
	often int              // percent: a step before a call
	sick  int              // percent: a call that fails
}

func newSwitching(t *testing.T, seed uint64) *switching {
	t.Helper()
	w := &switching{rand: rand.New(rand.NewPCG(seed, 7))}
	w.family = newFamily(t, 3, 2+w.rand.IntN(4), 1+w.rand.IntN(4))
	w.often = []int{0, 2, 10, 50}[w.rand.IntN(4)]
	w.sick = []int{0, 0, 15}[w.rand.IntN(3)]
	for _, seg := range w.segs[:2] {
		w.steps = append(w.steps, w.plan(seg))
	}
	return w
}

// plan is the steps of one segment: its files, its manifest, and a trim that is cut
// off after each of its calls, and that loses the bytes of chunks before the chunks.
func (w *switching) plan(seg *Segment) []func() error {
	ctx := w.Context()
	p := packer{perFile: 2 + w.rand.IntN(9)}
	var m Manifest
	steps := []func() error{
		func() (err error) { m, err = p.pack(ctx, seg); return err },
		func() error { _, err := seg.CreateManifest(ctx, m); return err },
	}
	for n := range 12 {
		steps = append(steps, func() error {
			ctx, store, _ := crashing(ctx, w.fs, n%4)
			_ = store.log(seg.log.Dir(), ".avro").Trim(ctx, m.Seal)
			return nil
		})
	}
	if w.rand.IntN(2) == 0 {
		steps = append(steps, func() error { return w.lose(seg, m.Seal) })
	}
	return append(steps, func() error { return seg.Trim(ctx, m.Seal) })
}

// lose loses the bytes of the chunks that are still there below the head.
func (w *switching) lose(seg *Segment, seal uint64) error {
	head, _, err := seg.log.Head(w.Context())
	if err != nil || head < seal {
		return err
	}
	for n := range seal {
		if err := w.fs.LoseBlobs(seg.log.Path(n)); err != nil && !errors.Is(err, filer.ErrNotFound) {
			return err
		}
	}
	return nil
}

// step makes the next step of a segment.
func (w *switching) step() {
	i := w.rand.IntN(len(w.steps))
	if len(w.steps[i]) == 0 {
		return
	}
	do := w.steps[i][0]
	w.steps[i] = w.steps[i][1:]
	if err := do(); err != nil {
		w.Fatal(err)
	}
}

func (w *switching) hook(memfs.Op) memfs.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.rand.IntN(100) < w.often {
		w.step()
	}
	switch {
	case w.rand.IntN(100) >= w.sick:
	case w.rand.IntN(2) == 0:
		return memfs.Fault{Before: errors.New("unavailable")}
	default:
		return memfs.Fault{After: errors.New("connection lost")}
	}
	return memfs.Fault{}
}

// follower reads all that there is from somewhere on, with pauses anywhere.
type follower struct {
	name string
	want []Item
	got  []Item
	next func() iter.Seq2[Item, error] // what it goes on with after a pause
	pull func() (Item, error, bool)
	stop func()
}

// advance reads some records, and then keeps its place, or gives up the call, from
// which it goes on with a new one. It returns false when there is no more.
func (w *switching) advance(f *follower) bool {
	if f.pull == nil {
		f.pull, f.stop = iter.Pull2(f.next())
	}
	for range w.rand.IntN(4) {
		item, err, ok := f.pull()
		if err != nil {
			w.Fatalf("%s, after %d of %d: %v", f.name, len(f.got), len(f.want), err)
		}
		if !ok {
			f.stop()
			return false
		}
		f.got = append(f.got, item)
	}
	if w.rand.IntN(3) == 0 {
		f.stop()
		f.pull = nil
	}
	return true
}

func (w *switching) topicOf(ctx context.Context) *Topic {
	w.Helper()
	top, err := testStore(w.fs, w.hook).Topic(ctx, "orders")
	if err != nil {
		w.Fatal(err)
	}
	return top
}

// readers are one of each kind.
func (w *switching) readers() []*follower {
	ctx := w.Context()
	top := w.topicOf(ctx)
	early := mustRead(w.T, top, nil)
	at := w.rand.IntN(len(w.items))
	place := mustRead(w.T, top, ReadPosition{w.items[at].Segment: w.items[at].Offset})
	since := w.items[w.rand.IntN(len(w.items))].Time
	late, err := top.ReadSince(ctx, since)
	if err != nil {
		w.Fatal(err)
	}
	again := mustRead(w.T, top, nil)
	seg, err := top.Segment(ctx, w.segs[w.rand.IntN(2)].ID)
	if err != nil {
		w.Fatal(err)
	}
	all := w.of(seg)
	from := w.rand.IntN(len(all))
	items := &follower{name: "items", want: all[from:]}
	items.next = func() iter.Seq2[Item, error] { return seg.Items(ctx, uint64(from+len(items.got))) }
	return []*follower{
		{name: "earliest", want: w.items, next: func() iter.Seq2[Item, error] { return early.Next(ctx) }},
		{name: fmt.Sprint("from ", at), want: w.items[at:], next: func() iter.Seq2[Item, error] { return place.Next(ctx) }},
		{
			name: fmt.Sprint("since ", since), next: func() iter.Seq2[Item, error] { return late.Next(ctx) },
			want: slices.DeleteFunc(slices.Clone(w.items), func(i Item) bool { return i.Time.Before(since) }),
		},
		{name: "new each time", want: w.items, next: func() iter.Seq2[Item, error] {
			again = mustRead(w.T, w.topicOf(ctx), again.Position())
			return again.Next(ctx)
		}},
		items,
	}
}

func (w *switching) run() {
	readers := w.readers()
	defer func() {
		for _, f := range readers {
			if f.pull != nil {
				f.stop()
			}
		}
	}()
	for len(readers) > 0 {
		i := w.rand.IntN(len(readers))
		if f := readers[i]; !w.advance(f) {
			if diff := cmp.Diff(f.want, f.got); diff != "" {
				w.Fatalf("%s (-want +got):\n%s", f.name, diff)
			}
			readers = slices.Delete(readers, i, i+1)
		}
		if w.rand.IntN(3) == 0 {
			w.step()
		}
	}
	for _, steps := range w.steps {
		for _, do := range steps {
			if err := do(); err != nil {
				w.Fatal(err)
			}
		}
	}
	clean(w.T, w.fs)
}

// TestSwitch reads through segments while they are compacted and their chunks are
// deleted: each reader gets every record, once, in order, without an error.
func TestSwitch(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newSwitching(t, seed).run() })
		})
	}
}

// TestSwitchAtEveryCall makes all of the compaction before the n-th call of a reader,
// or all but the deletions, for every n and every place where the reader may be.
func TestSwitchAtEveryCall(t *testing.T) {
	for stop := range 4 {
		for n := 1; ; n++ {
			f := newFamily(t, 2, 2, 2)
			calls := 0
			top, err := testStore(f.fs, func(memfs.Op) memfs.Fault {
				if calls++; calls == n {
					packer{perFile: 2}.compact(t, f.segs[0])
					trimAll(t, f.segs[0])
				}
				return memfs.Fault{}
			}).Topic(t.Context(), "orders")
			if err != nil {
				t.Fatal(err)
			}
			r := mustRead(t, top, nil)
			var got []Item
			for item, err := range r.Next(t.Context()) {
				if err != nil {
					t.Fatalf("compacted before call %d: %v", n, err)
				}
				if got = append(got, item); len(got) == stop {
					break
				}
			}
			f.same(append(got, readAll(t, r)...), f.items)
			since := noon.Add(time.Duration(stop) * time.Second)
			if r, err = top.ReadSince(t.Context(), since); err != nil {
				t.Fatal(err)
			}
			want := slices.DeleteFunc(slices.Clone(f.items), func(i Item) bool { return i.Time.Before(since) })
			f.same(readAll(t, r), want)
			if calls < n {
				break
			}
		}
	}
}
