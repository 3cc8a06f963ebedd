package inspect

import (
	"math"
	"slices"
)

// shape is how a band is drawn: a gap away from its neighbours, which opens from
// a point where a split begins, and closes to a point where a merge ends.
type shape struct {
	box
	fork, join edges
	gap, bend  float64
	reach      float64 // see under
}

// Sizes in pixels.
const (
	leastHeight = 3.0 // of a band with a shape of its own
	mostGap     = 1.75
	mostBend    = 22.0
)

func newShape(at box, b band) shape {
	s := shape{
		box: at, fork: b.fork, join: b.join,
		gap:  min(mostGap, at.height()/8),
		bend: min(mostBend, at.width()/2),
	}
	if b.to == b.ended {
		s.reach = under
	}
	return s
}

// corners are the ends of the left and right side.
func (s shape) corners() (left, right [2]float64) {
	gap := func(closed bool) float64 {
		if closed {
			return 0
		}
		return s.gap
	}
	left = [2]float64{s.y0 + gap(s.fork.top), s.y1 - gap(s.fork.bottom)}
	right = [2]float64{s.y0 + gap(s.join.top), s.y1 - gap(s.join.bottom)}
	return left, right
}

// under is how far a band reaches below those that follow it, which are drawn over
// it, so that no background shines through the seam.
const under = 0.6

// path is the outline, clockwise from the upper left corner.
func (s shape) path(p *sheet) {
	left, right := s.corners()
	top, bottom := s.y0+s.gap, s.y1-s.gap
	p.move(s.x0, left[0])
	if s.fork.top {
		p.curve(s.x0, left[0], s.x0+s.bend, top)
	}
	if s.join.top {
		p.line(s.x1-s.bend, top)
		p.curve(s.x1-s.bend, top, s.x1, right[0])
	}
	p.line(s.x1+s.reach, right[0])
	p.line(s.x1+s.reach, right[1])
	if s.join.bottom {
		p.line(s.x1, right[1])
		p.curve(s.x1, right[1], s.x1-s.bend, bottom)
	}
	if s.fork.bottom {
		p.line(s.x0+s.bend, bottom)
		p.curve(s.x0+s.bend, bottom, s.x0, left[1])
	} else {
		p.line(s.x0, bottom)
	}
	p.WriteByte('z')
}

// stop is a colour at a share of a band's width.
type stop struct {
	offset float64
	class  string
}

// stops tells how a band's load changes along it: one stop if it does not. Over
// the bend behind a split, and before a merge, the colours flow into each other.
func (d *drawing) stops(i int, s shape, step float64) []stop {
	b := d.course.bands[i]
	n := int(min(max(math.Round(s.width()/step), 1), 400))
	list := make([]stop, 0, n+1)
	for k := range n {
		share := func(k float64) float64 { return b.from + k/float64(n)*(b.to-b.from) }
		class := d.class(i, share(float64(k)), share(float64(k+1)))
		list = append(list, stop{(float64(k) + 0.5) / float64(n), class})
	}
	bend := s.bend / s.width()
	if b.parent >= 0 {
		list = blendStart(list, d.classAtEnd(b.parent), bend)
	}
	if b.child >= 0 && (b.join.top || b.join.bottom) {
		list = mirror(blendStart(mirror(list), d.classAtStart(b.child), bend))
	}
	return thin(list)
}

// blendStart begins with another colour, and comes to the band's own at the bend.
func blendStart(list []stop, class string, bend float64) []stop {
	own := list[0].class
	if own == class {
		return list
	}
	rest := slices.DeleteFunc(list, func(s stop) bool { return s.offset <= bend })
	return append([]stop{{0, class}, {bend, own}}, rest...)
}

// mirror turns stops around, in place.
func mirror(list []stop) []stop {
	slices.Reverse(list)
	for k := range list {
		list[k].offset = 1 - list[k].offset
	}
	return list
}

// thin leaves out stops between two of the same colour.
func thin(list []stop) []stop {
	kept := list[:0]
	for k, s := range list {
		if k > 0 && k+1 < len(list) && s.class == kept[len(kept)-1].class && s.class == list[k+1].class {
			continue
		}
		kept = append(kept, s)
	}
	if len(kept) == 2 && kept[0].class == kept[1].class {
		kept = kept[:1]
	}
	return kept
}
