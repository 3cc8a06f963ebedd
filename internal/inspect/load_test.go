package inspect

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func bucket(i int, bytes uint64) segment.Bucket {
	return segment.Bucket{Index: i, Records: 1, Bytes: bytes}
}

func TestHalfLoad(t *testing.T) {
	r := topic.Range{Lo: 6400, Hi: 12800} // 100 slots a bucket
	even := make([]segment.Bucket, 64)
	for i := range even {
		even[i] = bucket(i, 10)
	}
	for name, c := range map[string]struct {
		r    topic.Range
		load []segment.Bucket
		want Cut
	}{
		"even":                     {r, even, Cut{9600, 320, 320}},
		"all of it twice":          {r, slices.Concat(even, even), Cut{9600, 640, 640}},
		"left-heavy":               {r, []segment.Bucket{bucket(0, 60), bucket(1, 50), bucket(63, 10)}, Cut{6500, 60, 60}},
		"a gap is cut in its half": {r, []segment.Bucket{bucket(0, 5), bucket(63, 5)}, Cut{9600, 5, 5}},
		"all at the left end":      {r, []segment.Bucket{bucket(0, 5)}, Cut{6500, 5, 0}},
		"all at the right end":     {r, []segment.Bucket{bucket(63, 5)}, Cut{12700, 0, 5}},
		"all in one place":         {r, []segment.Bucket{bucket(40, 5)}, Cut{10400, 0, 5}},
		"a hot place among others": {r, []segment.Bucket{bucket(1, 10), bucket(40, 100), bucket(50, 10)}, Cut{10400, 10, 110}},
		"fewer slots than buckets": {topic.Range{Lo: 10, Hi: 13}, []segment.Bucket{bucket(0, 5), bucket(21, 5), bucket(42, 5)}, Cut{11, 5, 10}},
		"two slots":                {topic.Range{Lo: 10, Hi: 12}, []segment.Bucket{bucket(32, 5)}, Cut{11, 0, 5}},
		"at the end of all slots":  {topic.Range{Lo: 65534, Hi: 65536}, []segment.Bucket{bucket(0, 5), bucket(32, 5)}, Cut{65535, 5, 5}},
	} {
		if got, err := HalfLoad(c.r, c.load); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		r    topic.Range
		load []segment.Bucket
	}{
		"none": {r, nil}, "one slot": {topic.Range{Lo: 1, Hi: 2}, even}, "no such bucket": {r, []segment.Bucket{bucket(-1, 1), bucket(64, 1)}},
	} {
		if got, err := HalfLoad(c.r, c.load); !errors.Is(err, ErrNoLoad) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestHalfLoadCutsWhereBucketsDo: the two sides are exactly what the children's
// slots took, and no other cut at a bucket's edge is better.
func TestHalfLoadCutsWhereBucketsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Uint32Range(0, topic.Slots-2).Draw(t, "lo")
		r := topic.Range{Lo: lo, Hi: rapid.Uint32Range(lo+2, topic.Slots).Draw(t, "hi")}
		bucketOf := func(slot uint32) int { return int((slot - r.Lo) * segment.LoadBuckets / r.Size()) }
		hits := rapid.SliceOfN(rapid.Uint32Range(r.Lo, r.Hi-1), 1, 50).Draw(t, "slots")
		var load []segment.Bucket
		for i, slot := range hits {
			load = append(load, bucket(bucketOf(slot), uint64(i%7)+1))
		}
		left := func(cut uint32) (n, total uint64) {
			for i, slot := range hits {
				total += uint64(i%7) + 1
				if slot < cut {
					n += uint64(i%7) + 1
				}
			}
			return n, total
		}
		cut, err := HalfLoad(r, load)
		if err != nil {
			t.Fatal(err)
		}
		n, total := left(cut.Slot)
		if cut.Slot <= r.Lo || cut.Slot >= r.Hi || cut.Left != n || cut.Right != total-n {
			t.Fatalf("%s: %+v, but %d of %d lie below", r, cut, n, total)
		}
		for slot := r.Lo + 1; slot < r.Hi; slot++ {
			if bucketOf(slot) == bucketOf(slot-1) {
				continue
			}
			n, total := left(slot)
			if other := (Cut{slot, n, total - n}); other.imbalance() < cut.imbalance() {
				t.Fatalf("%+v is better than %+v", other, cut)
			}
		}
	})
}

// TestLoad: what chunks have counted is what the cut goes by.
func TestLoad(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 300 {
		w.append("lane", rec{uint64(2*i + 1), 0, 100, i}, rec{uint64(2*i + 2), 0, 40000, i})
	}
	load, err := w.Load(t.Context(), w.live("slot:0").ID)
	w.check(err)
	if n := len(load); n != 2*loadChunks {
		t.Errorf("%d buckets", n)
	}
	cut, err := HalfLoad(topic.Full, load)
	if err != nil || cut.Left != cut.Right || cut.Slot <= 1024 || cut.Slot >= 40000 {
		t.Errorf("%+v, %v", cut, err)
	}
}
