package segment

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
)

// genMarked draws records in stretches: with references or not, pending or not.
func genMarked() *rapid.Generator[[]record.Rec] {
	return rapid.Custom(func(t *rapid.T) (recs []record.Rec) {
		stretches := rapid.SampledFrom([]int{1, 20, 1000, 4000}).Draw(t, "stretches")
		longest := rapid.SampledFrom([]int{1, 3, 40}).Draw(t, "longest")
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range stretches {
			kind := rnd.IntN(4)
			for range 1 + rnd.IntN(longest) {
				// Pending without a reference is a mistake, and means nothing.
				recs = append(recs, record.Rec{HasRef: kind > 1, Pending: kind%2 == 1})
			}
		}
		return recs
	})
}

func TestMarksOfRecords(t *testing.T) {
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		recs := genMarked().Draw(t, "records")
		refs, pending := marks(recs)
		c := Chunk{Count: uint64(len(recs)), Refs: refs, Pending: pending}
		exact, wantRefs := 0, uint64(0)
		var gaps []int
		last := -1
		for i, r := range recs {
			if r.HasRef {
				wantRefs++
			}
			open := r.HasRef && r.Pending
			if open && !c.IsPending(uint64(i)) {
				t.Fatalf("record %d is pending, and not in %v", i, pending)
			}
			if open {
				exact++
				if last >= 0 && i > last+1 {
					gaps = append(gaps, i-last-1)
				}
				last = i
			}
		}
		if refs != wantRefs {
			t.Fatalf("%d references, want %d", refs, wantRefs)
		}
		// No list of at most MaxPending spans covers fewer.
		slices.Sort(gaps)
		for _, g := range gaps[:max(0, len(gaps)+1-MaxPending)] {
			exact += g
		}
		if n := covered(t, c); n != exact || len(pending) > MaxPending {
			t.Fatalf("%d spans cover %d records, at least %d have to be", len(pending), n, exact)
		}
		seen[fmt.Sprint("closed: ", len(gaps) >= MaxPending)] = true
		back, err := parseMarks(c.Count, fmt.Sprint(refs), formatPending(pending))
		if err != nil || back.Refs != refs || !slices.Equal(back.Pending, pending) {
			t.Fatalf("%v became %v, error %v", pending, back.Pending, err)
		}
	})
	if len(seen) != 2 {
		t.Errorf("not all was tried: %v", seen)
	}
}

// covered counts the records that the spans of a chunk cover, and checks that they
// are in order and apart.
func covered(t *rapid.T, c Chunk) (n int) {
	inside := map[uint64]bool{}
	for i, s := range c.Pending {
		if s.First > s.Last || s.Last >= c.Count || i > 0 && s.First <= c.Pending[i-1].Last+1 {
			t.Fatalf("%v", c.Pending)
		}
		for r := s.First; r <= s.Last; r++ {
			inside[r] = true
		}
	}
	for r := range c.Count + 2 {
		if c.IsPending(r) != inside[r] {
			t.Fatalf("record %d, spans %v: IsPending is %v", r, c.Pending, !inside[r])
		}
	}
	return len(inside)
}

// Of equal gaps the first are closed, so that whoever computes them gets the same.
func TestEqualGaps(t *testing.T) {
	recs := make([]record.Rec, 2*MaxPending+7) // 516 spans
	for i := range recs {
		recs[i].HasRef, recs[i].Pending = true, i%2 == 0
	}
	_, got := marks(recs)
	if len(got) != MaxPending || got[0] != (Span{0, 8}) || got[1] != (Span{10, 10}) || got[511] != (Span{1030, 1030}) {
		t.Errorf("%d spans: %v … %v", len(got), got[:2], got[len(got)-1])
	}
}

// parseMarks reads a chunk of so many records with these attributes.
func parseMarks(count uint64, refs, pending string) (Chunk, error) {
	a := maps.Clone(goldenChunks()[0].attrs())
	a[attrCount], a[attrRefs], a[attrPending] = fmt.Sprint(count), refs, pending
	return parseChunk(commitlog.Entry{Entry: filer.Entry{Attrs: a}})
}

func TestParseMarks(t *testing.T) {
	many := make([]string, MaxPending+1)
	for i := range many {
		many[i] = fmt.Sprint(2 * i)
	}
	for _, c := range []struct {
		refs, pending string
		want          []Span // nil: corrupt
	}{
		{"10", "0-3 7 9", []Span{{0, 3}, {7, 7}, {9, 9}}},
		{"10", "0 1 2-9", []Span{{0, 0}, {1, 1}, {2, 9}}},
		{"0", "", []Span{}},

		{"11", "", nil},
		{"-1", "", nil},
		{"", "", nil},
		{"x", "", nil},
		{"18446744073709551616", "", nil},
		{"10", "10", nil},
		{"10", "8-10", nil},
		{"10", "3 2", nil},
		{"10", "3 3", nil},
		{"10", "0-4 4-5", nil},
		{"10", "5-5", nil},
		{"10", "5-4", nil},
		{"10", "-4", nil},
		{"10", "4-", nil},
		{"10", "1-2-3", nil},
		{"10", "1,2", nil},
		{"10", "18446744073709551615", nil},
		{"10", "0-18446744073709551616", nil},
		{"10", "0x1", nil},
		{"10", "٣", nil},
	} {
		got, err := parseMarks(10, c.refs, c.pending)
		if c.want == nil && !errors.Is(err, filer.ErrCorrupt) || c.want != nil && (err != nil || !slices.Equal(got.Pending, c.want)) {
			t.Errorf("%s references, pending %.40q: %v, error %v", c.refs, c.pending, got.Pending, err)
		}
	}
	if got, err := parseMarks(3000, "3000", strings.Join(many[1:], " ")); err != nil || len(got.Pending) != MaxPending {
		t.Errorf("%d spans: error %v", MaxPending, err)
	}
	if _, err := parseMarks(3000, "3000", strings.Join(many, " ")); !errors.Is(err, filer.ErrCorrupt) {
		t.Errorf("%d spans: error %v", MaxPending+1, err)
	}
}

// BenchmarkMarks counts the references of a large flush: none, some in a row
// pending, and every other one.
func BenchmarkMarks(b *testing.B) {
	for name, mark := range map[string]func(i int) record.Rec{
		"none":      func(int) record.Rec { return record.Rec{} },
		"stretches": func(i int) record.Rec { return record.Rec{HasRef: true, Pending: i%1000 < 10} },
		"every other": func(i int) record.Rec {
			return record.Rec{HasRef: true, Pending: i%2 == 0}
		},
	} {
		b.Run(name, func(b *testing.B) {
			recs := make([]record.Rec, 400_000)
			for i := range recs {
				recs[i] = mark(i)
			}
			size := 0
			for b.Loop() {
				_, pending := marks(recs)
				size = len(formatPending(pending))
			}
			b.ReportMetric(float64(size), "attribute-bytes")
		})
	}
}
