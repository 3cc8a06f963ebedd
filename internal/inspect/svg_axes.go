package inspect

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/internal/topic"
)

// day in seconds.
const day = 86400.0

// intervals between ticks of a time axis, in seconds; after them, years.
var intervals = []float64{
	0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30,
	60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
	day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 180 * day, 365 * day,
}

// interval is the smallest that makes at most so many ticks.
func interval(span float64, most int) float64 {
	for _, i := range intervals {
		if span <= i*float64(most) {
			return i
		}
	}
	return 365 * day * nice(span/(365*day*float64(most)))
}

// nice is the smallest of 1, 2, 5, 10, 20, … that is not below v.
func nice(v float64) float64 {
	if v <= 1 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*power {
			return f * power
		}
	}
	return 10 * power
}

// tick is a place on the time axis, and what is written there.
type tick struct {
	at         float64
	text, date string
}

// ticks of the time axis.
func (d *drawing) ticks() (list []tick) {
	step := interval(d.frame.end, max(2, int(d.frame.river.width()/95)))
	offset := 0.0
	if !d.picture.Relative {
		// From, as seconds since a round time.
		offset = math.Mod(float64(d.picture.From.Unix()), step) + float64(d.picture.From.Nanosecond())/1e9
		offset = math.Mod(offset, step)
	}
	for k := math.Ceil(offset / step); k*step-offset <= d.frame.end; k++ {
		t := tick{at: k*step - offset}
		if d.picture.Relative {
			t.text = elapsed(t.at)
		} else {
			t.text, t.date = d.picture.label(t.at, step)
		}
		list = append(list, t)
	}
	return list
}

// time is the inverse of seconds, to the microsecond.
func (p Picture) time(at float64) time.Time {
	whole := math.Floor(at)
	micros := math.Round((at-whole)*1e6) + float64(p.From.Nanosecond()/1000)
	return time.Unix(p.From.Unix()+int64(whole), int64(micros)*1000).UTC()
}

// label is a tick's text, and what changes less often.
func (p Picture) label(at, step float64) (text, date string) {
	t := p.time(at)
	switch {
	case step < 1:
		return t.Format("15:04:05.000"), t.Format("2 Jan 2006")
	case step < 60:
		return t.Format("15:04:05"), t.Format("2 Jan 2006")
	case step < day:
		return t.Format("15:04"), t.Format("2 Jan 2006")
	case step < 365*day:
		return t.Format("2 Jan"), t.Format("2006")
	}
	return t.Format("2006"), ""
}

// moment names a time in a text.
func (p Picture) moment(at float64) string {
	if p.Relative {
		return elapsed(at)
	}
	return p.time(at).Format("2006-01-02 15:04:05Z")
}

// elapsed writes seconds as "1h30m", without parts that are zero.
func elapsed(seconds float64) string {
	switch {
	case seconds == 0:
		return "0"
	case seconds < 0:
		return "-" + elapsed(-seconds)
	}
	if seconds < 60 {
		return strconv.FormatFloat(math.Round(seconds*1000)/1000, 'f', -1, 64) + "s"
	}
	left := math.Round(seconds)
	var b strings.Builder
	for _, u := range []struct {
		name string
		size float64
	}{{"d", day}, {"h", 3600}, {"m", 60}, {"s", 1}} {
		if n := math.Floor(left / u.size); n > 0 {
			fmt.Fprintf(&b, "%.0f%s", n, u.name)
			left -= n * u.size
		}
	}
	return b.String()
}

// amount writes bytes as "8 MiB".
func amount(v float64) string {
	return strings.Replace(humanize.IBytes(uint64(v)), ".0 ", " ", 1)
}

// timeAxis draws the axis that both panels share.
func (d *drawing) timeAxis() {
	y := d.frame.river.y1
	date := ""
	for _, t := range d.ticks() {
		x := d.frame.x(t.at)
		d.rule(x, y+3, x, y+8, "edge")
		d.text(x, y+22, "m s c", t.text)
		if t.date != date {
			date = t.date
			d.text(x, y+36, "m s c", date)
		}
	}
	zone := "UTC"
	if d.picture.Relative {
		zone = "time"
	}
	d.text(d.frame.width-20, y+22, "m s e", zone)
}

// slots draws the scale of the key space: shares on the left, slots on the right.
func (d *drawing) slots() {
	r := d.frame.river
	d.text(r.x0-10, r.y0-10, "m s e", "keys")
	d.text(r.x1+10, r.y0-10, "m s", "slot")
	for i := range 5 {
		slot := uint32(i) * topic.Slots / 4
		y := d.frame.y(slot)
		d.rule(r.x0-6, y, r.x0-2, y, "edge")
		d.rule(r.x1+2, y, r.x1+6, y, "edge")
		d.text(r.x0-10, y+4, "m s e", fmt.Sprintf("%d %%", 25*i))
		d.text(r.x1+10, y+4, "m s", strconv.FormatUint(uint64(slot), 10))
	}
}
