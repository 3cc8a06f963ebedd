package inspect

import (
	"fmt"
	"strings"
	"time"
)

// head begins the picture: styles, title, and what a stranger has to know.
func (d *drawing) head() {
	f := d.frame
	title := plain(d.picture.Title, 120)
	if title == "" {
		title = "Segments"
	}
	d.put(`<svg xmlns="http://www.w3.org/2000/svg" width="%s" height="%s" viewBox="0 0 %s %s" role="img" aria-label="%s">`+"\n",
		num(f.width), num(f.height), num(f.width), num(f.height), escape(title))
	d.put("<title>%s</title>\n<style>%s</style>\n", escape(title), style())
	d.put(`<defs><pattern id="hatch" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">` +
		`<path d="M0 0V7" class="hatch"/></pattern></defs>` + "\n")
	d.put(`<rect width="%s" height="%s" class="page"/>`+"\n", num(f.width), num(f.height))
	d.text(24, 40, "t title", title)
	facts := []string{plain(d.picture.Subtitle, 160), d.facts()}
	if facts[0] == "" {
		facts = facts[1:]
	}
	d.text(24, 63, "m head", strings.Join(facts, " · "))
	for i, line := range f.lines(explanation) {
		d.text(24, 84+lineY*float64(i), "m", line)
	}
}

// explanation is for those who see such a picture for the first time.
const explanation = "Each band is a segment: a share of the keys, from top to bottom, for some time. " +
	"Bands part where a busy segment was split, and join where quiet ones were merged."

// facts is what can be counted.
func (d *drawing) facts() string {
	c, p := d.course, d.picture
	least := d.mostLive()
	for _, l := range c.live {
		least = min(least, l.n)
	}
	segments := count(least, "live segment")
	if most := d.mostLive(); most != least {
		segments = fmt.Sprintf("%d to %d live segments", least, most)
	}
	span := elapsed(d.frame.end)
	if !p.Relative {
		from, to := p.time(0), p.time(d.frame.end)
		until := to.Format(time.DateTime)
		if from.Format(time.DateOnly) == to.Format(time.DateOnly) {
			until = to.Format(time.TimeOnly)
		}
		span = fmt.Sprintf("%s to %s UTC (%s)", from.Format(time.DateTime), until, span)
	}
	return strings.Join([]string{span, count(c.edits, "edit"), segments}, " · ")
}

// item is a part of the legend.
type item struct {
	sign  func(x, y float64) // draws it, above and right of a place
	width float64            // of the sign
	text  string
}

// legend explains the colours and signs, in rows.
func (d *drawing) legend() {
	left, right := d.frame.river.x0, d.frame.river.x1
	x, y := left, d.frame.height+4-legendY*d.frame.legendRows()
	for _, it := range d.items() {
		width := it.width + 8 + 5.9*float64(len(it.text))
		if x > left && x+width > right {
			x, y = left, y+legendY
		}
		it.sign(x, y)
		d.text(x+it.width+8, y, "m s", it.text)
		x += width + 28
	}
}

func (d *drawing) items() (list []item) {
	square := func(class string) func(x, y float64) {
		return func(x, y float64) { d.rect(box{x, y - 10, x + 16, y + 2}, class) }
	}
	if len(d.picture.Segments) > 0 {
		list = append(list, item{d.colours, swatch * float64(len(d.marks())), "load of a segment"})
	}
	list = append(list, item{square(unknown), 16, "load not known"})
	if len(d.course.rolls) > 0 {
		text := "rolled: sealed, and goes on as a new segment"
		if _, all := d.apart(); !all {
			text += " (of many, some are drawn)"
		}
		list = append(list, item{func(x, y float64) {
			d.put(`<path class="edge" stroke-dasharray="3 3" d="M%s %sv16"/>`+"\n", num(x+4), num(y-12))
		}, 8, text})
	}
	if d.course.pending != nil {
		list = append(list, item{func(x, y float64) {
			d.put(`<rect x="%s" y="%s" width="16" height="12" fill="url(#hatch)"/>`+"\n", num(x), num(y-10))
		}, 16, "an edit is under way"})
	}
	return list
}

// swatch is how wide a colour of the legend is.
const swatch = 15.0

// colours draws the scale of loads, and below it what some of them stand for.
func (d *drawing) colours(x, y float64) {
	for i, mark := range d.marks() {
		d.rect(box{x, y - 10, x + swatch, y + 2}, className(i))
		if mark != "" {
			d.text(x, y+15, "m s c", mark)
		}
		x += swatch
	}
}

// marks are the texts where the colours of the legend begin.
func (d *drawing) marks() []string {
	if d.picture.targeted() {
		return []string{0: "0", 6: "½", 11: "target", 14: "2×", 15: ""}
	}
	marks := make([]string, len(relative)+1)
	marks[0] = "0"
	for _, i := range []int{6, 10} {
		marks[i] = amount(relative[i-1]*d.most) + "/s"
	}
	return marks
}
