package segment

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// shapes are ways in which records can fall into slots.
func shapes(rnd *rand.Rand) map[string]func() topic.Slot {
	key := func(n uint64) topic.Slot { return topic.SlotOf(strconv.AppendUint(nil, n, 10)) }
	zipf := func(s float64, keys uint64) func() topic.Slot {
		z := rand.NewZipf(rnd, s, 1, keys-1)
		return func() topic.Slot { return key(z.Uint64()) }
	}
	some := func(n uint64) func() topic.Slot { return func() topic.Slot { return key(rnd.Uint64N(n)) } }
	return map[string]func() topic.Slot{
		"a million keys": some(1 << 20), "zipf 1.01": zipf(1.01, 1<<20), "zipf 1.3": zipf(1.3, 1<<20), "zipf 2": zipf(2, 1000),
		"5 keys": some(5), "40 keys": some(40), "60 keys": some(60), "200 keys": some(200), "one key": func() topic.Slot { return 4711 },
	}
}

// minute is the records of a minute in a range, in chunks of so many records.
type minute struct {
	topic.Range
	load  topic.Density // as the chunks tell
	slots [topic.Slots]float64
	total float64
}

func newMinute(r topic.Range, size int, next func() topic.Slot) *minute {
	m := &minute{Range: r, load: topic.Even(r, 0)}
	for range 60 {
		list := make([]record.Rec, 0, size)
		for range size {
			if slot := next(); r.Contains(slot) {
				list = append(list, record.Rec{Slot: slot, Len: 100})
				m.slots[slot] += 100
				m.total += 100
			}
		}
		l := countLoad(r, list)
		m.load = m.load.Plus(Chunk{Load: l.buckets, Hot: l.hot}.Density(r, true))
	}
	return m
}

// heavier is the share of the heavier side, for each cut, and the least of them.
func (m *minute) heavier() (sides []float64, best float64) {
	sides, best = make([]float64, topic.Slots), 1
	left := 0.0
	for at := m.Lo + 1; at < m.Hi; at++ {
		left += m.slots[at-1]
		sides[at] = max(left, m.total-left) / m.total
		best = min(best, sides[at])
	}
	return sides, best
}

// TestCutsNearHalf: by what the chunks of a minute tell, a segment is cut within
// 5 % of as near to its half as slots allow, however its load is spread over keys
// and however few records a chunk has.
func TestCutsNearHalf(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, next := range shapes(rnd) {
		for _, r := range []topic.Range{topic.Full, {Lo: 4000, Hi: 40000}} {
			for _, size := range []int{20, 200, 2000} {
				m := newMinute(r, size, next)
				sides, best := m.heavier()
				if cuts := m.load.Cuts(2); len(cuts) != 1 || sides[cuts[0]] > best+0.05 {
					t.Errorf("%s in %s, %d records a chunk: cut at %v leaves %.3f on one side, %.3f is possible",
						name, r, size, cuts, sides[cuts[0]], best)
				}
			}
		}
	}
}

// TestNarrowSpotIsFoundBySplitting: load that lies in many slots within one part of
// the range is not seen in detail, which hashed keys do not bring about. Its
// children see it finer: a few splits divide it.
func TestNarrowSpotIsFoundBySplitting(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	next := func() topic.Slot { return topic.Slot(min(math.Abs(rnd.NormFloat64())*300+20000, 65535)) }
	parts := []*minute{newMinute(topic.Full, 1000, next)}
	heaviest := func() (i int, share float64) {
		for j, p := range parts {
			if p.total > parts[i].total {
				i = j
			}
		}
		return i, parts[i].total / (60 * 1000 * 100)
	}
	for len(parts) < 6 {
		i, _ := heaviest()
		cut := parts[i].load.Cuts(2)[0]
		parts = append(parts, newMinute(topic.Range{Lo: cut, Hi: parts[i].Hi}, 1000, next))
		parts[i] = newMinute(topic.Range{Lo: parts[i].Lo, Hi: cut}, 1000, next)
	}
	if _, share := heaviest(); share > 0.3 {
		t.Errorf("of %d segments, the heaviest has %.3f of the load", len(parts), share)
	}
}

// TestHotSlotsAddUp: a slot that carries a tenth of a minute's load is found by
// adding up chunks, with nearly all of what it took.
func TestHotSlotsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{10, 50, 500, 10_000} {
		load := topic.Even(topic.Full, 0)
		took := 0.0
		for range 60 {
			list := make([]record.Rec, size)
			for i := range list {
				list[i] = record.Rec{Slot: topic.Slot(rnd.Uint32()), Len: 100}
				if rnd.IntN(10) == 0 {
					list[i].Slot = 50_000
					took += 100
				}
			}
			l := countLoad(topic.Full, list)
			load = load.Plus(Chunk{Load: l.buckets, Hot: l.hot}.Density(topic.Full, true))
		}
		hottest, ok := load.Heaviest()
		if !ok || hottest.Lo != 50_000 || hottest.Load < 0.9*took || hottest.Load > took*1.01 {
			t.Errorf("%d records a chunk: %+v, it took %v", size, hottest, took)
		}
	}
}

// busyChunk is a chunk whose attributes are as long as they come.
func busyChunk() Chunk {
	c := goldenChunks()[0]
	c.Load, c.Hot = nil, nil
	for i := range LoadBuckets {
		c.Load = append(c.Load, Bucket{i, 1234, 123456})
	}
	for i := range MaxHot {
		c.Hot = append(c.Hot, HotSlot{topic.Slot(10_000 + 1000*i), 123, 12345})
	}
	return c
}

// BenchmarkReadLoad is what a reader of attributes pays for a chunk.
func BenchmarkReadLoad(b *testing.B) {
	e := commitlog.Entry{Entry: filer.Entry{Attrs: busyChunk().attrs()}}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := parseChunk(e); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("density", func(b *testing.B) {
		b.ReportAllocs()
		c := busyChunk()
		for b.Loop() {
			c.Density(topic.Full, true)
		}
	})
	b.Run("format", func(b *testing.B) {
		b.ReportAllocs()
		c := busyChunk()
		for b.Loop() {
			c.attrs()
		}
	})
}
