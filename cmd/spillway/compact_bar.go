package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/spillway-mq/spillway/compactor"
)

// compactBar shows how far a compaction is, as jobBar does for backfills.
type compactBar struct {
	w    io.Writer
	draw bool
	now  func() time.Time

	mu    sync.Mutex
	start time.Time // of the first news
	next  time.Time // when it is shown again
	drawn bool
}

// drawPeriod is the time between two drawings of a bar.
const drawPeriod = 200 * time.Millisecond

func newCompactBar(w io.Writer, always bool) *compactBar {
	return &compactBar{w: w, draw: newProgress(w, always).w != nil, now: time.Now}
}

// at is called often.
func (b *compactBar) at(p compactor.Progress) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if b.start.IsZero() {
		b.start, b.next = now, now
		if !b.draw {
			b.next = now.Add(barPeriod)
		}
	}
	if now.Before(b.next) {
		return
	}
	text := compactLine(p, now.Sub(b.start))
	if !b.draw {
		b.next = now.Add(barPeriod)
		fmt.Fprintln(b.w, text)
		return
	}
	const width = 20
	full := int(compactedShare(p) * width)
	b.next, b.drawn = now.Add(drawPeriod), true
	fmt.Fprintf(b.w, "\r[%s%s] %s\x1b[K", strings.Repeat("=", full), strings.Repeat(" ", width-full), text)
}

func (b *compactBar) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.drawn {
		fmt.Fprintln(b.w)
	}
}

func compactedShare(p compactor.Progress) float64 {
	if p.TotalRecords == 0 {
		return 0
	}
	return min(float64(p.Records)/float64(p.TotalRecords), 1)
}

// compactLine is a progress in words, after so much time.
func compactLine(p compactor.Progress, took time.Duration) string {
	share := compactedShare(p)
	text := fmt.Sprintf("%3.0f %%  %d/%d segments, %s rows, %s", 100*share, p.Done, p.Segments, humanize.Comma(int64(p.Rows)), humanize.Bytes(p.Bytes))
	if took < time.Second || share == 0 {
		return text
	}
	text += fmt.Sprintf("  %s rows/s", humanize.Comma(int64(float64(p.Rows)/took.Seconds())))
	if share < 1 {
		left := time.Duration(float64(took) * (1 - share) / share)
		text += "  ETA " + left.Round(time.Second).String()
	}
	return text
}
