package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/functions"
)

// jobBar shows how far a job is: on a terminal one line that is drawn again and again,
// else a line from time to time.
type jobBar struct {
	w     io.Writer
	draw  bool
	now   func() time.Time
	next  time.Time // for lines
	drawn bool
}

// barPeriod is the time between two lines where nothing can be drawn.
const barPeriod = 10 * time.Second

func newJobBar(w io.Writer, always bool) *jobBar {
	b := &jobBar{w: w, draw: newProgress(w, always).w != nil, now: time.Now}
	b.next = b.now().Add(barPeriod)
	return b
}

func (b *jobBar) at(p functions.JobProgress) {
	switch now := b.now(); {
	case b.draw:
		b.drawn = true
		fmt.Fprintf(b.w, "\r%s\x1b[K", barLine(p))
	case now.Before(b.next):
	default:
		b.next = now.Add(barPeriod)
		fmt.Fprintln(b.w, progressText(p))
	}
}

func (b *jobBar) end() {
	if b.drawn {
		fmt.Fprintln(b.w)
	}
}

// barLine fits into 100 columns.
func barLine(p functions.JobProgress) string {
	const width = 20
	full := int(done(p) * width)
	return "[" + strings.Repeat("=", full) + strings.Repeat(" ", width-full) + "] " + progressText(p)
}

// done is the share of the bytes that were read.
func done(p functions.JobProgress) float64 {
	switch {
	case p.Done():
		return 1
	case p.Size == 0:
		return 0
	}
	return min(float64(p.Read)/float64(p.Size), 1)
}

func progressText(p functions.JobProgress) string {
	text := fmt.Sprintf("%3.0f %%  %s rows, %d/%d objects", 100*done(p), humanize.Comma(int64(p.Rows)), p.Objects, p.Total)
	if p.Rejected > 0 {
		text += fmt.Sprintf(", %s rejected", humanize.Comma(int64(p.Rejected)))
	}
	if p.RowsPerSecond > 0 {
		text += fmt.Sprintf("  %s rows/s %s/s", humanize.Comma(int64(p.RowsPerSecond)), humanize.Bytes(uint64(p.BytesPerSecond)))
	}
	if p.ETA > 0 {
		text += "  ETA " + p.ETA.Round(time.Second).String()
	}
	return text
}
