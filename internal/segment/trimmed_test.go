package segment

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	trimChunks = 5
	perChunk   = 3
)

// trimmable is a topic of one segment with trimChunks chunks of perChunk records.
func trimmable(t *testing.T) (*memfs.FS, *Topic, *Segment) {
	t.Helper()
	fs := memfs.New()
	top, segs := newTopic(t, fs, 1)
	for c := range uint64(trimChunks) {
		mustAppend(t, segs[0], input(t, "a", c*perChunk+1, (c+1)*perChunk))
	}
	return fs, top, segs[0]
}

// readUntil yields what a reader gets, and its error.
func readUntil(t *testing.T, r *Reader) (list []string, err error) {
	t.Helper()
	for item, err := range r.Next(t.Context()) {
		if err != nil {
			return list, err
		}
		list = append(list, string(item.Value))
	}
	return list, nil
}

func valuesFrom(offset int) (list []string) {
	for i := offset; i < trimChunks*perChunk; i++ {
		list = append(list, fmt.Sprintf("a%d", i+1))
	}
	return list
}

// TestReaderSleptThroughTrim: a reader at any offset, of a segment trimmed up to
// any chunk since, reads on exactly, or is told what it missed and where it can
// go on. It never jumps by itself (rule 31).
func TestReaderSleptThroughTrim(t *testing.T) {
	for offset := range trimChunks * perChunk {
		for below := range uint64(trimChunks) {
			for _, resumed := range []bool{false, true} {
				_, top, seg := trimmable(t)
				r := sleeper(t, top, seg, offset, resumed)
				if err := seg.Trim(t.Context(), below); err != nil {
					t.Fatal(err)
				}
				checkSleeper(t, r, offset, int(below)*perChunk)
			}
		}
	}
}

// sleeper is a reader that has read up to an offset: by itself, or in an earlier life.
func sleeper(t *testing.T, top *Topic, seg *Segment, offset int, resumed bool) *Reader {
	t.Helper()
	if resumed {
		return mustRead(t, top, ReadPosition{seg.ID: uint64(offset)})
	}
	r := mustRead(t, top, ReadPosition{seg.ID: 0})
	n := 0
	if offset == 0 {
		return r
	}
	for _, err := range r.Next(t.Context()) {
		if n++; n == offset || err != nil {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	return r
}

func checkSleeper(t *testing.T, r *Reader, offset, first int) {
	t.Helper()
	got, err := readUntil(t, r)
	if offset >= first {
		if err != nil || !slices.Equal(got, valuesFrom(offset)) {
			t.Errorf("at %d, trimmed below %d: read %q, error %v", offset, first, got, err)
		}
		return
	}
	var trimmed *TrimmedError
	if len(got) > 0 || !errors.As(err, &trimmed) || trimmed.At != uint64(offset) || trimmed.Next != uint64(first) {
		t.Errorf("at %d, trimmed below %d: read %q, error %v", offset, first, got, err)
		return
	}
	if got, err = readUntil(t, r); len(got) > 0 || !errors.As(err, &trimmed) {
		t.Errorf("asked again without a decision: read %q, error %v", got, err)
	}
	r.Skip(trimmed)
	if got, err = readUntil(t, r); err != nil || !slices.Equal(got, valuesFrom(first)) {
		t.Errorf("at %d, skipped to %d: read %q, error %v", offset, first, got, err)
	}
}

// TestReaderIsTrimmedMeanwhile trims between any two records that it yields.
func TestReaderIsTrimmedMeanwhile(t *testing.T) {
	for at := 1; at < trimChunks*perChunk; at++ {
		for below := range uint64(trimChunks) {
			_, top, seg := trimmable(t)
			r := mustRead(t, top, nil)
			var got []string
			var trimmed *TrimmedError
			for item, err := range r.Next(t.Context()) {
				if errors.As(err, &trimmed) {
					break
				}
				if err != nil {
					t.Fatalf("after %d, trimmed below %d: %v", at, below, err)
				}
				if got = append(got, string(item.Value)); len(got) == at {
					if err := seg.Trim(t.Context(), below); err != nil {
						t.Fatal(err)
					}
				}
			}
			want := valuesFrom(0)
			if trimmed != nil {
				want = slices.Delete(want, int(trimmed.At), int(trimmed.Next))
				r.Skip(trimmed)
				rest, err := readUntil(t, r)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rest...)
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %d, trimmed below %d: read %q, told %v", at, below, got, trimmed)
			}
		}
	}
}

// TestEarliestAndChildren: who starts at the earliest record starts at what is
// there; but of a child that it comes to, it is told what it missed.
func TestEarliestAndChildren(t *testing.T) {
	_, top, seg := trimmable(t)
	if err := seg.Trim(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	early := mustRead(t, top, nil)
	if got, err := readUntil(t, early); err != nil || !slices.Equal(got, valuesFrom(2*perChunk)) {
		t.Fatalf("earliest: read %q, error %v", got, err)
	}
	l := mustEdit(t, top, rollFirst)
	child, err := top.Segment(t.Context(), l.Live[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, child, input(t, "a", 16, 17))
	mustAppend(t, child, input(t, "a", 18, 19))
	if err := child.Trim(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	var trimmed *TrimmedError
	if got, err := readUntil(t, early); len(got) > 0 || !errors.As(err, &trimmed) || *trimmed != (TrimmedError{Segment: child.ID, At: 0, Next: 2}) {
		t.Errorf("read %q, error %v", got, err)
	}
}

// TestWriterSleptThroughTrim: a handle that knows any tail, of a log trimmed up to
// any entry since, appends at the true end, and takes nothing that is there.
func TestWriterSleptThroughTrim(t *testing.T) {
	for known := range trimChunks {
		for below := range uint64(trimChunks) {
			fs, _, seg := trimmable(t)
			stale := other(t, seg)
			e, err := seg.log.At(t.Context(), uint64(known))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stale.moveTo(e); err != nil {
				t.Fatal(err)
			}
			if err := seg.Trim(t.Context(), below); err != nil {
				t.Fatal(err)
			}
			out := mustAppend(t, stale, input(t, "a", 1, trimChunks*perChunk+2))
			if out.Taken != 2 || out.Chunk.Base != trimChunks*perChunk || out.Chunk.Entry.N != trimChunks {
				t.Errorf("knew %d, trimmed below %d: %+v", known, below, out)
			}
			clean(t, fs)
		}
	}
}

// TestPlannerSleptThroughEdits: a planner that knows any earlier layout plans
// again from the one in force, and refuses what is no longer live; the parents'
// logs may be trimmed to their seals meanwhile.
func TestPlannerSleptThroughEdits(t *testing.T) {
	fs, top, seg := trimmable(t)
	stale, err := testStore(fs, nil).Topic(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	old, err := stale.Layout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mustEdit(t, top, splitFirst)
	mustEdit(t, top, mergeAll)
	if err := seg.Trim(t.Context(), trimChunks); err != nil {
		t.Fatal(err)
	}
	_, err = stale.Edit(t.Context(), noon, func(l topic.Layout) (topic.Edit, error) { return l.Roll(old.Live[0].ID) })
	if !errors.Is(err, topic.ErrNotLive) {
		t.Errorf("error %v", err)
	}
	if l := mustEdit(t, stale, splitFirst); l.Epoch != 6 || len(l.Live) != 2 {
		t.Errorf("epoch %d, %d live", l.Epoch, len(l.Live))
	}
	// An intent at a number that is taken, or trimmed away, is lost, not written.
	intent, err := old.Intent(topic.Edit{Kind: topic.EditRoll, Parents: []topic.SegmentID{old.Live[0].ID}, Children: []topic.Live{{Range: topic.Full}}}, noon, nil2)
	if err != nil {
		t.Fatal(err)
	}
	e, err := stale.layoutLog().At(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	var lost *commitlog.LostError
	if _, err := stale.appendLayout(t.Context(), e, intent); !errors.As(err, &lost) {
		t.Errorf("error %v", err)
	}
	clean(t, fs)
}

func nil2() string { return "again" }
