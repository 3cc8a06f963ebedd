package inspect

import (
	"fmt"
	"math"
	"strconv"

	"github.com/dustin/go-humanize"
)

// loadPanel draws what the topic takes in, and how many segments take it: as their
// capacity where a target is known.
func (d *drawing) loadPanel() {
	s := d.scales()
	d.grid(s)
	d.area(s)
	d.steps(s)
	d.loadKey()
}

// unit is what the load of the topic is counted in.
type unit struct {
	of     func(Point) float64
	target float64
	text   func(v float64) string
	label  func(v float64) string      // the same, short
	step   func(least float64) float64 // between lines of the scale
}

// unitOf is bytes, unless records come nearer to their target.
func unitOf(p Picture) unit {
	bytes := unit{
		func(at Point) float64 { return sane(at.Bytes) }, p.Target,
		perSecond, perSecond,
		func(least float64) float64 { return math.Exp2(max(0, math.Ceil(math.Log2(least)))) },
	}
	records := unit{
		func(at Point) float64 { return sane(at.Records) }, p.TargetRecords,
		func(v float64) string { return humanize.Comma(int64(v)) + " records/s" },
		func(v float64) string { return humanize.SIWithDigits(v, 1, "") + "/s" },
		nice,
	}
	var level [2]float64
	for _, at := range p.Load {
		level[0], level[1] = max(level[0], bytes.of(at)*records.target), max(level[1], records.of(at)*bytes.target)
	}
	if records.target > 0 && (bytes.target == 0 || level[1] > level[0]) {
		return records
	}
	return bytes
}

func perSecond(bytes float64) string { return amount(bytes) + "/s" }

// scales of the panel: heights that stand for load and for numbers of segments.
type scales struct {
	load, segments float64 // at the top
	loadStep       float64
	segmentStep    float64
}

// most is the greatest number of live segments in the picture.
func (d *drawing) mostLive() (most int) {
	for _, l := range d.course.live {
		most = max(most, l.n)
	}
	return most
}

func (d *drawing) scales() scales {
	most, target := float64(max(d.mostLive(), 1)), d.unit.target
	s := scales{load: 1.08 * d.total.peak(0, d.frame.end), segments: 1.08 * most}
	lines := max(1, d.frame.load.height()/24)
	if target > 0 {
		s.load = max(s.load, s.segments*target)
		s.segments = s.load / target
	}
	s.load = max(s.load, 1)
	s.loadStep = d.unit.step(s.load / lines)
	s.segmentStep = nice(s.segments / lines)
	if s.loadStep > s.load { // at least one line
		s.loadStep = d.unit.step(s.load / 2.5)
	}
	if s.segmentStep > s.segments {
		s.segmentStep = nice(s.segments / 2.5)
	}
	return s
}

func (d *drawing) level(v, top float64) float64 {
	b := d.frame.load
	return b.y1 - min(max(v/top, 0), 1)*b.height()
}

// grid draws lines and scales. Load is on the left; without it, only segments are
// shown.
func (d *drawing) grid(s scales) {
	b := d.frame.load
	if len(d.picture.Load) > 0 {
		for v := 0.0; v <= s.load; v += s.loadStep {
			y := d.level(v, s.load)
			d.rule(b.x0, y, b.x1, y, "grid")
			text := "0"
			if v > 0 {
				text = d.unit.label(v)
			}
			d.text(b.x0-10, y+4, "m s e", text)
		}
	}
	for v := 0.0; v <= s.segments; v += s.segmentStep {
		d.text(b.x1+10, d.level(v, s.segments)+4, "m s", strconv.FormatFloat(v, 'f', 0, 64))
	}
	d.rule(b.x0, b.y1, b.x1, b.y1, "edge")
}

// loadColumn is how wide the steps of the load are drawn, in pixels.
const loadColumn = 2.0

// area draws the load: its mean over each column, and paler its peak there.
func (d *drawing) area(s scales) {
	if len(d.picture.Load) == 0 {
		return
	}
	b := d.frame.load
	var mean, peak sheet
	mean.move(b.x0, b.y1)
	peak.move(b.x0, b.y1)
	for x := b.x0; x < b.x1; x += loadColumn {
		to := min(x+loadColumn, b.x1)
		from, until := d.frame.time(x), d.frame.time(to)
		v, _ := d.total.mean(from, until)
		top := d.total.peak(from, until)
		if d.total.known() > from { // the column begins before the load is known
			v *= min(1, max(0, until-d.total.known())/(until-from))
		}
		for _, c := range []struct {
			p *sheet
			v float64
		}{{&mean, min(v, top)}, {&peak, top}} {
			c.p.numbers('V', d.level(c.v, s.load))
			c.p.numbers('H', to)
		}
	}
	for _, c := range []struct {
		p     *sheet
		class string
	}{{&peak, "peak"}, {&mean, "area"}} {
		c.p.numbers('V', b.y1)
		d.put(`<path class="%s" d="%sz"/>`+"\n", c.class, c.p.String())
	}
}

// steps draws the number of live segments.
func (d *drawing) steps(s scales) {
	var p sheet
	last := math.Inf(-1) // place of the last step, on a grid of half a pixel
	for i, l := range d.course.live {
		x, y := d.frame.x(l.at), d.level(float64(l.n), s.segments)
		switch grid := math.Round(2 * x); {
		case i == 0:
			p.move(x, y)
		case grid > last:
			p.numbers('H', x)
			last = grid
			fallthrough
		default:
			p.numbers('V', y)
		}
	}
	if p.Len() > 0 {
		p.numbers('H', d.frame.load.x1)
		d.put(`<path class="steps" d="%s"/>`+"\n", p.String())
	}
}

// loadKey explains the panel, above it.
func (d *drawing) loadKey() {
	b := d.frame.load
	x, y := b.x0, b.y0-12
	if len(d.picture.Load) > 0 {
		d.rect(box{x, y - 9, x + 12, y + 1}, "area")
		text := "load of the topic, at most " + d.unit.text(d.total.peak(0, d.frame.end))
		d.text(x+18, y, "m", text)
		x += 18 + 6.6*float64(len(text)) + 24
	}
	d.rule(x, y-4, x+16, y-4, "steps")
	text := fmt.Sprintf("live segments, at most %d", d.mostLive())
	if d.unit.target > 0 {
		text = "capacity: live segments × " + d.unit.text(d.unit.target)
	}
	d.text(x+22, y, "m", text)
	d.text(b.x1+10, y, "m s", "segments")
}
