package inspect

import (
	"strings"

	"github.com/spillway-mq/spillway/internal/topic"
)

// box is a rectangle in pixels.
type box struct{ x0, y0, x1, y1 float64 }

func (b box) width() float64  { return b.x1 - b.x0 }
func (b box) height() float64 { return b.y1 - b.y0 }

// frame says where everything of a picture stands. Both panels share the time
// axis: the seconds 0 to end.
type frame struct {
	width, height float64
	load, river   box
	end           float64
}

// Margins around the panels.
const (
	marginX  = 84.0
	betweenY = 42.0 // of the panels
	lineY    = 17.0 // of lines of text
	legendY  = 36.0 // of rows of the legend
)

func newFrame(p Picture) frame {
	f := frame{width: float64(p.Width), height: float64(p.Height), end: p.seconds(p.To)}
	top := 114 + lineY*float64(len(f.lines(explanation)))
	inner := f.height - top - betweenY - 58 - legendY*f.legendRows()
	load := 0.25 * inner
	if len(p.Load) == 0 {
		load = 0.16 * inner
	}
	f.load = box{marginX, top, f.width - marginX, top + load}
	f.river = box{marginX, f.load.y1 + betweenY, f.width - marginX, top + betweenY + inner}
	return f
}

// lines breaks a text to the picture's width, by a guess of what it takes.
func (f frame) lines(text string) (lines []string) {
	most := int((f.width - 48) / 6.2)
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) <= most:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// legendRows is how many rows the legend needs.
func (f frame) legendRows() float64 {
	if f.width < 1000 {
		return 2
	}
	return 1
}

func (f frame) x(t float64) float64 {
	return f.river.x0 + min(max(t/f.end, 0), 1)*f.river.width()
}

// time is the inverse of x.
func (f frame) time(x float64) float64 { return (x - f.river.x0) / f.river.width() * f.end }

func (f frame) y(slot uint32) float64 {
	return f.river.y0 + float64(slot)/topic.Slots*f.river.height()
}

// box is where a band stands, without bends and gaps.
func (f frame) box(b band) box { return box{f.x(b.from), f.y(b.Lo), f.x(b.to), f.y(b.Hi)} }
