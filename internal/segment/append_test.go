package segment

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

// other opens a segment again, as another worker has it.
func other(t *testing.T, s *Segment) *Segment {
	t.Helper()
	o, err := s.topic.Segment(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Tail(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

func clean(t *testing.T, fs *memfs.FS) {
	t.Helper()
	if p := fs.Problems(); len(p) > 0 || fs.Blobs() > 0 {
		t.Errorf("%d leaked blobs, problems %q", fs.Blobs(), p)
	}
}

func (o Outcome) is(taken, dropped, conflicts, uploads int) bool {
	return o.Taken == taken && o.Dropped == dropped && o.Conflicts == conflicts && o.Uploads == uploads
}

func TestAppendDropsWhatIsThere(t *testing.T) {
	fs := memfs.New()
	_, segs := newTopic(t, fs, 1)
	a := segs[0]
	b := other(t, a)
	if out := mustAppend(t, a, input(t, "lane", 1, 3)); !out.is(3, 0, 0, 1) {
		t.Errorf("first: %+v", out)
	}
	// b has prepared 2..5 and does not know of 1..3.
	in := input(t, "lane", 2, 5)
	p, err := b.Prepare(t.Context(), in.Set)
	if err != nil {
		t.Fatal(err)
	}
	in.Prepared = p
	asked := 0
	in.Holds = func(_ context.Context, at SourcePosition) error {
		asked++
		if at.At != (topic.Position{Sequence: 3}) {
			t.Errorf("asked about %v", at)
		}
		return nil
	}
	if out := mustAppend(t, b, in); !out.is(2, 2, 1, 1) || out.Chunk.Base != 3 || asked != 1 {
		t.Errorf("second: %+v, asked %d times", out, asked)
	}
	// A tail of one's own is not asked about.
	own := input(t, "lane", 5, 6)
	own.Holds = func(context.Context, SourcePosition) error { return errors.New("asked about an own tail") }
	if out := mustAppend(t, b, own); !out.is(1, 1, 0, 1) {
		t.Errorf("third: %+v", out)
	}
	again := input(t, "lane", 1, 6)
	if again.Prepared, err = a.Prepare(t.Context(), again.Set); err != nil {
		t.Fatal(err)
	}
	if out, err := a.Append(t.Context(), again); err != nil || out.Taken != 0 || out.Chunk.Entry.ID != "" {
		t.Errorf("nothing new: %+v, error %v", out, err)
	}
	clean(t, fs)
}

func TestAppendCheckpointAndFloors(t *testing.T) {
	fs := memfs.New()
	_, segs := newTopic(t, fs, 1)
	s := segs[0]
	s.Floors = []topic.Floor{{Range: topic.Range{Lo: 0, Hi: 2}, Source: "lane", At: topic.Whole(4)}, {Range: topic.Range{Lo: 2, Hi: 9}, Source: "lane", At: topic.Whole(9)}}
	in := input(t, "lane", 1, 8)
	if out := mustAppend(t, s, in); !out.is(4, 4, 0, 1) {
		t.Errorf("floor 4: %+v", out)
	}
	in = input(t, "lane", 8, 12)
	in.Checkpoint = func(context.Context) (topic.Position, error) { return topic.Whole(10), nil }
	if out := mustAppend(t, s, in); !out.is(2, 3, 0, 1) {
		t.Errorf("checkpoint 10: %+v", out)
	}
	if out := mustAppend(t, s, input(t, "new", 1, 2)); !out.is(2, 0, 0, 1) || len(out.Chunk.Positions) != 2 {
		t.Errorf("another source: %+v", out)
	}
	clean(t, fs)
}

func TestAppendStops(t *testing.T) {
	fs := memfs.New()
	_, segs := newTopic(t, fs, 1)
	a := segs[0]
	b := other(t, a)
	mustAppend(t, a, input(t, "lane", 1, 2))
	prepared := func() Input {
		in := input(t, "lane", 3, 4)
		var err error
		if in.Prepared, err = b.Prepare(t.Context(), in.Set); err != nil {
			t.Fatal(err)
		}
		return in
	}
	in := prepared()
	in.Holds = func(context.Context, SourcePosition) error { return ErrSourceWentBack }
	if _, err := b.Append(t.Context(), in); !errors.Is(err, ErrSourceWentBack) {
		t.Errorf("the source went back: error %v", err)
	}
	for range 2 {
		if _, err := a.Seal(t.Context(), noon); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Append(t.Context(), prepared()); !errors.Is(err, ErrSealed) {
		t.Errorf("sealed by another: error %v", err)
	}
	if _, err := a.Append(t.Context(), input(t, "lane", 3, 4)); !errors.Is(err, ErrSealed) {
		t.Errorf("sealed: error %v", err)
	}
	tail, err := other(t, a).Tail(t.Context())
	if err != nil || !tail.Sealed || tail.End() != 2 || tail.PositionOf("lane").At.Sequence != 2 {
		t.Errorf("the seal is %+v, error %v", tail, err)
	}
	clean(t, fs)
}

// TestAppendAfterVoidWin wins a number below head, whose deletion takes the
// uploaded bytes along.
func TestAppendAfterVoidWin(t *testing.T) {
	fs := memfs.New()
	_, segs := newTopic(t, fs, 1)
	a := segs[0]
	mustAppend(t, a, input(t, "lane", 1, 1))
	stale := other(t, a)
	for seq := uint64(2); seq < 6; seq++ {
		mustAppend(t, a, input(t, "lane", seq, seq))
	}
	if err := a.Trim(t.Context(), 4); err != nil {
		t.Fatal(err)
	}
	if out := mustAppend(t, stale, input(t, "new", 1, 3)); out.Taken != 3 || out.Chunk.Base != 5 || out.Chunk.Entry.N != 5 {
		t.Errorf("got %+v", out)
	}
	r, err := a.topic.Read(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := values(t, r); !slices.Equal(got, []string{"lane5", "new1", "new2", "new3"}) {
		t.Errorf("read %q", got)
	}
	clean(t, fs)
}

// TestStrayCreateTakesNoBytesAlong: a create that lost without an answer arrives
// late, where the winner has been trimmed. The void entry is swept with the bytes
// that it names; they must not be those of the chunk that was committed instead.
func TestStrayCreateTakesNoBytesAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := memfs.New()
		_, segs := newTopic(t, fs, 1)
		a := segs[0]
		strayed := false
		late, err := testStore(fs, func(op memfs.Op) memfs.Fault {
			if op.Name != "Create" || strayed {
				return memfs.Fault{}
			}
			strayed = true
			return memfs.Fault{Late: time.Minute}
		}).Topic(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		b, err := late.Segment(t.Context(), a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Tail(t.Context()); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, a, input(t, "a", 1, 2))
		if out := mustAppend(t, b, input(t, "b", 1, 2)); out.Chunk.Entry.N != 1 || out.Uploads != 2 {
			t.Errorf("got %+v", out)
		}
		if err := a.Trim(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // the stray arrives
		if _, err := a.log.At(t.Context(), 0); err != nil {
			t.Fatalf("there is no void entry: %v", err)
		}
		if err := a.Trim(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if got := values(t, mustRead(t, a.topic, nil)); !slices.Equal(got, []string{"b1", "b2"}) {
			t.Errorf("read %q", got)
		}
	})
}
