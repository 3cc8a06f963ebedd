package inspect

import (
	"maps"
	"math"
	"slices"
)

// heat is in what bands too small to be seen are drawn together: cells that have
// the mean load of what lies in them.
type heat struct {
	at         box
	cell       float64 // side, in pixels
	cols, rows int
	cells      []heatCell
}

// heatCell sums areas, and loads times areas.
type heatCell struct{ area, known, load float64 }

// mostCells bounds the grid, and so the file.
const mostCells = 60_000

func newHeat(at box) *heat {
	h := &heat{at: at, cell: math.Ceil(max(2, math.Sqrt(at.width()*at.height()/mostCells)))}
	h.cols, h.rows = int(math.Ceil(at.width()/h.cell)), int(math.Ceil(at.height()/h.cell))
	h.cells = make([]heatCell, h.cols*h.rows)
	return h
}

// share is how much of cell i lies in from..to, in pixels of the grid.
func (h *heat) share(i int, from, to float64) float64 {
	return max(0, min(to, float64(i+1)*h.cell)-max(from, float64(i)*h.cell))
}

// add puts a band into the cells that it touches. load tells its mean load between
// two places on the horizontal axis.
func (h *heat) add(b box, load func(x0, x1 float64) (float64, bool)) {
	x0, x1, y0, y1 := b.x0-h.at.x0, b.x1-h.at.x0, b.y0-h.at.y0, b.y1-h.at.y0
	lastRow := min(int(y1/h.cell), h.rows-1)
	for col := int(x0 / h.cell); col < h.cols && float64(col)*h.cell < x1; col++ {
		width := h.share(col, x0, x1)
		left := h.at.x0 + max(x0, float64(col)*h.cell)
		v, ok := load(left, left+width)
		for row := int(y0 / h.cell); row <= lastRow; row++ {
			area := width * h.share(row, y0, y1)
			c := &h.cells[row*h.cols+col]
			c.area += area
			if ok {
				c.known += area
				c.load += area * v
			}
		}
	}
}

// draw makes a path for each colour, of runs of cells.
func (h *heat) draw(p *sheet, class func(load float64, known bool) string) {
	paths := map[string]*sheet{}
	for row := range h.rows {
		for col := 0; col < h.cols; {
			name := h.cells[row*h.cols+col].class(class)
			from := col
			for col < h.cols && h.cells[row*h.cols+col].class(class) == name {
				col++
			}
			if name == "" {
				continue
			}
			if paths[name] == nil {
				paths[name] = &sheet{}
			}
			paths[name].run(h, row, from, col)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		p.put(`<path class="%s" d="%s"/>`+"\n", name, paths[name].String())
	}
}

// class is the colour of a cell; "" if there is nothing in it.
func (c heatCell) class(class func(load float64, known bool) string) string {
	switch {
	case c.area == 0:
		return ""
	case c.known == 0:
		return class(0, false)
	}
	return class(c.load/c.known, true)
}

// run appends the outline of the cells from..to of a row.
func (p *sheet) run(h *heat, row, from, to int) {
	x, y := h.at.x0+float64(from)*h.cell, h.at.y0+float64(row)*h.cell
	w := min(float64(to)*h.cell, h.at.width()) - float64(from)*h.cell
	p.move(x, y)
	p.numbers('h', w)
	p.numbers('v', min(h.cell, h.at.y1-y))
	p.numbers('h', -w)
	p.WriteByte('z')
}
