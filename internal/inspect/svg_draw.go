package inspect

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/topic"
)

// drawing is a picture in the making.
type drawing struct {
	sheet
	picture Picture
	frame   frame
	course  *course
	unit    unit
	total   series   // load of the topic, in the unit
	loads   []series // levels of segments, by band
	most    float64  // the greatest of them
}

func newDrawing(p Picture, c *course) *drawing {
	d := &drawing{picture: p, frame: newFrame(p), course: c, unit: unitOf(p)}
	d.total = newSeries(p.Load, p.seconds, d.unit.of)
	d.loads = make([]series, len(c.bands))
	for i, b := range c.bands {
		d.loads[i] = newSeries(p.Segments[b.ID], p.seconds, p.level)
		d.most = max(d.most, d.loads[i].peak(b.from, b.to))
	}
	return d
}

// levelClass is the colour of a load.
func (d *drawing) levelClass(load float64, known bool) string {
	switch {
	case !known:
		return unknown
	case d.picture.targeted():
		return classOf(load, bounds, 1)
	}
	return classOf(load, relative, d.most)
}

// class is the colour of a band over some time.
func (d *drawing) class(i int, from, to float64) string {
	return d.levelClass(d.loads[i].mean(from, to))
}

// bendTime is how much time a bend takes.
func (d *drawing) bendTime() float64 { return mostBend / d.frame.river.width() * d.frame.end }

func (d *drawing) classAtEnd(i int) string {
	b := d.course.bands[i]
	return d.class(i, max(b.from, b.to-d.bendTime()), b.to)
}

func (d *drawing) classAtStart(i int) string {
	b := d.course.bands[i]
	return d.class(i, b.from, min(b.to, b.from+d.bendTime()))
}

// river draws the bands.
func (d *drawing) river() {
	d.slots()
	shown, small := d.divide()
	heat := newHeat(d.frame.river)
	for _, i := range small {
		heat.add(d.frame.box(d.course.bands[i]), func(x0, x1 float64) (float64, bool) {
			return d.loads[i].mean(d.frame.time(x0), d.frame.time(x1))
		})
	}
	heat.draw(&d.sheet, d.levelClass)
	total := 0.0
	for _, i := range shown {
		total += d.frame.box(d.course.bands[i]).width()
	}
	step := max(6, total/mostStops)
	for _, i := range shown {
		d.band(i, step, len(shown))
	}
	d.rolls()
	d.pending()
	d.labels(shown)
}

// Bounds of the file's size.
const (
	mostBands  = 5000  // with a shape of their own
	mostStops  = 15000 // of their colours
	mostLabels = 400
	mostRolls  = 5000
)

// divide tells which bands get a shape of their own. Those that are too small for
// one are drawn together, and so are more where there are very many.
func (d *drawing) divide() (shown, small []int) {
	for least := 1.0; ; least *= 1.5 {
		shown, small = shown[:0], small[:0]
		for i, b := range d.course.bands {
			switch at := d.frame.box(b); {
			case at.width() == 0:
			case at.width() >= least && at.height() >= leastHeight:
				shown = append(shown, i)
			default:
				small = append(small, i)
			}
		}
		if len(shown) <= mostBands {
			return shown, small
		}
	}
}

// band draws one band with a shape of its own.
func (d *drawing) band(i int, step float64, of int) {
	b := d.course.bands[i]
	s := newShape(d.frame.box(b), b)
	list := d.stops(i, s, step)
	fill := `class="` + list[0].class + `"`
	if len(list) > 1 {
		d.put(`<linearGradient id="g%d">`, i)
		for _, stop := range list {
			d.put(`<stop offset="%s" class="%s"/>`, strings.TrimPrefix(fmt.Sprintf("%.3f", stop.offset), "0"), stop.class)
		}
		d.put("</linearGradient>\n")
		fill = fmt.Sprintf(`fill="url(#g%d)"`, i)
	}
	d.put(`<path %s d="`, fill)
	s.path(&d.sheet)
	d.put("\"><title>%s</title></path>\n", escape(d.tooltip(i, of)))
}

// mostReason is how much of a reason is shown, in characters: less where there are
// very many.
func mostReason(bands int) int {
	if bands > 1500 {
		return 40
	}
	return 160
}

// tooltip tells of a segment.
func (d *drawing) tooltip(i, of int) string {
	b := d.course.bands[i]
	share := strconv.FormatFloat(math.Round(1e4*float64(b.Size())/topic.Slots)/100, 'f', -1, 64)
	text := fmt.Sprintf("segment %s: slots %s, %s %% of the keys\n", plain(Short(b.ID), 40), b.Range, share)
	from, to := d.picture.moment(b.born), "now"
	if b.by == nil {
		from = "before " + from
	}
	if !math.IsInf(b.ended, 1) {
		to = d.picture.moment(b.ended)
	}
	text += from + " to " + to
	if mean, ok := d.loads[i].mean(b.from, b.to); ok && d.picture.targeted() {
		text += fmt.Sprintf(", on average at %.0f %% of the target", 100*mean)
	} else if ok {
		text += ", on average " + amount(mean) + "/s"
	}
	if b.by == nil {
		return text
	}
	text += "\n" + plain(b.by.Kind, 20)
	if len(b.by.Parents) > 0 {
		text += " of " + names(b.by.Parents)
	}
	if reason := plain(b.by.Reason, mostReason(of)); reason != "" {
		text += ": " + reason
	}
	return text
}

// names lists the first few segments.
func names(ids []topic.SegmentID) string {
	const most = 4
	list := make([]string, 0, most+1)
	for i, id := range ids {
		if i == most {
			list = append(list, fmt.Sprintf("%d more", len(ids)-most))
			break
		}
		list = append(list, plain(Short(id), 40))
	}
	return strings.Join(list, " + ")
}

// leastApart is how far apart, in pixels, the rolls of a range are drawn. Of more
// than that only some are.
const leastApart = 24

// apart are the rolls that are drawn; all is false if some are not.
func (d *drawing) apart() (drawn []stretch, all bool) {
	last := map[topic.Range]float64{}
	for _, r := range d.course.rolls {
		x := d.frame.x(r.at)
		if before, ok := last[r.Range]; ok && x-before < leastApart {
			continue
		}
		last[r.Range] = x
		drawn = append(drawn, r)
	}
	return drawn, len(drawn) == len(d.course.rolls)
}

// rolls are thin dashed lines.
func (d *drawing) rolls() {
	var p sheet
	drawn, _ := d.apart()
	for i, r := range drawn {
		y0, y1 := d.frame.y(r.Lo), d.frame.y(r.Hi)
		if y1-y0 >= leastHeight && i < mostRolls {
			p.move(d.frame.x(r.at), y0+1)
			p.numbers('V', y1-1)
		}
	}
	if p.Len() > 0 {
		d.put(`<path class="roll" d="%s"/>`+"\n", p.String())
	}
}

// pending hatches what an edit that is under way will replace.
func (d *drawing) pending() {
	r := d.course.pending
	if r == nil {
		return
	}
	at := box{d.frame.x(r.at), d.frame.y(r.Lo), d.frame.river.x1, d.frame.y(r.Hi)}
	at.x0, at.y1 = min(at.x0, at.x1-10), max(at.y1, at.y0+3)
	d.put(`<rect x="%s" y="%s" width="%s" height="%s" fill="url(#hatch)"><title>an edit is under way</title></rect>`+"\n",
		num(at.x0), num(at.y0), num(at.width()), num(at.height()))
}

// labels name the bands that have room for it.
func (d *drawing) labels(shown []int) {
	left := mostLabels
	for _, i := range shown {
		b := d.course.bands[i]
		at, name := d.frame.box(b), plain(Short(b.ID), 24)
		indent := min(mostBend, at.width()/2)
		if at.height() < 15 || at.width() < indent+8+6.5*float64(len(name)) || left == 0 {
			continue
		}
		left--
		x := at.x0 + indent
		ink := inkOn(d.class(i, d.frame.time(x), d.frame.time(x+30)))
		d.text(x, (at.y0+at.y1)/2+4, "id "+ink, name)
	}
}
