package segment

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// recs is records of so many bytes each, by slot.
func recs(slots ...topic.Slot) (list []record.Rec) {
	for _, s := range slots {
		list = append(list, record.Rec{Slot: s, Len: 10})
	}
	return list
}

// times repeats a slot.
func times(n int, s topic.Slot) []topic.Slot { return slices.Repeat([]topic.Slot{s}, n) }

// from is n slots from one on.
func from(s topic.Slot, n int) (list []topic.Slot) {
	for i := range n {
		list = append(list, s+topic.Slot(i))
	}
	return list
}

func TestHotSlots(t *testing.T) {
	big := recs(from(1000, 640)...)
	big[5].Len = 110 // 110 bytes of 6,500
	edge := recs(from(1000, 640)...)
	edge[5].Len = 64 // 64 of 6,454: less than 1/100
	for name, c := range map[string]struct {
		r    topic.Range
		recs []record.Rec
		want string
	}{
		"none":                             {topic.Full, nil, ""},
		"one record":                       {topic.Full, recs(7), "7=1/10"},
		"all slots alike":                  {topic.Full, recs(from(0, 100)...), ""},
		"all slots alike, each over 1/100": {topic.Full, recs(from(0, 32)...), formatHot(hotOf(from(0, 32)))},
		"more than are named":              {topic.Full, recs(from(0, 99)...), formatHot(hotOf(from(0, 32)))},
		"one key among many":               {topic.Full, recs(append(from(30000, 990), times(10, 65535)...)...), ""},
		"one key over 1/100":               {topic.Full, recs(append(from(30000, 989), times(11, 65535)...)...), "65535=11/110"},
		"hot by bytes alone":               {topic.Full, big, "1005=1/110"},
		"not quite by bytes":               {topic.Full, edge, ""},
		"neighbours in one bin":            {topic.Full, recs(append(times(9, 17), times(8, 16)...)...), "16=8/80 17=9/90"},
		"a range of one slot":              {topic.Range{Lo: 9, Hi: 10}, recs(9, 9), "9=2/20"},
		"a range of few slots":             {topic.Range{Lo: 65530, Hi: 65536}, recs(65535, 65530, 65535), "65530=1/10 65535=2/20"},
		"the heaviest of many are named":   {topic.Full, recs(append(from(0, 50), times(4, 60000)...)...), formatHot(hotOf(from(0, 31))) + " 60000=4/40"},
		"a range that parts do not divide": {topic.Range{Lo: 1, Hi: 5001}, recs(append(from(4000, 200), times(9, 5000)...)...), "5000=9/90"},
	} {
		if got := formatHot(countLoad(c.r, c.recs).hot); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func hotOf(slots []topic.Slot) (list []HotSlot) {
	for _, s := range slots {
		list = append(list, HotSlot{s, 1, 10})
	}
	return list
}

// drawLoad is a range with records in it: some at few slots, some anywhere.
func drawLoad(t *rapid.T) (topic.Range, []record.Rec) {
	lo := rapid.Uint32Range(0, topic.Slots-1).Draw(t, "lo")
	width := rapid.SampledFrom([]uint32{1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 30000, topic.Slots}).Draw(t, "width")
	r := topic.Range{Lo: min(lo, topic.Slots-width), Hi: min(lo, topic.Slots-width) + width}
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	keys := rapid.SliceOfN(rapid.Uint32Range(r.Lo, r.Hi-1), 1, 70).Draw(t, "keys")
	hot := rapid.IntRange(0, 100).Draw(t, "hot")
	list := make([]record.Rec, rapid.SampledFrom([]int{0, 1, 10, 64, 65, 1000}).Draw(t, "records"))
	for i := range list {
		slot := r.Lo + rnd.Uint32N(r.Size())
		if rnd.IntN(100) < hot {
			slot = keys[min(rnd.IntN(len(keys)), rnd.IntN(len(keys)))]
		}
		list[i] = record.Rec{Slot: topic.Slot(slot), Len: 10 + rnd.Uint32N(1000)>>rnd.IntN(10)}
	}
	return r, list
}

// TestLoadIsWhatFell holds what is counted against counting slot by slot.
func TestLoadIsWhatFell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, list := drawLoad(t)
		var slots [topic.Slots]HotSlot
		var parts [LoadBuckets]Bucket
		var all load
		for _, rec := range list {
			part := (uint64(rec.Slot) - uint64(r.Lo)) * LoadBuckets / uint64(r.Size())
			slots[rec.Slot] = HotSlot{rec.Slot, slots[rec.Slot].Records + 1, slots[rec.Slot].Bytes + uint64(rec.Len)}
			parts[part] = Bucket{int(part), parts[part].Records + 1, parts[part].Bytes + uint64(rec.Len)}
			all.records, all.bytes = all.records+1, all.bytes+uint64(rec.Len)
		}
		var hot []HotSlot
		for _, s := range slots {
			if 100*s.Records > all.records || 100*s.Bytes > all.bytes {
				hot = append(hot, s)
			}
		}
		share := func(h HotSlot) float64 {
			return max(float64(h.Records)/float64(all.records), float64(h.Bytes)/float64(all.bytes))
		}
		slices.SortStableFunc(hot, func(a, b HotSlot) int { return cmp.Compare(share(b), share(a)) })
		hot = hot[:min(len(hot), 32)]
		slices.SortFunc(hot, func(a, b HotSlot) int { return int(a.Slot) - int(b.Slot) })
		got := countLoad(r, list)
		if got.records != all.records || got.bytes != all.bytes || formatHot(got.hot) != formatHot(hot) {
			t.Errorf("%s: %d records, %d bytes, hot %q; want %d, %d, %q", r, got.records, got.bytes, formatHot(got.hot), all.records, all.bytes, formatHot(hot))
		}
		want := slices.DeleteFunc(parts[:], func(b Bucket) bool { return b.Records == 0 })
		if formatLoad(got.buckets) != formatLoad(want) {
			t.Errorf("%s: %q, want %q", r, formatLoad(got.buckets), formatLoad(want))
		}
		if n := len(formatHot(got.hot)); n >= 1<<10 {
			t.Errorf("the attribute has %d bytes", n)
		}
	})
}

// covers checks that a density covers a range without gaps.
func covers(t interface{ Errorf(string, ...any) }, d topic.Density, r topic.Range) {
	at := r.Lo
	for _, s := range d {
		if s.Lo != at || s.Hi <= s.Lo || math.IsNaN(s.Load) || s.Load < 0 {
			t.Errorf("stretch %+v of %s comes after slot %d", s, r, at)
		}
		at = s.Hi
	}
	if at != r.Hi {
		t.Errorf("it ends at %d, and %s does not", at, r)
	}
}

// TestDensityIsTheLoad: a density has the chunk's total, each bucket its load and
// each hot slot its own.
func TestDensityIsTheLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, list := drawLoad(t)
		l := countLoad(r, list)
		c := Chunk{Count: l.records, Bytes: l.bytes, Load: l.buckets, Hot: l.hot}
		for _, bytes := range []bool{false, true} {
			pick := func(records, size uint64) float64 {
				if bytes {
					return float64(size)
				}
				return float64(records)
			}
			d := c.Density(r, bytes)
			covers(t, d, r)
			same := func(what string, got, want float64) {
				if math.Abs(got-want) > 1e-6*(1+want) {
					t.Errorf("%s: %g, want %g", what, got, want)
				}
			}
			same("total", d.Total(), pick(c.Count, c.Bytes))
			for _, b := range c.Load {
				part := topic.Range{Lo: partStart(r, b.Index, LoadBuckets), Hi: partStart(r, b.Index+1, LoadBuckets)}
				same(fmt.Sprint("bucket ", b.Index), d.Of(part), pick(b.Records, b.Bytes))
			}
			for _, h := range c.Hot {
				slot := topic.Range{Lo: uint32(h.Slot), Hi: uint32(h.Slot) + 1}
				same(fmt.Sprint("slot ", h.Slot), d.Of(slot), pick(h.Records, h.Bytes))
				if !slices.ContainsFunc(d, func(s topic.Stretch) bool { return s.Range == slot }) {
					t.Errorf("slot %d has no stretch of its own", h.Slot)
				}
			}
		}
	})
}

func TestDensity(t *testing.T) {
	c := Chunk{
		Load: []Bucket{{1, 106, 997}, {3, 7, 70}},
		Hot:  []HotSlot{{100, 6, 500}, {150, 2, 301}, {399, 7, 70}},
	}
	r := topic.Range{Lo: 0, Hi: 6400} // 100 slots a bucket
	for bytes, want := range map[bool]topic.Density{
		true: {
			{Range: topic.Range{Lo: 0, Hi: 100}, Load: 0}, {Range: topic.Range{Lo: 100, Hi: 101}, Load: 500},
			{Range: topic.Range{Lo: 101, Hi: 150}, Load: 98}, {Range: topic.Range{Lo: 150, Hi: 151}, Load: 301},
			{Range: topic.Range{Lo: 151, Hi: 200}, Load: 98}, {Range: topic.Range{Lo: 200, Hi: 399}, Load: 0},
			{Range: topic.Range{Lo: 399, Hi: 400}, Load: 70}, {Range: topic.Range{Lo: 400, Hi: 6400}, Load: 0},
		},
		false: {
			{Range: topic.Range{Lo: 0, Hi: 100}, Load: 0}, {Range: topic.Range{Lo: 100, Hi: 101}, Load: 6},
			{Range: topic.Range{Lo: 101, Hi: 150}, Load: 49}, {Range: topic.Range{Lo: 150, Hi: 151}, Load: 2},
			{Range: topic.Range{Lo: 151, Hi: 200}, Load: 49}, {Range: topic.Range{Lo: 200, Hi: 399}, Load: 0},
			{Range: topic.Range{Lo: 399, Hi: 400}, Load: 7}, {Range: topic.Range{Lo: 400, Hi: 6400}, Load: 0},
		},
	} {
		if got := c.Density(r, bytes); !slices.Equal(got, want) {
			t.Errorf("bytes %t: %v, want %v", bytes, got, want)
		}
	}
	if got := (Chunk{}).Density(r, true); !slices.Equal(got, topic.Even(r, 0)) {
		t.Errorf("of nothing: %v", got)
	}
}

// TestByteBase: bytes are counted over a segment's life, through conflicts, trims
// and the seal, and begin anew in children.
func TestByteBase(t *testing.T) {
	fs := memfs.New()
	top, segs := newTopic(t, fs, 1)
	a := segs[0]
	b := other(t, a)
	total := uint64(0)
	for i := range uint64(6) {
		s := []*Segment{a, b}[i/2%2]
		c := mustAppend(t, s, input(t, "lane", 3*i+1, 3*i+3)).Chunk
		if c.ByteBase != total || c.Bytes == 0 || c.ByteEnd() != total+c.Bytes {
			t.Errorf("chunk %d: from %d, %d bytes; want from %d", i, c.ByteBase, c.Bytes, total)
		}
		total = c.ByteEnd()
	}
	// Some of it was taken in already.
	c := mustAppend(t, a, input(t, "lane", 17, 20)).Chunk
	if c.Count != 2 || c.ByteBase != total {
		t.Errorf("%d records from %d, want from %d", c.Count, c.ByteBase, total)
	}
	total = c.ByteEnd()
	if err := a.Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	l, err := top.Edit(t.Context(), noon.Add(time.Hour), func(l topic.Layout) (topic.Edit, error) { return l.Roll(a.ID) })
	if err != nil {
		t.Fatal(err)
	}
	seal, err := a.Tail(t.Context())
	if err != nil || !seal.Sealed || seal.ByteBase != total || seal.Bytes != 0 || seal.Load != nil || seal.Hot != nil {
		t.Errorf("the seal is %+v, %v; want it from %d", seal, err, total)
	}
	child, err := top.Segment(t.Context(), l.Live[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	if c := mustAppend(t, child, input(t, "lane", 21, 22)).Chunk; c.ByteBase != 0 {
		t.Errorf("the child begins at byte %d", c.ByteBase)
	}
}

// TestBytesAreOfRecords: what a set's owner has cut from its records does not
// count.
func TestBytesAreOfRecords(t *testing.T) {
	_, segs := newTopic(t, memfs.New(), 1)
	in := input(t, "lane", 1, 9)
	in.Set.Recs = in.Set.Recs[3:5]
	want := uint64(in.Set.Recs[0].Len + in.Set.Recs[1].Len)
	if c := mustAppend(t, segs[0], in).Chunk; c.Count != 2 || c.Bytes != want {
		t.Errorf("%d records with %d bytes, want 2 with %d", c.Count, c.Bytes, want)
	}
}

// bucketsOnly is what counting costs without hot slots.
func bucketsOnly(r topic.Range, recs []record.Rec) (list []Bucket) {
	var counts [LoadBuckets]Bucket
	for _, rec := range recs {
		i := (uint32(rec.Slot) - r.Lo) * LoadBuckets / r.Size()
		counts[i].Records++
		counts[i].Bytes += uint64(rec.Len)
	}
	for i, b := range counts {
		if b.Records > 0 {
			b.Index = i
			list = append(list, b)
		}
	}
	return list
}

func BenchmarkCountLoad(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rnd, 1.1, 1, 1<<20)
	slots := map[string]func() topic.Slot{
		"uniform": func() topic.Slot { return topic.Slot(rnd.Uint32()) },
		"zipf":    func() topic.Slot { return topic.SlotOf(fmt.Append(nil, zipf.Uint64())) },
		"one key": func() topic.Slot { return 4711 },
	}
	for _, n := range []int{50, 80_000} {
		for _, name := range []string{"uniform", "zipf", "one key"} {
			list := make([]record.Rec, n)
			for i := range list {
				list[i] = record.Rec{Slot: slots[name](), Len: 100}
			}
			run := func(how string, count func()) {
				b.Run(fmt.Sprintf("%s/%d/%s", name, n, how), func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						count()
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/record")
				})
			}
			run("buckets", func() { bucketsOnly(topic.Full, list) })
			run("hot", func() { countLoad(topic.Full, list) })
		}
	}
}
