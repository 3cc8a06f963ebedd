package main

import (
	"testing"
	"time"
)

// TestOutlook: what comes in between two glances, and how long that can go on.
func TestOutlook(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	first := glance{at: noon, published: noon, last: 1000, messages: 500, bytes: 50_000, most: 1_000_000}
	for name, c := range map[string]struct {
		later           glance
		messages, bytes float64
		text            string
	}{
		"nothing came in":     {glance{at: noon.Add(time.Second), last: 1000, messages: 500, bytes: 50_000, most: 1_000_000}, 0, 0, "n/a"},
		"a hundred of 100 B":  {glance{at: noon.Add(time.Second), last: 1100, messages: 600, bytes: 60_000, most: 1_000_000}, 100, 10_000, "1.6 min"},
		"two seconds between": {glance{at: noon.Add(2 * time.Second), last: 1100, messages: 600, bytes: 60_000, most: 1_000_000}, 50, 5_000, "3.1 min"},
		"trimmed meanwhile":   {glance{at: noon.Add(time.Second), last: 1100, messages: 100, bytes: 10_000, most: 1_000_000}, 100, 10_000, "1.6 min"},
		"full":                {glance{at: noon.Add(time.Second), last: 1100, messages: 600, bytes: 1_000_000, most: 1_000_000}, 100, 166_666, "0 s"},
		"without a bound":     {glance{at: noon.Add(time.Second), last: 1100, messages: 600, bytes: 60_000, most: -1}, 100, 10_000, "n/a"},
		"emptied":             {glance{at: noon.Add(time.Second), last: 1100, most: 1_000_000}, 0, 0, "n/a"},
		"made again":          {glance{at: noon.Add(time.Second), last: 3, messages: 3, bytes: 300, most: 1_000_000}, 0, 0, "n/a"},
		"no time between":     {glance{at: noon, last: 1100, messages: 600, bytes: 60_000, most: 1_000_000}, 0, 0, "n/a"},
	} {
		messages, bytes := first.rates(c.later)
		if text := bufferText(c.later.minutes(bytes)); messages != c.messages || float64(int(bytes)) != c.bytes || text != c.text {
			t.Errorf("%s: %v messages/s, %v bytes/s, %s; want %v, %v, %s", name, messages, bytes, text, c.messages, c.bytes, c.text)
		}
	}
	for minutes, want := range map[float64]string{0.5: "30 s", 179: "179.0 min", 180: "3.0 h", 1e9: "over a year"} {
		if got := bufferText(&minutes); got != want {
			t.Errorf("%v minutes: %q, want %q", minutes, got, want)
		}
	}
	for name, c := range map[string]struct {
		g    glance
		idle bool
	}{
		"just now": {first, false}, "empty": {glance{at: noon}, true},
		"long ago": {glance{at: noon.Add(time.Minute), published: noon, messages: 1}, true},
	} {
		if got := c.g.idle(); got != c.idle {
			t.Errorf("%s: idle %v", name, got)
		}
	}
}
