package inspect

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// TestCourseCovers: at every time the bands lie side by side from the first slot to
// the last, in slots and in pixels, and there are as many as the count says.
func TestCourseCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := anything(t)
		p := Picture{}
		if rapid.Bool().Draw(t, "now") {
			p.Now = anyTime(t)
		}
		p = p.complete(h.layouts)
		c, err := follow(h.layouts, p.seconds)
		if err != nil {
			t.Fatal(err)
		}
		f := newFrame(p)
		c.clip(f.end)
		times := []float64{0, f.end / 3, math.Nextafter(f.end, 0)}
		for _, b := range c.bands {
			if b.from > b.to || b.from < 0 || b.to > f.end {
				t.Fatalf("%s lives from %v to %v", b.ID, b.from, b.to)
			}
			times = append(times, b.from, math.Nextafter(b.from, 0), (b.from+b.to)/2)
		}
		for _, at := range times {
			if at < f.end {
				checkCover(t, c, f, max(0, at))
			}
		}
	})
}

func checkCover(t *rapid.T, c *course, f frame, at float64) {
	var live []band
	for _, b := range c.bands {
		if b.from <= at && at < b.to {
			live = append(live, b)
		}
	}
	slices.SortFunc(live, func(a, b band) int { return int(a.Lo) - int(b.Lo) })
	next, y := uint32(0), f.river.y0
	for _, b := range live {
		at := f.box(b)
		if b.Lo != next || at.y0 != y {
			t.Fatalf("%s begins at slot %d and %v, want %d and %v", b.ID, b.Lo, at.y0, next, y)
		}
		next, y = b.Hi, at.y1
	}
	if next != topic.Slots || math.Abs(y-f.river.y1) > 1e-9 {
		t.Fatalf("at %v bands end at slot %d, %v", at, next, y)
	}
	n := 0
	for _, l := range c.live {
		if l.at <= at {
			n = l.n
		}
	}
	if n != len(live) {
		t.Fatalf("at %v there are %d bands, the count is %d", at, len(live), n)
	}
}

// TestShapesFlow: an edge that a split makes or a merge takes away begins or ends
// where both sides of it meet, and every other edge goes on at the same height.
func TestShapesFlow(t *testing.T) {
	h := story(t)
	p := Picture{Now: noon.Add(12 * time.Minute)}.complete(h.layouts)
	c, err := follow(h.layouts, p.seconds)
	if err != nil {
		t.Fatal(err)
	}
	c.clip(p.seconds(p.To))
	type want struct{ fork, join edges }
	for id, w := range map[string]want{
		"0-0":  {},                                                  // is split
		"2-0":  {fork: edges{bottom: true}},                         // and rolled
		"2-1":  {fork: edges{top: true}, join: edges{bottom: true}}, // and merged
		"0-1":  {join: edges{top: true}},
		"4-0":  {},
		"6-0":  {},
		"8-1":  {fork: edges{true, true}},
		"10-6": {fork: edges{top: true}},
	} {
		i := slices.IndexFunc(c.bands, func(b band) bool { return Short(b.ID) == id })
		b := c.bands[i]
		if b.fork != w.fork || b.join != w.join {
			t.Errorf("%s: fork %+v, join %+v, want %+v", id, b.fork, b.join, w)
		}
		s := newShape(newFrame(p).box(b), b)
		left, right := s.corners()
		for _, c := range []struct {
			name         string
			open         bool
			corner, edge float64
		}{
			{"upper left", w.fork.top, left[0], s.y0}, {"lower left", w.fork.bottom, left[1], s.y1},
			{"upper right", w.join.top, right[0], s.y0}, {"lower right", w.join.bottom, right[1], s.y1},
		} {
			if away := math.Abs(c.corner - c.edge); c.open != (away == 0) || away > mostGap {
				t.Errorf("%s: its %s corner is %v away from the edge", id, c.name, away)
			}
		}
		if s.gap <= 0 || s.bend > s.width()/2 {
			t.Errorf("%s: gap %v, bend %v", id, s.gap, s.bend)
		}
	}
}

// bigHistory is random edits that come to 4,096 live segments, or stay below most.
func bigHistory(edits, most int) (layouts []topic.Layout, p Picture) {
	rng := rand.New(rand.NewPCG(1, 2))
	var live []topic.Live
	for i, r := range topic.Divide(min(64, most/2)) {
		live = append(live, topic.Live{ID: topic.NewSegmentID(0, i, "token"), Range: r})
	}
	layouts = []topic.Layout{{At: noon, Live: slices.Clone(live), Edit: topic.Edit{Kind: topic.EditCreate}}}
	p = Picture{Title: "big", Target: 1e6, Segments: map[topic.SegmentID][]Point{}}
	for n := 1; n <= edits; n++ {
		at := noon.Add(time.Duration(n) * 17 * time.Second)
		e := topic.Edit{Reason: "12.4 MiB/s in the last 10 s is <above> the target & its burst"}
		i, parents := rng.IntN(len(live)), 1
		s := live[i]
		if short := most - len(live); s.Size() == 1 || i+1 < len(live) && (short == 0 || edits-n > short && rng.IntN(2) == 0) {
			i = min(i, len(live)-2)
			parents, e.Kind = 2, topic.EditMerge
			e.Children = []topic.Live{{Range: topic.Range{Lo: live[i].Lo, Hi: live[i+1].Hi}}}
		} else {
			e.Kind = topic.EditSplit
			mid := s.Lo + s.Size()/2
			e.Children = []topic.Live{{Range: topic.Range{Lo: s.Lo, Hi: mid}}, {Range: topic.Range{Lo: mid, Hi: s.Hi}}}
		}
		for _, s := range live[i : i+parents] {
			e.Parents = append(e.Parents, s.ID)
		}
		for k := range e.Children {
			id := topic.NewSegmentID(uint64(2*n), k, "token")
			e.Children[k].ID = id
			for m := range 5 {
				p.Segments[id] = append(p.Segments[id], Point{At: at.Add(time.Duration(m) * time.Minute), Bytes: 2e6 * rng.Float64()})
			}
		}
		live = slices.Replace(live, i, i+parents, e.Children...)
		layouts = append(layouts, topic.Layout{Epoch: uint64(2 * n), At: at, Edit: e})
		p.Load = append(p.Load, Point{At: at, Bytes: 1e9 * rng.Float64()})
	}
	return layouts, p
}

// TestSVGOfMuch: the file stays small, and the time short.
func TestSVGOfMuch(t *testing.T) {
	for name, c := range map[string]struct{ edits, most int }{
		"thin":  {5000, topic.MaxLive},
		"short": {10000, 12}, // each of which could be seen on a wide picture
		"both":  {10000, 200},
	} {
		t.Run(name, func(t *testing.T) {
			layouts, p := bigHistory(c.edits, c.most)
			for _, width := range []int{0, 8000} {
				p.Width = width
				svg, took := "", time.Hour
				for range 3 { // the machine may be busy
					start := time.Now()
					svg = drawSVG(t, layouts, p)
					if took = min(took, time.Since(start)); took < time.Second {
						break
					}
				}
				t.Logf("%d edits, width %d: %d bytes in %s", c.edits, width, len(svg), took)
				if len(svg) > 5_000_000 {
					t.Errorf("%d bytes", len(svg))
				}
				if took > 2*time.Second {
					t.Errorf("it took %s", took)
				}
				wellFormed(t, svg)
			}
		})
	}
}
