package segment

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Bucket is the load that fell into one of [LoadBuckets] equal parts of the
// segment's key range.
type Bucket struct {
	Index   int
	Records uint64
	Bytes   uint64
}

// HotSlot is a slot that alone took more than one part in [HotShare] of a chunk's
// records, or of its bytes. Its bucket's load includes it.
type HotSlot struct {
	Slot    topic.Slot
	Records uint64
	Bytes   uint64
}

const (
	// LoadBuckets is into how many parts a segment's key range is divided when
	// its load is counted.
	LoadBuckets = 64
	// HotShare says what is hot: more than one part in so many. With 64, segments
	// of keys that follow Zipf's law came out of a split with loads that differed
	// by 2.5; with 100, by less than 2 (planner/sim).
	HotShare = 100
	// MaxHot is how many hot slots a chunk names: the heaviest. Chunks of few
	// records could name a slot for each, and attributes are to stay small.
	// A slot that goes unnamed carries less than one part in MaxHot/2.
	MaxHot = 32
)

// heavy tells whether a part of a load is hot.
func heavy(records, bytes uint64, of load) bool {
	return records*HotShare > of.records || bytes*HotShare > of.bytes
}

// weight orders parts of a load: by their share of its records or of its bytes,
// whichever is more. A set's bytes and records are below 2^32.
func (h HotSlot) weight(of load) uint64 { return max(h.Records*of.bytes, h.Bytes*of.records) }

// load is the load that a set of records brings to a segment.
type load struct {
	records, bytes uint64
	buckets        []Bucket
	hot            []HotSlot
}

// Each bucket is divided again, and records are counted in these bins. If a slot
// is hot then so is its bin, and only the slots of hot bins are counted one by
// one: under load that is spread there are none.
const (
	bins     = LoadBuckets * binsEach
	binsEach = 64
	binSlots = topic.Slots / bins // at most, in a bin
)

// counter is the memory to count a load with. It is zero when it is not in use.
type counter struct {
	bins  [bins]count
	place [bins]uint8 // of a hot bin in slots, from 1
	slots [][binSlots]count
}

type count struct{ records, bytes uint64 }

func (c *count) add(r *record.Rec) {
	c.records++
	c.bytes += uint64(r.Len)
}

var counters = sync.Pool{New: func() any { return new(counter) }}

// countLoad counts records, all of which lie in the range.
func countLoad(r topic.Range, recs []record.Rec) (l load) {
	c := counters.Get().(*counter) //nolint:forcetypeassert // nothing else is in it
	for i := range recs {
		c.bins[binOf(r, recs[i].Slot)].add(&recs[i])
		l.bytes += uint64(recs[i].Len)
	}
	l.records = uint64(len(recs))
	l.buckets = make([]Bucket, 0, min(len(recs), LoadBuckets))
	var hot []int
	for i := range LoadBuckets {
		b := Bucket{Index: i}
		for j := i * binsEach; j < (i+1)*binsEach; j++ {
			n := c.bins[j]
			if n.records == 0 {
				continue
			}
			c.bins[j] = count{}
			b.Records += n.records
			b.Bytes += n.bytes
			if heavy(n.records, n.bytes, l) {
				hot = append(hot, j)
			}
		}
		if b.Records > 0 {
			l.buckets = append(l.buckets, b)
		}
	}
	if len(hot) > 0 {
		l.hot = c.hot(r, recs, hot, l)
	}
	counters.Put(c)
	return l
}

// hot counts the slots of hot bins, of which there are less than 2*HotShare, and
// names those that are hot.
func (c *counter) hot(r topic.Range, recs []record.Rec, hot []int, of load) (list []HotSlot) {
	c.slots = append(c.slots[:0], make([][binSlots]count, len(hot))...)
	for i, bin := range hot {
		c.place[bin] = uint8(i + 1)
	}
	for i := range recs {
		bin := binOf(r, recs[i].Slot)
		if at := c.place[bin]; at > 0 {
			c.slots[at-1][uint32(recs[i].Slot)-partStart(r, int(bin), bins)].add(&recs[i])
		}
	}
	for i, bin := range hot {
		c.place[bin] = 0
		for j, n := range c.slots[i] {
			if heavy(n.records, n.bytes, of) {
				list = append(list, HotSlot{topic.Slot(partStart(r, bin, bins) + uint32(j)), n.records, n.bytes})
			}
		}
	}
	if len(list) > MaxHot {
		slices.SortFunc(list, func(a, b HotSlot) int {
			return cmp.Or(cmp.Compare(b.weight(of), a.weight(of)), cmp.Compare(a.Slot, b.Slot))
		})
		list = list[:MaxHot]
		slices.SortFunc(list, func(a, b HotSlot) int { return cmp.Compare(a.Slot, b.Slot) })
	}
	return list
}

func binOf(r topic.Range, s topic.Slot) uint32 { return (uint32(s) - r.Lo) * bins / r.Size() }

// partStart is the first slot that counts for part i of a range in n parts.
func partStart(r topic.Range, i int, n uint64) uint32 {
	return r.Lo + uint32((uint64(i)*uint64(r.Size())+n-1)/n)
}

// Density is where in r, the segment's range, the chunk's records fell, or their
// bytes: what a bucket took is spread over its slots, and each hot slot has a
// stretch of its own.
func (c Chunk) Density(r topic.Range, bytes bool) topic.Density {
	pick := func(records, size uint64) float64 {
		if bytes {
			return float64(size)
		}
		return float64(records)
	}
	var loads [LoadBuckets]float64
	for _, b := range c.Load {
		loads[b.Index] += pick(b.Records, b.Bytes)
	}
	hot := make([]topic.Stretch, 0, len(c.Hot))
	for _, h := range c.Hot {
		if r.Contains(h.Slot) {
			slot := topic.Range{Lo: uint32(h.Slot), Hi: uint32(h.Slot) + 1}
			hot = append(hot, topic.Stretch{Range: slot, Load: pick(h.Records, h.Bytes)})
		}
	}
	d := make(topic.Density, 0, LoadBuckets+2*len(hot))
	for i, l := range loads {
		bucket := topic.Range{Lo: partStart(r, i, LoadBuckets), Hi: partStart(r, i+1, LoadBuckets)}
		n := 0
		for n < len(hot) && hot[n].Hi <= bucket.Hi {
			l -= hot[n].Load
			n++
		}
		d = divide(d, bucket, max(0, l), hot[:n])
		hot = hot[n:]
	}
	return d
}

// divide adds a bucket to a density: its hot slots, and what else it took evenly
// between them.
func divide(d topic.Density, bucket topic.Range, rest float64, hot []topic.Stretch) topic.Density {
	each := rest / float64(max(1, int(bucket.Size())-len(hot)))
	for _, h := range hot {
		between := topic.Range{Lo: bucket.Lo, Hi: h.Lo}
		d = extend(d, topic.Stretch{Range: between, Load: each * float64(between.Size())})
		d = extend(d, h)
		bucket.Lo = h.Hi
	}
	return extend(d, topic.Stretch{Range: bucket, Load: each * float64(bucket.Size())})
}

// extend adds a stretch, if it has slots. Where nothing fell, one stretch is
// enough.
func extend(d topic.Density, s topic.Stretch) topic.Density {
	switch n := len(d) - 1; {
	case s.Lo >= s.Hi:
	case s.Load == 0 && n >= 0 && d[n].Load == 0:
		d[n].Hi = s.Hi
	default:
		d = append(d, s)
	}
	return d
}

// counts reads "number=records/bytes …", ascending, with numbers below a limit.
func (p *attrParser) counts(name string, limit uint64, add func(n, records, bytes uint64)) {
	next := uint64(0)
	for field := range strings.FieldsSeq(p.attrs[name]) {
		number, rest, _ := strings.Cut(field, "=")
		records, bytes, _ := strings.Cut(rest, "/")
		n, err := strconv.ParseUint(number, 10, 32)
		r, err2 := strconv.ParseUint(records, 10, 64)
		b, err3 := strconv.ParseUint(bytes, 10, 64)
		if err != nil || err2 != nil || err3 != nil || n < next || n >= limit {
			p.fail(name)
			return
		}
		add(n, r, b)
		next = n + 1
	}
}

// fields is about how many fields an attribute has.
func (p *attrParser) fields(name string, limit int) int {
	return min(strings.Count(p.attrs[name], "="), limit)
}

func (p *attrParser) load() (list []Bucket) {
	list = slices.Grow(list, p.fields(attrLoad, LoadBuckets))
	p.counts(attrLoad, LoadBuckets, func(n, records, bytes uint64) { list = append(list, Bucket{int(n), records, bytes}) })
	return list
}

func (p *attrParser) hot() (list []HotSlot) {
	list = slices.Grow(list, p.fields(attrHot, MaxHot))
	p.counts(attrHot, topic.Slots, func(n, records, bytes uint64) { list = append(list, HotSlot{topic.Slot(n), records, bytes}) })
	if len(list) > MaxHot {
		p.fail(attrHot)
	}
	return list
}

func formatLoad(list []Bucket) string {
	var b []byte
	for _, l := range list {
		b = appendCount(b, uint64(l.Index), l.Records, l.Bytes)
	}
	return string(b)
}

func formatHot(list []HotSlot) string {
	var b []byte
	for _, h := range list {
		b = appendCount(b, uint64(h.Slot), h.Records, h.Bytes)
	}
	return string(b)
}

func appendCount(b []byte, n, records, bytes uint64) []byte {
	if len(b) > 0 {
		b = append(b, ' ')
	}
	b = append(strconv.AppendUint(b, n, 10), '=')
	b = append(strconv.AppendUint(b, records, 10), '/')
	return strconv.AppendUint(b, bytes, 10)
}
