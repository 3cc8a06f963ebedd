package inspect

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestColours: in both themes a higher load is further away from the background,
// as it is perceived, and names can be read on every band.
func TestColours(t *testing.T) {
	for name, c := range map[string]struct {
		theme
		sign float64
	}{"light": {light, -1}, "dark": {dark, 1}} {
		for i := range len(bounds) + 1 {
			l := c.level(i).lightness()
			if i > 0 {
				if step := c.sign * (l - c.level(i-1).lightness()); step < 0.5 {
					t.Errorf("%s: from %s to %s lightness goes %.1f the right way", name, className(i-1), className(i), step)
				}
			}
			ink := map[string]rgb{"i0": c.on[0], "i1": c.on[1], "i2": c.on[2]}[inkOn(className(i))]
			if away := math.Abs(ink.lightness() - l); away < 38 {
				t.Errorf("%s: text on %s is only %.1f away from it", name, className(i), away)
			}
		}
		if away := math.Abs(c.on[0].lightness() - c.unknown.lightness()); away < 38 {
			t.Errorf("%s: text on what is not known is only %.1f away from it", name, away)
		}
	}
	if l := (rgb{255, 255, 255}).lightness(); math.Abs(l-100) > 0.1 {
		t.Errorf("white has the lightness %v", l)
	}
}

func TestClassOf(t *testing.T) {
	for load, want := range map[float64]string{
		0: "l0", 0.019: "l0", 0.02: "l1", 0.55: "l6", 0.99: "la", 1: "lb", 1.3: "lc", 2.9: "le", 3: "lf", 1e9: "lf",
	} {
		if got := classOf(load, bounds, 1); got != want {
			t.Errorf("a load of %v is %s, want %s", load, got, want)
		}
	}
	if got := classOf(0, relative, 0); got != "l0" {
		t.Errorf("where there is no load at all, it is %s", got)
	}
	if className(aboveTarget) != classOf(1, bounds, 1) || len(relative)+1 > aboveTarget {
		t.Error("the colours above the target are not those of loads above it")
	}
}

// TestTicks: of any span there are some ticks, not too many, at round times.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		span     time.Duration
		relative bool
		want     string
	}{
		{0, true, "[0 0.1s 0.2s 0.3s 0.4s 0.5s 0.6s 0.7s 0.8s 0.9s 1s]"},
		{90 * time.Second, true, "[0 10s 20s 30s 40s 50s 1m 1m10s 1m20s 1m30s]"},
		{24 * time.Hour, true, "[0 3h 6h 9h 12h 15h 18h 21h 1d]"},
		{10 * time.Minute, false, "[12:00 12:01 12:02 12:03 12:04 12:05 12:06 12:07 12:08 12:09 12:10]"},
		{20 * time.Second, false, "[12:00:00 12:00:02 12:00:04 12:00:06 12:00:08 12:00:10 12:00:12 12:00:14 12:00:16 12:00:18 12:00:20]"},
		{26 * time.Hour, false, "[12:00 15:00 18:00 21:00 00:00 03:00 06:00 09:00 12:00]"},
		{8 * 24 * time.Hour, false, "[3 Jan 4 Jan 5 Jan 6 Jan 7 Jan 8 Jan 9 Jan 10 Jan]"},
	} {
		p := Picture{From: noon, To: noon.Add(c.span), Relative: c.relative}.complete(newHistory(t, 1).layouts)
		d := newDrawing(p, &course{})
		var texts []string
		for _, tick := range d.ticks() {
			texts = append(texts, tick.text)
		}
		if got := fmt.Sprint(texts); got != c.want {
			t.Errorf("%s: %s, want %s", c.span, got, c.want)
		}
	}
	for span := 1e-6; span < 1e12; span *= 1.7 {
		p := Picture{From: noon, To: noon.Add(time.Second)}.complete(newHistory(t, 1).layouts)
		d := newDrawing(p, &course{})
		d.frame.end = span
		if n := len(d.ticks()); n > 11 || n < 3 && span > 0.01 {
			t.Errorf("%v s have %d ticks", span, n)
		}
	}
}

func TestElapsed(t *testing.T) {
	for seconds, want := range map[float64]string{
		0: "0", 0.25: "0.25s", 59: "59s", 60: "1m", 3599.6: "1h", 5400: "1h30m", 90061: "1d1h1m1s", -90: "-1m30s",
	} {
		if got := elapsed(seconds); got != want {
			t.Errorf("%v s are %s, want %s", seconds, got, want)
		}
	}
}
