package inspect

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Picture says what [SVG] draws beside the layouts.
type Picture struct {
	Title    string
	Subtitle string // one line; what can be counted is added to it

	// The stretch of time that is drawn. Zero: from the first layout to the last
	// thing that is known, which is Now if that is given.
	From, To, Now time.Time
	// Relative counts time from From, for a simulated one. Else it is UTC.
	Relative bool

	// Load of the topic, and of segments. A segment that is not there, or has no
	// point yet, is drawn as one whose load is not known.
	Load     []Point
	Segments map[topic.SegmentID][]Point
	// How many bytes/s and records/s a segment is meant to take. Segments times that
	// is the capacity, which is meant to follow the load. 0: it is not known.
	Target, TargetRecords float64

	Width, Height int // in pixels; 0: a size that suits a screen
}

// Point is a load from a time on, until the next point of its series or, at the
// last one, until the end of the segment or the picture.
type Point struct {
	At             time.Time
	Bytes, Records float64 // per second
}

// ErrNoLayouts says that there is nothing to draw.
var ErrNoLayouts = errors.New("no layouts to draw")

// HistoryError says which layout does not follow from those before it.
type HistoryError struct {
	Epoch  uint64
	Reason string
}

func (e *HistoryError) Error() string {
	return fmt.Sprintf("the layout of epoch %d does not follow from those before it: %s", e.Epoch, e.Reason)
}

// SVG draws the history of a topic's layouts, oldest first, as a picture that
// stands alone: the key space from top to bottom, time from left to right, a band
// for each segment, coloured by its load, and above it the load of the topic. Bands
// too thin to be seen are drawn together, so that the file stays small whatever the
// number of edits. Of the layouts, the first one's live segments and the others'
// edits are used; an intent counts only if it is the last.
//
// Nothing is written after [ErrNoLayouts] and *[HistoryError]. Texts may hold
// anything: they are cut, and cannot become markup. Times that go backwards count
// as equal.
func SVG(w io.Writer, layouts []topic.Layout, p Picture) error {
	if len(layouts) == 0 {
		return ErrNoLayouts
	}
	p = p.complete(layouts)
	c, err := follow(layouts, p.seconds)
	if err != nil {
		return err
	}
	c.clip(p.seconds(p.To))
	d := newDrawing(p, c)
	d.head()
	d.loadPanel()
	d.river()
	d.timeAxis()
	d.legend()
	d.WriteString("</svg>\n")
	_, err = w.Write(d.Bytes())
	return err
}

// complete fills in what is not given.
func (p Picture) complete(layouts []topic.Layout) Picture {
	if p.From.IsZero() {
		p.From = layouts[0].At
	}
	if p.To.IsZero() {
		p.To = p.Now
		if p.Now.IsZero() {
			for _, l := range layouts {
				p.To = latest(p.To, l.At)
			}
			for _, point := range p.Load {
				p.To = latest(p.To, point.At)
			}
		}
	}
	if !p.To.After(p.From) {
		p.To = p.From.Add(time.Second)
	}
	p.Width, p.Height = size(p.Width, 1200, 640, 8000), size(p.Height, 720, 400, 4000)
	p.Target, p.TargetRecords = saneTarget(p.Target), saneTarget(p.TargetRecords)
	return p
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func size(given, usual, least, most int) int {
	if given == 0 {
		return usual
	}
	return min(max(given, least), most)
}

// targeted tells whether loads can be compared with what is meant.
func (p Picture) targeted() bool { return p.Target > 0 || p.TargetRecords > 0 }

// level is a segment's load as a multiple of the target, of bytes or of records,
// whichever is the higher; without a target it is bytes.
func (p Picture) level(at Point) (level float64) {
	if !p.targeted() {
		return sane(at.Bytes)
	}
	if p.Target > 0 {
		level = sane(at.Bytes) / p.Target
	}
	if p.TargetRecords > 0 {
		level = max(level, sane(at.Records)/p.TargetRecords)
	}
	return level
}

// seconds from the left end of the picture. Unlike a time.Duration it has no end
// after 292 years.
func (p Picture) seconds(t time.Time) float64 {
	return float64(t.Unix()-p.From.Unix()) + float64(t.Nanosecond()-p.From.Nanosecond())/1e9
}
