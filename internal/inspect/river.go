package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Drawing says how to draw a lineage.
type Drawing struct {
	Width int  // columns that stand for the key space
	ASCII bool // no box drawing characters
	Edits int  // draw only so many of the last edits; 0: all
}

// Least and most columns of a drawing.
const (
	MinWidth = 8
	MaxWidth = 1000
)

// River draws the history of a topic's layouts, oldest first, as [topic.Layout]s
// come from the layout log. The key space runs from left to right and time
// downwards, a row for each layout: segments are columns as wide as their range,
// a line across is an edit, and a column that it does not touch flows on.
func River(layouts []topic.Layout, d Drawing) string {
	d.Width = min(max(d.Width, MinWidth), MaxWidth)
	c := canvas{d: d, pen: boxes}
	if d.ASCII {
		c.pen = ascii
	}
	var done []topic.Layout
	for _, l := range layouts {
		if !l.Pending {
			done = append(done, l)
		}
	}
	if len(done) == 0 {
		return ""
	}
	c.header()
	above := c.start(&done)
	for _, l := range done {
		c.edit(above, l)
		above = l
	}
	if last := layouts[len(layouts)-1]; last.Pending {
		c.pending(last)
	}
	c.line(cells{0, d.Width}, above.Live, nil, pens{gutter: "live", text: count(len(above.Live), "segment")})
	return c.b.String()
}

// canvas collects the lines of a drawing.
type canvas struct {
	d   Drawing
	pen pen
	b   strings.Builder
}

// pen has the characters to draw with. A junction is indexed by which of its
// four arms there are.
type pen struct {
	junction            [16]rune
	many, thin, pending rune
}

// Arms of a junction.
const (
	up = 1 << iota
	down
	left
	right
)

var boxes = pen{
	junction: [16]rune{
		0: ' ', up: '╵', down: '╷', up | down: '│', left: '╴', right: '╶', left | right: '─',
		up | left: '┘', up | right: '└', down | left: '┐', down | right: '┌',
		up | down | left: '┤', up | down | right: '├', up | left | right: '┴', down | left | right: '┬',
		up | down | left | right: '┼',
	},
	many: '║', thin: '◆', pending: '┄',
}

var ascii = pen{
	junction: [16]rune{
		0: ' ', up: '|', down: '|', up | down: '|', left: '-', right: '-', left | right: '-',
		up | left: '+', up | right: '+', down | left: '+', down | right: '+',
		up | down | left: '+', up | down | right: '+', up | left | right: '+', down | left | right: '+',
		up | down | left | right: '+',
	},
	many: '#', thin: '*', pending: '.',
}

// cells are columns from..to of a drawing.
type cells struct{ from, to int }

func (c *canvas) column(slot uint32) int {
	return int((uint64(slot)*uint64(c.d.Width) + topic.Slots/2) / topic.Slots)
}

func (c *canvas) cells(r topic.Range) cells { return cells{c.column(r.Lo), c.column(r.Hi)} }

// pens are the texts beside a line.
type pens struct{ gutter, text string }

const gutter = 8

func (c *canvas) put(row []rune, p pens) {
	text := fmt.Sprintf("%*s  %s  %s", gutter, p.gutter, string(row), p.text)
	c.b.WriteString(strings.TrimRight(text, " "))
	c.b.WriteByte('\n')
}

// header is a scale of slots, at quarters where there is room.
func (c *canvas) header() {
	row := []rune(strings.Repeat(" ", c.d.Width+1))
	for _, slot := range []uint32{0, topic.Slots, topic.Slots / 2, topic.Slots / 4, 3 * topic.Slots / 4} {
		text := strconv.FormatUint(uint64(slot), 10)
		at := min(max(c.column(slot)-len(text)/2, 0), c.d.Width+1-len(text))
		around := row[max(at-1, 0):min(at+len(text)+1, len(row))]
		if strings.TrimSpace(string(around)) == "" {
			copy(row[at:], []rune(text))
		}
	}
	c.put(row, pens{"epoch", ""})
}

// start leaves the layouts that are to be drawn in done, and returns the one
// before them, which it draws if there is one.
func (c *canvas) start(done *[]topic.Layout) topic.Layout {
	leave := 0
	if c.d.Edits > 0 {
		leave = max(0, len(*done)-c.d.Edits)
	}
	if leave == 0 {
		return topic.Layout{}
	}
	l := (*done)[leave-1]
	*done = (*done)[leave:]
	c.line(cells{0, c.d.Width}, nil, l.Live, pens{strconv.FormatUint(l.Epoch, 10), fmt.Sprintf("after %s", count(leave-1, "earlier edit"))})
	c.body(l, l.Live, "")
	return l
}

// edit draws how a layout came from the one above it.
func (c *canvas) edit(above, l topic.Layout) {
	epoch := strconv.FormatUint(l.Epoch, 10)
	c.line(c.cells(extent(l.Edit)), above.Live, l.Live, pens{epoch, c.title(above, l.Edit)})
	note := l.At.UTC().Format("2006-01-02 15:04:05")
	if r := c.printable(l.Edit.Reason); r != "" {
		note += "  " + r
	}
	c.body(l, l.Edit.Children, note)
}

// pending draws an edit that is under way.
func (c *canvas) pending(l topic.Layout) {
	row := c.borders(l.Live)
	at := c.cells(extent(l.Edit))
	for x := at.from; x <= at.to; x++ {
		if row[x] == ' ' {
			row[x] = c.pen.pending
		}
	}
	c.put(row, pens{strconv.FormatUint(l.Epoch, 10), c.title(l, l.Edit) + ", under way"})
}

// line draws the lines across of one row, where borders from above end and
// those below begin.
func (c *canvas) line(at cells, above, below []topic.Live, p pens) {
	arms := make([]int, c.d.Width+1)
	for _, s := range []struct {
		live []topic.Live
		arm  int
	}{{above, up}, {below, down}} {
		for _, x := range c.columns(s.live) {
			arms[x] |= s.arm
		}
	}
	for x := at.from; x < at.to; x++ {
		arms[x] |= right
		arms[x+1] |= left
	}
	row := make([]rune, len(arms))
	for x, a := range arms {
		row[x] = c.pen.junction[a]
	}
	if at.from == at.to { // an edit of less than a column
		row[at.from] = c.pen.thin
	}
	c.put(row, p)
}

// body draws a layout with the names of some of its segments.
func (c *canvas) body(l topic.Layout, named []topic.Live, note string) {
	row := c.borders(l.Live)
	for _, s := range named {
		at, name := c.cells(s.Range), []rune(Short(s.ID))
		if len(name) < at.to-at.from {
			pad := min(1, at.to-at.from-1-len(name))
			copy(row[at.from+1+pad:], name)
		}
	}
	c.put(row, pens{"", note})
}

// borders draws the borders between segments.
func (c *canvas) borders(live []topic.Live) []rune {
	row := []rune(strings.Repeat(" ", c.d.Width+1))
	for _, x := range c.columns(live) {
		if row[x] == ' ' {
			row[x] = c.pen.junction[up|down]
		} else {
			row[x] = c.pen.many
		}
	}
	return row
}

// columns are where the borders of segments stand, more than once where several
// share a column.
func (c *canvas) columns(live []topic.Live) []int {
	if len(live) == 0 {
		return nil
	}
	list := []int{0}
	for _, s := range live {
		list = append(list, c.column(s.Hi))
	}
	return list
}

// title says what an edit did: "split 0-1 at 49152".
func (c *canvas) title(before topic.Layout, e topic.Edit) string {
	switch {
	case e.Kind == topic.EditCreate:
		return "created with " + count(len(e.Children), "segment")
	case e.Kind == topic.EditSplit && len(e.Children) <= 3:
		cuts := make([]string, 0, 2)
		for _, child := range e.Children[1:] {
			cuts = append(cuts, strconv.FormatUint(uint64(child.Lo), 10))
		}
		return "split " + shorts(e.Parents) + " at " + strings.Join(cuts, ", ")
	case e.Kind == topic.EditSplit:
		return fmt.Sprintf("split %s into %d", shorts(e.Parents), len(e.Children))
	case len(e.Parents) > 4:
		return fmt.Sprintf("%s %d segments of %d", e.Kind, len(e.Parents), max(len(before.Live), len(e.Parents)))
	}
	return e.Kind + " " + shorts(e.Parents)
}

func shorts(ids []topic.SegmentID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = Short(id)
	}
	return strings.Join(names, " + ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// extent is what an edit's children cover, which is what its parents covered.
func extent(e topic.Edit) topic.Range {
	if len(e.Children) == 0 {
		return topic.Range{}
	}
	return topic.Range{Lo: e.Children[0].Lo, Hi: e.Children[len(e.Children)-1].Hi}
}

// maxReason is how much of a reason a drawing shows.
const maxReason = 60

// printable makes one short line of a text that anybody can have written.
func (c *canvas) printable(s string) string {
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r)
	}), " ")
	if utf8.RuneCountInString(s) > maxReason {
		s = string([]rune(s)[:maxReason-1]) + "…"
	}
	if c.d.ASCII {
		s = strings.Map(func(r rune) rune {
			if r > unicode.MaxASCII {
				return '~'
			}
			return r
		}, s)
	}
	return s
}
