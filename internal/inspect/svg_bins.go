package inspect

import (
	"math"
	"time"
)

// bins are equal stretches of time.
type bins struct {
	from  time.Time
	width float64 // in seconds
	n     int
}

// mostBins is how fine a picture's loads are.
const mostBins = 360

// newBins are a second long, or as much as it takes.
func newBins(from, to time.Time) bins {
	span := max(1, Picture{From: from}.seconds(to))
	b := bins{from: from, width: math.Ceil(span / mostBins)}
	b.n = int(math.Ceil(span / b.width))
	return b
}

// start of bin i.
func (b bins) start(i int) time.Time {
	p := Picture{From: b.from}
	return p.time(float64(i) * b.width)
}

// of is the bin of a time, the nearest one if it lies outside.
func (b bins) of(t time.Time) int {
	return int(min(max(Picture{From: b.from}.seconds(t)/b.width, 0), float64(b.n-1)))
}

// load is what was taken in, by bins.
type load struct {
	known    bool
	from, to time.Time // nothing is known before, and nothing comes after
	bins     []loadBin // ascending, those in which there was some
}

type loadBin struct {
	bin            int
	bytes, records float64
}

// spread adds what came in between two times. Calls come in the order of time; what
// lies in a bin before the last one counts there.
func (b bins) spread(l *load, from, to time.Time, sum loadBin) {
	p := Picture{From: b.from}
	f, t := p.seconds(from), p.seconds(to)
	last := b.of(to)
	for i := min(b.of(from), last); i <= last; i++ {
		share := 1.0
		if t > f {
			lo, hi := float64(i)*b.width, float64(i+1)*b.width
			if i == 0 {
				lo = min(lo, f)
			}
			if i == b.n-1 {
				hi = max(hi, t)
			}
			share = (min(t, hi) - max(f, lo)) / (t - f)
		}
		if n := len(l.bins); n == 0 || l.bins[n-1].bin < i {
			l.bins = append(l.bins, loadBin{bin: i})
		}
		at := &l.bins[len(l.bins)-1]
		at.bytes += share * sum.bytes
		at.records += share * sum.records
	}
}

// add sums loads over all bins.
func (l *load) add(other load) {
	for _, b := range other.bins {
		for len(l.bins) <= b.bin {
			l.bins = append(l.bins, loadBin{bin: len(l.bins)})
		}
		l.bins[b.bin].bytes += b.bytes
		l.bins[b.bin].records += b.records
	}
}

// points are the load per second. In a bin that the load begins or ends in, only
// that part of it counts, of at least a second.
func (b bins) points(l load) []Point {
	points := []Point{{At: l.from}}
	last := -1 // the bin before
	for _, bin := range l.bins {
		if last >= 0 && bin.bin > last+1 {
			points = append(points, Point{At: b.start(last + 1)})
		}
		from, to := latest(b.start(bin.bin), l.from), b.start(bin.bin+1)
		if l.to.Before(to) {
			to = l.to
		}
		span := max(1, Picture{From: from}.seconds(to))
		points = append(points, Point{At: from, Bytes: bin.bytes / span, Records: bin.records / span})
		last = bin.bin
	}
	if last >= 0 && last+1 < b.n {
		points = append(points, Point{At: b.start(last + 1)})
	}
	return points
}
