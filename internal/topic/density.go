package topic

import (
	"math"
	"slices"
)

// Stretch is a part of the key space with the load that falls into it, in
// whatever unit its user counts.
type Stretch struct {
	Range
	Load float64
}

// Density tells where in a range load falls: stretches in ascending order that
// cover the range without gaps. Within a stretch the load counts as spread
// evenly; a slot of which more is known has a stretch of its own.
type Density []Stretch

// Even is a load that is spread evenly over a range.
func Even(r Range, load float64) Density { return Density{{r, load}} }

// Range is what the density covers.
func (d Density) Range() Range {
	if len(d) == 0 {
		return Range{}
	}
	return Range{d[0].Lo, d[len(d)-1].Hi}
}

// Total is the load of all stretches.
func (d Density) Total() (sum float64) {
	for _, s := range d {
		sum += s.Load
	}
	return sum
}

// Of is the load that falls into a range.
func (d Density) Of(r Range) (sum float64) {
	for _, s := range d.Within(r) {
		sum += s.Load
	}
	return sum
}

// Within is the part of the density that lies in a range.
func (d Density) Within(r Range) (part Density) {
	for _, s := range d {
		in := Range{max(s.Lo, r.Lo), min(s.Hi, r.Hi)}
		if in.Lo < in.Hi {
			part = append(part, Stretch{in, s.Load * float64(in.Size()) / float64(s.Size())})
		}
	}
	return part
}

// Times is the density with all loads multiplied by f.
func (d Density) Times(f float64) Density {
	d = slices.Clone(d)
	for i := range d {
		d[i].Load *= f
	}
	return d
}

// Plus adds a density of the same range, or one of nothing. The sum has the
// borders of both.
func (d Density) Plus(other Density) Density {
	if len(d) == 0 {
		return slices.Clone(other)
	}
	if len(other) == 0 {
		return slices.Clone(d)
	}
	sum := make(Density, 0, len(d)+len(other))
	for i, j := 0, 0; i < len(d) && j < len(other); {
		a, b := d[i], other[j]
		both := Stretch{Range: Range{max(a.Lo, b.Lo), min(a.Hi, b.Hi)}}
		size := float64(both.Size())
		both.Load = a.Load*size/float64(a.Size()) + b.Load*size/float64(b.Size())
		sum = append(sum, both)
		if a.Hi == both.Hi {
			i++
		}
		if b.Hi == both.Hi {
			j++
		}
	}
	return sum
}

// Heaviest is the slot that carries most, of those that have a stretch of their
// own. ok is false if none has.
func (d Density) Heaviest() (heaviest Stretch, ok bool) {
	for _, s := range d {
		if s.Size() == 1 && (!ok || s.Load > heaviest.Load) {
			heaviest, ok = s, true
		}
	}
	return heaviest, ok
}

// Pieces says where to cut the range so that no piece carries more than size > 0,
// or 1 % more, since slots are not divided: a slot that alone carries more becomes
// a piece of its own, and what lies between such slots is cut into as few pieces
// as do, of loads as equal as slots allow. The cuts are slots inside the range,
// ascending; none if the whole is light enough, and the first [MaxLive] if there
// are more.
func (d Density) Pieces(size float64) []uint32 { return d.pieces(size, size*1.01) }

// pieces isolates slots of more than size, and cuts the rest into pieces of at
// most most.
func (d Density) pieces(size, most float64) (cuts []uint32) {
	for start := 0; start < len(d) && len(cuts) <= MaxLive; {
		end := start
		for end < len(d) && d[end].each() <= size {
			end++
		}
		if run := d[start:end]; len(run) > 0 {
			cuts = append(append(cuts, run.balance(most, MaxLive-len(cuts))...), run.Range().Hi)
		}
		if end < len(d) {
			for at := d[end].Lo; at < d[end].Hi && len(cuts) <= MaxLive; at++ {
				cuts = append(cuts, at+1)
			}
		}
		start = end + 1
	}
	// The last is the end of the range, or one too many.
	return cuts[:max(0, len(cuts)-1)]
}

// Cuts says where to cut the range into at most n pieces, so that the heaviest
// carries as little as that allows. With n = 2 it is where half of the load lies
// on each side. If one slot has all of the load, and more than n pieces would be
// needed to give it one of its own, the cuts go some of the way. Nil: n < 2, there
// is no load, or there is but one slot.
func (d Density) Cuts(n int) []uint32 {
	total := d.Total()
	if !(total > 0) || n < 2 {
		return nil
	}
	// The larger the pieces, the fewer: halve the interval in which the smallest
	// size lies that needs no more than n.
	lo, hi := total/float64(n), total
	if len(d.fill(lo, n)) < n {
		hi = lo
	}
	for i := 0; i < halvings && lo < hi; i++ {
		mid := lo + (hi-lo)/2
		if len(d.fill(mid, n)) < n {
			hi = mid
		} else {
			lo = mid
		}
	}
	if cuts := d.pieces(hi, hi); len(cuts) > 0 {
		return cuts
	}
	finer := d.fill(lo, n)
	return finer[:min(n-1, len(finer))]
}

// halvings are enough to find a load to the last of its digits that matters.
const halvings = 40

// balance cuts a density of slots of at most size into as few pieces of at most
// size as do, makes the heaviest of them as light as it can be, and the others as
// equal as they can be then. No more than most cuts.
func (d Density) balance(size float64, most int) []uint32 {
	cuts := d.fill(size, most)
	n := len(cuts)
	if n == 0 || n == most {
		return cuts
	}
	lo, hi := d.Total()/float64(n+1), size
	for _, s := range d {
		lo = max(lo, s.each())
	}
	for i := 0; i < halvings && lo < hi; i++ {
		mid := lo + (hi-lo)/2
		if len(d.fill(mid, n+1)) <= n {
			hi = mid
		} else {
			lo = mid
		}
	}
	return d.even(n, hi)
}

// even makes n cuts, for pieces of at most size, as equal as can be. n is what it
// takes.
func (d Density) even(n int, size float64) []uint32 {
	size *= 1 + 1e-5 // it is the smallest that does: leave room for rounding errors
	cuts := d.fill(size, n+1)
	earliest := d.mirror().fill(size, n+1) // what is after them just fits
	if len(cuts) != n || len(earliest) != n {
		return cuts // rounding errors
	}
	r, rest, left := d.Range(), d, d.Total()
	for k := range cuts {
		at := max(rest.nearest(left/float64(n+1-k)), r.Lo+r.Hi-earliest[n-1-k])
		if most := rest.fill(size, 1); len(most) > 0 {
			at = min(at, most[0])
		}
		cuts[k] = at
		rest = rest.Within(Range{at, r.Hi})
		left = rest.Total()
	}
	return cuts
}

// nearest is where a first piece would come nearest to a load.
func (d Density) nearest(load float64) uint32 {
	last := d.Range().Hi - 1
	for _, s := range d {
		if s.Load > 0 && s.Load >= load {
			// Exact halves are rounded down on all machines.
			slots := math.Round(load/s.each() - 1e-6)
			return min(max(s.Lo+uint32(max(0, slots)), d[0].Lo+1), last)
		}
		load -= s.Load
	}
	return last
}

// mirror is the density with its range turned around.
func (d Density) mirror() Density {
	r, turned := d.Range(), slices.Clone(d)
	slices.Reverse(turned)
	for i, s := range turned {
		turned[i].Range = Range{r.Lo + r.Hi - s.Hi, r.Lo + r.Hi - s.Lo}
	}
	return turned
}

// fill makes pieces from the left, each as large as it can be without carrying
// more than size, and gives slots that alone carry more a piece of their own. No
// more than most cuts.
func (d Density) fill(size float64, most int) (cuts []uint32) {
	r := d.Range()
	open, load := r.Lo, 0.0 // the piece being filled
	cut := func(at uint32) {
		if at > open && at < r.Hi && len(cuts) < most {
			cuts = append(cuts, at)
		}
		open, load = at, 0
	}
	for _, s := range d {
		each := s.each()
		for at := s.Lo; at < s.Hi && len(cuts) < most; {
			if each > size {
				cut(at)
				cut(at + 1)
				at++
				continue
			}
			n := s.Size() - (at - s.Lo)
			// A millionth of a slot is lost in rounding errors.
			if fit := math.Floor((size-load)/each + 1e-6); each > 0 && fit < float64(n) {
				n = uint32(max(0, fit))
			}
			at += n
			load += each * float64(n)
			if at < s.Hi {
				cut(at)
			}
		}
	}
	return cuts
}

// each is the load of each of the slots.
func (s Stretch) each() float64 { return s.Load / float64(s.Size()) }
