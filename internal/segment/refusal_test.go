package segment

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// verdict is what a worker thinks of one record's reference.
type verdict int

const (
	verified verdict = iota
	pending
	refused
)

// judgedBy is messages from..to of the source "lane" as a worker has judged them.
// Every third has no reference, and no verdict.
func judgedBy(t *testing.T, worker string, from uint64, verdicts []verdict) Input {
	t.Helper()
	in := input(t, "lane", 1, 0)
	for i, v := range verdicts {
		seq := from + uint64(i)
		r := record.Record{Time: noon.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq}}
		if seq%3 > 0 {
			r.Ref = &record.Ref{URL: fmt.Sprintf("s3://bucket/%d", seq)}
		}
		if err := in.Set.Append(&r, topic.Slot(seq*13007)); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Ref == nil || v == verified:
		case v == pending:
			in.Set.Recs[i].Pending = true
		default:
			if err := in.Set.Refuse(i, "refused by "+worker); err != nil {
				t.Fatal(err)
			}
		}
	}
	return in
}

// wantJudged compares records with what the worker that committed them thought.
func wantJudged(t *rapid.T, got record.Record, worker string, v verdict) {
	want := record.Record{Position: got.Position}
	if got.Position.Sequence%3 > 0 {
		want.Ref = &record.Ref{URL: fmt.Sprintf("s3://bucket/%d", got.Position.Sequence)}
		want.Pending = v == pending
		if v == refused {
			want.Rejected = "refused by " + worker
		}
	}
	if (got.Ref == nil) != (want.Ref == nil) || got.Ref != nil && got.Ref.URL != want.Ref.URL ||
		got.Rejected != want.Rejected || got.Pending != want.Pending {
		t.Fatalf("%s committed %+v, want %+v", worker, got, want)
	}
}

// TestOneOutcome: two workers judge the same references differently, because the
// objects come and go between their looks, and race for the same numbers. Each
// record is there once, with the reason and the mark of the worker that won its
// chunk, whatever of a flush was there already.
func TestOneOutcome(t *testing.T) {
	conflicts, dropped := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		fs := memfs.New()
		_, segs := newTopic(t, fs, 1)
		workers := map[string]*Segment{"a": segs[0], "b": other(t, segs[0])}
		var by []string // who committed message i+1
		var how []verdict
		for range rapid.IntRange(2, 6).Draw(r, "flushes") {
			worker := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "worker")
			// It starts again at some checkpoint at or before the tail.
			from := rapid.IntRange(0, len(by)).Draw(r, "from")
			list := rapid.SliceOfN(rapid.SampledFrom([]verdict{verified, pending, refused}), 1, 12).Draw(r, "verdicts")
			in := judgedBy(t, worker, uint64(from)+1, list)
			if rapid.Bool().Draw(r, "prepared") {
				var err error
				if in.Prepared, err = workers[worker].Prepare(t.Context(), in.Set); err != nil {
					r.Fatal(err)
				}
			}
			out := mustAppend(t, workers[worker], in)
			if want := max(0, from+len(list)-len(by)); out.Taken != want {
				r.Fatalf("took %d, want %d", out.Taken, want)
			}
			conflicts += out.Conflicts
			if out.Taken > 0 {
				dropped += out.Dropped
			}
			for i := len(by) - from; i < len(list); i++ {
				by, how = append(by, worker), append(how, list[i])
			}
		}
		n := 0
		for item, err := range mustRead(t, segs[0].topic, nil).Next(t.Context()) {
			if err != nil {
				r.Fatal(err)
			}
			if item.Position.Sequence != uint64(n)+1 {
				r.Fatalf("record %d is %s", n, item.Position)
			}
			wantJudged(r, item.Record, by[n], how[n])
			n++
		}
		if n != len(by) {
			r.Fatalf("%d records, want %d", n, len(by))
		}
		wantMarks(t, r, segs[0])
		clean(t, fs)
	})
	if conflicts == 0 || dropped == 0 {
		t.Errorf("%d conflicts, %d records dropped of flushes that were taken in part", conflicts, dropped)
	}
}

// wantMarks compares each chunk's attributes with its records.
func wantMarks(t *testing.T, r *rapid.T, s *Segment) {
	for c, err := range s.Chunks(t.Context(), 0) {
		if err != nil {
			r.Fatal(err)
		}
		refs, n := uint64(0), uint64(0)
		for rec, err := range s.Records(t.Context(), c) {
			if err != nil {
				r.Fatal(err)
			}
			accepted := rec.Ref != nil && rec.Rejected == ""
			if accepted {
				refs++
			}
			// With so few records the ranges are exact.
			if c.IsPending(n) != rec.Pending || rec.Pending && !accepted {
				r.Fatalf("record %d of %s: %+v, pending %v", n, c.Entry.Path, rec, c.Pending)
			}
			n++
		}
		if c.Refs != refs {
			r.Fatalf("%s has %d references, it says %d", c.Entry.Path, refs, c.Refs)
		}
	}
}

// TestMarksThroughEdits: what a flush brings is divided anew after each edit, and
// partly dropped by what the parents have; the marks go with their records.
func TestMarksThroughEdits(t *testing.T) {
	merge := func(l topic.Layout) (topic.Edit, error) {
		if len(l.Live) == 1 {
			return splitFirst(l)
		}
		return mergeAll(l)
	}
	plans := []func(topic.Layout) (topic.Edit, error){splitFirst, merge, rollFirst}
	rapid.Check(t, func(r *rapid.T) {
		fs := memfs.New()
		top, _ := newTopic(t, fs, 2)
		how := map[uint64]verdict{}
		next := uint64(1)
		for range rapid.IntRange(1, 4).Draw(r, "edits") {
			from := rapid.Uint64Range(1, next).Draw(r, "from")
			list := rapid.SliceOfN(rapid.SampledFrom([]verdict{verified, pending, refused}), int(next-from)+1, int(next-from)+20).Draw(r, "verdicts")
			taken := commitBy(t, top, judgedBy(t, "a", from, list))
			for i, v := range list {
				if seq := from + uint64(i); seq >= next {
					how[seq] = v
				}
			}
			if want := int(from) + len(list) - int(next); taken != want {
				r.Fatalf("took %d, want %d", taken, want)
			}
			next = from + uint64(len(list))
			mustEdit(t, top, rapid.SampledFrom(plans).Draw(r, "edit"))
		}
		n := 0
		for item, err := range mustRead(t, top, nil).Next(t.Context()) {
			if err != nil {
				r.Fatal(err)
			}
			wantJudged(r, item.Record, "a", how[item.Position.Sequence])
			n++
		}
		if n != len(how) {
			r.Fatalf("%d records, want %d", n, len(how))
		}
		l, err := top.Lineage(t.Context())
		if err != nil {
			r.Fatal(err)
		}
		for _, m := range l.Members {
			s, err := top.Segment(t.Context(), m.ID)
			if err != nil {
				r.Fatal(err)
			}
			wantMarks(t, r, s)
		}
		clean(t, fs)
	})
}

// TestItemsSayWhatIsPending: a range that was widened covers records that were
// refused or have no reference. They are not pending, whatever it says.
func TestItemsSayWhatIsPending(t *testing.T) {
	_, segs := newTopic(t, memfs.New(), 1)
	verdicts := make([]verdict, 3*MaxPending+9) // pending, refused, none, pending, …
	for i := range verdicts {
		verdicts[i] = []verdict{pending, refused, verified}[i%3]
	}
	c := mustAppend(t, segs[0], judgedBy(t, "a", 1, verdicts)).Chunk
	if len(c.Pending) != MaxPending || c.Pending[0] != (Span{0, 9}) || c.Refs != MaxPending+3 {
		t.Fatalf("%d references, %d spans, the first is %v", c.Refs, len(c.Pending), c.Pending[0])
	}
	for _, from := range []uint64{0, 5} {
		n := from
		for item, err := range mustRead(t, segs[0].topic, ReadPosition{segs[0].ID: from}).Next(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if item.Offset != n || item.Pending != (n%3 == 0) || (item.Rejected != "") != (n%3 == 1) {
				t.Fatalf("record %d: %+v", n, item)
			}
			n++
		}
		if n != c.Count {
			t.Errorf("read up to %d", n)
		}
	}
}
