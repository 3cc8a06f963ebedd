package segment

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	weedChunks = 40
	weedEach   = 250
	weedAll    = weedChunks * weedEach
)

// weedValue is the value of a record on the real filer: some 2 KB that do not pack
// well, so that files have several blobs.
func weedValue(seq uint64) []byte {
	b := make([]byte, 0, 2048)
	for x := seq*0x9e3779b97f4a7c15 + 1; len(b) < 2000; x = x*6364136223846793005 + 1442695040888963407 {
		b = fmt.Appendf(b, "%x", x)
	}
	return b
}

// onWeed is a topic on a real filer with one sealed segment.
func onWeed(t *testing.T) (*Store, *Topic, *Segment) {
	t.Helper()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	f, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: devtest.Weed(t).Info.Filer})
	ok(err)
	t.Cleanup(func() { ok(f.Close()) })
	store := NewStore(f, "spillway")
	def := orders
	def.Name = "t-" + strings.ToLower(rand.Text()[:12])
	top, err := store.CreateTopic(t.Context(), def, 1, noon)
	ok(err)
	segs, err := top.Segments(t.Context())
	ok(err)
	for c := range uint64(weedChunks) {
		in := input(t, "a", 1, 1)
		in.Set = &record.Set{}
		for seq := c*weedEach + 1; seq <= (c+1)*weedEach; seq++ {
			r := mixedRecord("a", seq)
			r.Value = weedValue(seq)
			r.Position = topic.Position{Sequence: seq}
			r.Ref = nil
			ok(in.Set.Append(&r, 1))
		}
		mustAppend(t, segs[0], in)
	}
	mustEdit(t, top, rollFirst)
	return store, top, segs[0]
}

// checked counts items, each of which must be the next one.
type checked struct {
	next  uint64
	third func() // called when a third of all is read
}

func (c *checked) all(items iter.Seq2[Item, error]) error {
	for item, err := range items {
		if err != nil {
			return fmt.Errorf("at %d: %w", c.next, err)
		}
		if item.Offset != c.next || item.Position.Sequence != c.next+1 || !bytes.Equal(item.Value, weedValue(c.next+1)) {
			return fmt.Errorf("at %d: got offset %d, message %d", c.next, item.Offset, item.Position.Sequence)
		}
		if c.next++; c.next == weedAll/3 {
			c.third()
		}
	}
	if c.next != weedAll {
		return fmt.Errorf("it ended at %d of %d", c.next, weedAll)
	}
	return nil
}

// TestSwitchOnWeed: on a real filer, readers go through a segment while it is
// compacted and its chunks are deleted; one sleeps from before until after all that.
func TestSwitchOnWeed(t *testing.T) {
	store, top, seg := onWeed(t)
	there, done := make(chan struct{}, 3), make(chan struct{})
	arrive := func() { there <- struct{}{} }
	g, ctx := errgroup.WithContext(t.Context())
	read := func(third func(), items func() iter.Seq2[Item, error]) {
		g.Go(func() error { return (&checked{third: third}).all(items()) })
	}
	fast := mustRead(t, top, nil)
	read(arrive, func() iter.Seq2[Item, error] { return fast.Next(ctx) })
	sleeper := mustRead(t, top, ReadPosition{seg.ID: 0})
	read(func() { arrive(); await(ctx, done) }, func() iter.Seq2[Item, error] { return sleeper.Next(ctx) })
	other, err := top.Segment(t.Context(), seg.ID)
	if err != nil {
		t.Fatal(err)
	}
	read(arrive, func() iter.Seq2[Item, error] { return other.Items(ctx, 0) })
	g.Go(func() error {
		defer close(done)
		for range cap(there) {
			await(ctx, there)
		}
		m, err := packer{perFile: 4000}.pack(ctx, seg)
		if err == nil {
			m, err = seg.CreateManifest(ctx, m)
		}
		if err == nil {
			err = seg.Trim(ctx, m.Seal)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if c, err := seg.first(t.Context()); err != nil || !c.Sealed {
		t.Errorf("the first entry is %+v, error %v", c, err)
	}
	checkWeed(t, top, seg)
	if err := store.DeleteTopic(t.Context(), top.Name, noon); err != nil {
		t.Error(err)
	}
	if page, err := store.Filer.List(t.Context(), seg.DataDir(), "", 0); err != nil || len(page) > 0 {
		t.Errorf("%d files are left, error %v", len(page), err)
	}
}

func await(ctx context.Context, c <-chan struct{}) {
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// checkWeed reads what is compacted now, from a time on and by key.
func checkWeed(t *testing.T, top *Topic, seg *Segment) {
	t.Helper()
	const at = weedAll * 2 / 3
	r, err := top.ReadSince(t.Context(), noon.Add(time.Duration(at+1)*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Position(); p[seg.ID] != at {
		t.Errorf("since: %v", p)
	}
	if err := (&checked{next: at, third: func() {}}).all(r.Next(t.Context())); err != nil {
		t.Error(err)
	}
	r = mustRead(t, top, nil)
	r.OnlyKey([]byte("key1"))
	n := 0
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; string(item.Key) != "key1" {
			t.Fatalf("key %q", item.Key)
		}
	}
	want := 0
	for seq := range uint64(weedAll) {
		if string(mixedRecord("a", seq+1).Key) == "key1" {
			want++
		}
	}
	if n != want {
		t.Errorf("%d records of the key, want %d", n, want)
	}
}
