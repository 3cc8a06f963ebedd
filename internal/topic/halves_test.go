package topic

import (
	"math"
	"math/rand/v2"
	"testing"
)

// observed is what chunks tell of loads per slot: 64 buckets, and the slots that
// carry more than one part in 64.
func observed(slots []float64, r Range) (d Density) {
	total := 0.0
	for _, l := range slots[r.Lo:r.Hi] {
		total += l
	}
	for i := range uint32(64) {
		bucket := Range{r.Lo + i*r.Size()/64, r.Lo + (i+1)*r.Size()/64}
		rest, size := 0.0, 0.0
		for s := bucket.Lo; s < bucket.Hi; s++ {
			if slots[s] <= total/64 {
				rest, size = rest+slots[s], size+1
			}
		}
		lo := bucket.Lo
		for s := bucket.Lo; s <= bucket.Hi; s++ {
			hot := s < bucket.Hi && slots[s] > total/64
			if (hot || s == bucket.Hi) && lo < s {
				d = append(d, Stretch{Range{lo, s}, rest * float64(s-lo) / size})
			}
			if hot {
				d = append(d, Stretch{Range{s, s + 1}, slots[s]})
				lo = s + 1
			}
		}
	}
	return d
}

// TestHalves holds the cut that is computed from what chunks tell against loads
// that are known slot by slot: it is within 5 % of half.
func TestHalves(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const keys = 100_000
	weights := map[string]func(i int) (slot int, load float64){
		"uniform":   func(int) (int, float64) { return rng.IntN(Slots), 1 },
		"zipf":      func(i int) (int, float64) { return rng.IntN(Slots), 1 / math.Pow(float64(i+1), 0.8) },
		"steep":     func(i int) (int, float64) { return rng.IntN(Slots), 1 / float64(i+10) },
		"clustered": func(i int) (int, float64) { return (i % 5 * 13007) + rng.IntN(300), 1 },
		"one side":  func(int) (int, float64) { return int(math.Pow(rng.Float64(), 4) * Slots), 1 },
	}
	for name, draw := range weights {
		for round := range 50 {
			slots := make([]float64, Slots)
			total, heaviest := 0.0, 0.0
			for i := range keys {
				s, load := draw(i)
				slots[s] += load
				total += load
			}
			for _, l := range slots {
				heaviest = max(heaviest, l)
			}
			if heaviest > total/10 {
				t.Fatalf("%s: one slot carries %.0f %%", name, 100*heaviest/total)
			}
			cuts := observed(slots, Full).Cuts(2)
			if len(cuts) != 1 {
				t.Fatalf("%s, round %d: cuts %v", name, round, cuts)
			}
			left := 0.0
			for _, l := range slots[:cuts[0]] {
				left += l
			}
			if share := left / total; math.Abs(share-0.5) > 0.05 {
				t.Errorf("%s, round %d: %.1f %% are left of %d", name, round, 100*share, cuts[0])
			}
		}
	}
}

// TestNarrow says what becomes of load that is all in one bucket, and not in
// single slots: the first cut is wide of the mark, since nothing tells more, but
// the pieces have finer buckets. A few edits get there.
func TestNarrow(t *testing.T) {
	slots := make([]float64, Slots)
	for s := 40000; s < 40200; s++ {
		slots[s] = 1
	}
	inside := func(r Range) uint32 { return min(max(r.Hi, 40000), 40200) - min(max(r.Lo, 40000), 40200) }
	r := Full
	for range 4 {
		at := observed(slots, r).Cuts(2)[0]
		left, right := Range{r.Lo, at}, Range{at, r.Hi}
		if r = left; inside(right) > inside(left) {
			r = right
		}
	}
	if n := inside(r); n > 110 {
		t.Fatalf("after 4 edits, %d of 200 slots are still in %s", n, r)
	}
}
