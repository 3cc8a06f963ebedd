package inspect

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// band is a segment from its birth to its end, in seconds of the picture.
type band struct {
	topic.Live
	from, to float64 // as far as they are in the picture
	born     float64
	ended    float64     // +Inf while it is live
	by       *topic.Edit // that made it; nil: it is older than the history
	fork     edges       // which of its edges begin with it, as points
	join     edges       // which of its edges end with it, as points
	// parent is the band that it alone or with others flows from, and child the one
	// that it flows into, if there is just one such; else -1.
	parent, child int
}

// edges of a band: top is the one towards slot 0.
type edges struct{ top, bottom bool }

// stretch is a key range at, or from, a time.
type stretch struct {
	topic.Range
	at float64
}

// level is how many segments are live from a time on.
type level struct {
	at float64
	n  int
}

// course is a history of layouts as a river. At every time from its beginning on,
// the bands with from <= time < to cover the key space exactly once.
type course struct {
	bands   []band
	rolls   []stretch
	pending *stretch // the edit that is under way
	live    []level
	edits   int

	index map[topic.SegmentID]int // of live bands
	now   float64
}

// follow turns layouts, of which there is at least one, into a river.
func follow(layouts []topic.Layout, seconds func(time.Time) float64) (*course, error) {
	first := layouts[0]
	c := &course{index: map[topic.SegmentID]int{}, now: seconds(first.At)}
	list := topic.Layout{Live: first.Live}
	if err := list.Validate(); err != nil {
		return nil, &HistoryError{first.Epoch, err.Error()}
	}
	for _, s := range first.Live {
		c.bear(s, nil)
	}
	if !first.Pending {
		for _, s := range first.Edit.Children {
			if i, ok := c.index[s.ID]; ok {
				c.bands[i].by = &first.Edit
			}
		}
	}
	c.live = []level{{c.now, len(c.index)}}
	for i := range layouts[1:] {
		l := &layouts[1+i]
		c.now = max(c.now, seconds(l.At))
		if l.Pending {
			continue
		}
		if err := c.edit(&l.Edit); err != nil {
			return nil, &HistoryError{l.Epoch, err.Error()}
		}
	}
	if last := layouts[len(layouts)-1]; last.Pending {
		c.pending = &stretch{extent(last.Edit), c.now}
	}
	return c, nil
}

func (c *course) bear(s topic.Live, by *topic.Edit) int {
	i := len(c.bands)
	c.index[s.ID] = i
	c.bands = append(c.bands, band{Live: s, from: c.now, to: math.Inf(1), born: c.now, ended: math.Inf(1), by: by, parent: -1, child: -1})
	return i
}

// edit ends the parents of an edit and begins its children.
func (c *course) edit(e *topic.Edit) error {
	parents := make([]int, len(e.Parents))
	for i, id := range e.Parents {
		at, ok := c.index[id]
		if !ok {
			return fmt.Errorf("segment %s is not live", id)
		}
		parents[i] = at
		delete(c.index, id)
	}
	if err := c.covers(e, parents); err != nil {
		return err
	}
	children := make([]int, len(e.Children))
	for i, s := range e.Children {
		if _, ok := c.index[s.ID]; ok {
			return fmt.Errorf("segment %s is there already", s.ID)
		}
		children[i] = c.bear(s, e)
	}
	for _, i := range parents {
		b := &c.bands[i]
		b.to, b.ended = c.now, c.now
		b.join = c.open(b.Range, children)
		if len(children) == 1 {
			b.child = children[0]
		}
	}
	for _, i := range children {
		b := &c.bands[i]
		b.fork = c.open(b.Range, parents)
		if len(parents) == 1 {
			b.parent = parents[0]
		}
	}
	if len(parents) == 1 && len(children) == 1 {
		c.rolls = append(c.rolls, stretch{extent(*e), c.now})
	}
	c.edits++
	c.live = append(c.live, level{c.now, len(c.index)})
	return nil
}

// covers checks that an edit's children, and its parents, are neighbours in
// ascending order and cover the same slots.
func (c *course) covers(e *topic.Edit, parents []int) error {
	if len(parents) == 0 || len(e.Children) == 0 {
		return fmt.Errorf("it has %d parents and %d children", len(parents), len(e.Children))
	}
	all := extent(*e)
	next := all.Lo
	for _, i := range parents {
		if c.bands[i].Lo != next {
			return fmt.Errorf("parent %s does not begin at slot %d", c.bands[i].ID, next)
		}
		next = c.bands[i].Hi
	}
	if next != all.Hi {
		return fmt.Errorf("its parents end at slot %d, its children at %d", next, all.Hi)
	}
	next = all.Lo
	for _, s := range e.Children {
		if s.Lo != next || !s.Valid() {
			return fmt.Errorf("child %s has the range %s, want one that begins at slot %d", s.ID, s.Range, next)
		}
		next = s.Hi
	}
	return nil
}

// open tells which edges of a range are no edges of the bands on the other side of
// an edit, which are in ascending order.
func (c *course) open(r topic.Range, others []int) edges {
	e := edges{true, true}
	lo, hi := 0, len(others) // the first that ends above r.Lo
	for lo < hi {
		if mid := (lo + hi) / 2; c.bands[others[mid]].Hi > r.Lo {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	e.top = c.bands[others[lo]].Lo != r.Lo
	for hi = len(others) - 1; lo < hi; { // the first that ends at r.Hi or above
		if mid := (lo + hi) / 2; c.bands[others[mid]].Hi >= r.Hi {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	e.bottom = c.bands[others[lo]].Hi != r.Hi
	return e
}

// clip cuts off what lies before 0 and after end. Bands keep their places in the
// list, and those outside become empty.
func (c *course) clip(end float64) {
	inside := func(t float64) float64 { return min(max(t, 0), end) }
	for i := range c.bands {
		b := &c.bands[i]
		if b.from < 0 {
			b.fork, b.parent = edges{}, -1
		}
		if b.to > end {
			b.join, b.child = edges{}, -1
		}
		b.from, b.to = inside(b.from), inside(b.to)
	}
	c.rolls = slices.DeleteFunc(c.rolls, func(r stretch) bool { return r.at < 0 || r.at > end })
	c.live = slices.DeleteFunc(c.live, func(l level) bool { return l.at > end })
	for i := range c.live {
		c.live[i].at = max(c.live[i].at, 0)
	}
	if c.pending != nil {
		c.pending.at = inside(c.pending.at)
	}
}
