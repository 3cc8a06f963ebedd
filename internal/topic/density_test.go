package topic

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// drawSpan gives ranges of all sizes, small ones often.
func drawSpan(t *rapid.T) Range {
	size := rapid.OneOf(rapid.Uint32Range(1, 8), rapid.Uint32Range(1, 5000), rapid.Just(uint32(Slots))).Draw(t, "size")
	lo := rapid.Uint32Range(0, Slots-size).Draw(t, "lo")
	return Range{lo, lo + size}
}

// drawDensity divides a range at random, with empty stretches and slots of their
// own.
func drawDensity(t *rapid.T, r Range) (d Density) {
	edges := []uint32{r.Lo, r.Hi}
	if r.Size() > 1 {
		for range rapid.IntRange(0, 40).Draw(t, "edges") {
			at := rapid.Uint32Range(r.Lo+1, r.Hi-1).Draw(t, "edge")
			edges = append(edges, at, min(at+1, r.Hi))
		}
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	load := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 1), rapid.Float64Range(0, 100))
	for i := range edges[1:] {
		d = append(d, Stretch{Range{edges[i], edges[i+1]}, load.Draw(t, "load")})
	}
	return d
}

// drawPart gives a part of a range.
func drawPart(t *rapid.T, r Range) Range {
	lo := rapid.Uint32Range(r.Lo, r.Hi-1).Draw(t, "part lo")
	return Range{lo, rapid.Uint32Range(lo+1, r.Hi).Draw(t, "part hi")}
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a), math.Abs(b)) }

// checkCover fails if stretches do not cover a range in order, or a load is
// negative.
func checkCover(t *rapid.T, d Density, r Range) {
	t.Helper()
	next := r.Lo
	for _, s := range d {
		if s.Lo != next || !s.Valid() || !(s.Load >= 0) {
			t.Fatalf("%v does not cover %s", d, r)
		}
		next = s.Hi
	}
	if next != r.Hi || d.Range() != r {
		t.Fatalf("%v does not cover %s, it has %s", d, r, d.Range())
	}
}

func TestDensityConservesLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawSpan(t)
		a, b := drawDensity(t, r), drawDensity(t, r)
		part := drawPart(t, r)
		before, other := slices.Clone(a), slices.Clone(b)

		within := a.Within(part)
		checkCover(t, within, part)
		rest := a.Of(Range{r.Lo, part.Lo}) + a.Of(Range{part.Hi, r.Hi})
		if !near(within.Total(), a.Of(part)) || !near(within.Total()+rest, a.Total()) {
			t.Fatalf("%v within %s, the rest is %v of %v", within, part, rest, a.Total())
		}
		sum := a.Plus(b)
		checkCover(t, sum, r)
		if !near(sum.Of(part), a.Of(part)+b.Of(part)) || !near(sum.Total(), a.Total()+b.Total()) {
			t.Fatalf("%v plus %v is %v", a, b, sum)
		}
		if f := rapid.Float64Range(0, 10).Draw(t, "f"); !near(a.Times(f).Of(part), f*a.Of(part)) {
			t.Fatalf("%v times %v is %v", a, f, a.Times(f))
		}
		if !slices.Equal(a, before) || !slices.Equal(b, other) {
			t.Fatal("an operand has changed")
		}
		if !slices.Equal(a.Plus(nil), a) || !slices.Equal(Density(nil).Plus(a), a) {
			t.Fatal("nothing was added, and something came out")
		}
	})
}

// checkCuts fails unless cuts are ascending slots inside of a range.
func checkCuts(t *rapid.T, cuts []uint32, r Range) {
	t.Helper()
	last := r.Lo
	for _, c := range cuts {
		if c <= last || c >= r.Hi {
			t.Fatalf("cuts %v of %s", cuts, r)
		}
		last = c
	}
}

// cut gives the loads of the pieces that cuts make.
func cut(d Density, cuts []uint32) (pieces []Stretch) {
	lo := d.Range().Lo
	for _, hi := range append(slices.Clone(cuts), d.Range().Hi) {
		r := Range{lo, hi}
		pieces = append(pieces, Stretch{r, d.Of(r)})
		lo = hi
	}
	return pieces
}

// fewest is the smallest number of pieces of at most size, found one slot at a
// time: the standard against which Pieces is held.
func fewest(d Density, size float64) int {
	n, load, open := 0, 0.0, false
	for _, s := range d {
		each := s.Load / float64(s.Size())
		for range s.Size() {
			switch {
			case each > size:
				if open {
					n++
				}
				n, open, load = n+1, false, 0
			case open && load+each > size:
				n, load = n+1, each
			default:
				open, load = true, load+each
			}
		}
	}
	if open {
		n++
	}
	return n
}

func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawSpan(t)
		d := drawDensity(t, r)
		size := rapid.Float64Range(0.05, 20).Draw(t, "size")
		cuts := d.Pieces(size)
		checkCuts(t, cuts, r)
		if len(cuts) == MaxLive {
			return // more than any topic has
		}
		pieces := cut(d, cuts)
		for _, p := range pieces {
			if p.Load > 1.0101*size && p.Size() > 1 {
				t.Fatalf("%s carries %v, more than %v", p, p.Load, size)
			}
		}
		for _, s := range d {
			if s.Size() == 1 && s.Load > size && !slices.ContainsFunc(pieces, func(p Stretch) bool { return p.Range == s.Range }) {
				t.Fatalf("slot %d carries %v, and has no piece of its own", s.Lo, s.Load)
			}
		}
		if most := fewest(d, size*0.9999); len(pieces) > most {
			t.Fatalf("%d pieces, %d would do", len(pieces), most)
		}
	})
}

// TestPiecesAreEqual says that pieces weigh about the same where no slot weighs
// much.
func TestPiecesAreEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Range{0, rapid.Uint32Range(20000, Slots).Draw(t, "slots")}
		d := drawDensity(t, r)
		heaviest := 0.0
		for _, s := range d {
			heaviest = max(heaviest, s.Load/float64(s.Size()))
		}
		n := rapid.IntRange(2, 64).Draw(t, "n")
		size := d.Total() / (float64(n) - 0.5)
		if heaviest > size/4 || d.Total() == 0 {
			return // slots are too heavy
		}
		light, heavy := math.Inf(1), 0.0
		for _, p := range cut(d, d.Pieces(size)) {
			light, heavy = min(light, p.Load), max(heavy, p.Load)
		}
		if light*2 < heavy {
			t.Fatalf("from %v to %v, for a size of %v", light, heavy, size)
		}
	})
}

func TestCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawSpan(t)
		d := drawDensity(t, r)
		n := rapid.IntRange(-1, 70).Draw(t, "n")
		cuts := d.Cuts(n)
		checkCuts(t, cuts, r)
		if len(cuts) > max(0, n-1) {
			t.Fatalf("%d cuts for %d pieces", len(cuts), n)
		}
		if (len(cuts) == 0) != (n < 2 || d.Total() == 0 || r.Size() == 1) {
			t.Fatalf("%d cuts of %v for %d pieces", len(cuts), d, n)
		}
		if len(cuts) == 0 {
			return
		}
		heaviest := 0.0
		for _, p := range cut(d, cuts) {
			heaviest = max(heaviest, p.Load)
		}
		// With a thousandth less, more pieces would be needed; or one slot alone
		// carries it.
		slot := 0.0
		for _, s := range d {
			slot = max(slot, s.Load/float64(s.Size()))
		}
		if heaviest > slot*1.001 && fewest(d, heaviest*0.999) <= n {
			t.Fatalf("the heaviest of %d pieces carries %v, less would do", n, heaviest)
		}
	})
}

func TestCutsOfFew(t *testing.T) {
	hot := func(lo, at, hi uint32, beside, load float64) Density {
		return slices.DeleteFunc(Density{{Range{lo, at}, beside}, {Range{at, at + 1}, load}, {Range{at + 1, hi}, beside}}, func(s Stretch) bool { return s.Lo >= s.Hi })
	}
	for name, c := range map[string]struct {
		d    Density
		n    int
		want []uint32
	}{
		"nothing":                {nil, 2, nil},
		"no load":                {Even(Full, 0), 2, nil},
		"one slot":               {Even(Range{7, 8}, 1), 2, nil},
		"two slots":              {Even(Range{7, 9}, 1), 2, []uint32{8}},
		"into one":               {Even(Full, 1), 1, nil},
		"into none":              {Even(Full, 1), 0, nil},
		"more than slots":        {Even(Range{7, 10}, 1), 64, []uint32{8, 9}},
		"halves":                 {Even(Full, 1), 2, []uint32{Slots / 2}},
		"quarters":               {Even(Full, 1), 4, []uint32{Slots / 4, Slots / 2, Slots / 4 * 3}},
		"all in one slot":        {hot(0, 100, 200, 0, 1), 3, []uint32{100, 101}},
		"all in the first":       {hot(0, 0, 200, 0, 1), 3, []uint32{1}},
		"all in the last":        {hot(0, 199, 200, 0, 1), 3, []uint32{199}},
		"part of the way":        {hot(0, 100, 200, 0, 1), 2, []uint32{100}},
		"hot, and two pieces":    {hot(0, 100, 200, 1, 8), 2, []uint32{100}},
		"hot, and enough pieces": {hot(0, 100, 200, 1, 8), 5, []uint32{100, 101}},
	} {
		if diff := cmp.Diff(c.want, c.d.Cuts(c.n)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", name, diff)
		}
	}
}

func TestPiecesOfMany(t *testing.T) {
	for name, d := range map[string]Density{
		"even": Even(Full, 1e12), "one hot slot": {{Range{0, 9}, 1e12}, {Range{9, 10}, 1e15}, {Range{10, Slots}, 1e12}},
		"as even as can be": Even(Full, Slots), "infinite": Even(Full, math.Inf(1)),
	} {
		cuts := d.Pieces(0.5)
		if len(cuts) != MaxLive || !slices.IsSorted(cuts) || cuts[0] != 1 || cuts[MaxLive-1] != MaxLive {
			t.Errorf("%s: %d cuts", name, len(cuts))
		}
		if n := len(d.Cuts(32)); !math.IsInf(d.Total(), 0) && n > 31 {
			t.Errorf("%s: %d cuts for 32 pieces", name, n)
		}
	}
	// Nonsense ends, too.
	for _, load := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		d := Density{{Range{0, 10}, 1}, {Range{10, Slots}, load}}
		d.Pieces(0.5)
		d.Cuts(7)
	}
}

func TestHeaviest(t *testing.T) {
	d := Density{{Range{0, 9}, 50}, {Range{9, 10}, 3}, {Range{10, 11}, 4}, {Range{11, 20}, 50}}
	if got, ok := d.Heaviest(); !ok || got != d[2] {
		t.Errorf("got %v, %v", got, ok)
	}
	if got, ok := Even(Full, 1).Heaviest(); ok {
		t.Errorf("of no known slot, %v is the heaviest", got)
	}
}

// uneven is a density as chunks tell it.
func uneven() (d Density) {
	for i, r := range Divide(128) {
		d = append(d, Stretch{r, float64(i%7 + 1)})
	}
	return d
}

func BenchmarkPieces(b *testing.B) {
	d := uneven()
	for b.Loop() {
		d.Pieces(d.Total() / 20)
	}
}

func BenchmarkCuts(b *testing.B) {
	d := uneven()
	for b.Loop() {
		d.Cuts(32)
	}
}
