package ingest

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// TestHealth: short faults, and faults that do not come again, are nobody's
// business; what lasts is told, with its reason on one line.
func TestHealth(t *testing.T) {
	const part = "lane x"
	fault := func(h *Health) { h.Fault(part, errors.New("dial:\n  refused")) }
	for _, c := range []struct {
		name string
		step func(h *Health, second int)
		want string
	}{
		{"nothing", func(*Health, int) {}, ""},
		{"one fault", func(h *Health, s int) {
			if s == 0 {
				fault(h)
			}
		}, ""},
		{"failing", func(h *Health, _ int) { fault(h) }, "lane x has been failing for 5m0s: dial: refused"},
		{"well again", func(h *Health, s int) {
			fault(h)
			if s == 299 {
				h.OK(part)
			}
		}, ""},
		{"every 20 s", func(h *Health, s int) {
			if s%20 == 0 {
				h.OK(part)
			} else {
				fault(h)
			}
		}, ""},
		{"another part is well", func(h *Health, _ int) { fault(h); h.OK("lane y") }, "lane x has been failing for 5m0s: dial: refused"},
		{"stopped", func(h *Health, s int) {
			if s == 299 {
				h.Stopped(part, errors.New("went back"))
			}
		}, "lane x stopped: went back"},
		{"stopped stays", func(h *Health, _ int) { h.Stopped(part, errors.New("went back")); h.OK(part); fault(h) }, "lane x stopped: dial: refused"},
	} {
		now := time.Unix(0, 0)
		h := NewHealth(func() time.Time { return now })
		for s := range 300 {
			c.step(h, s)
			now = now.Add(time.Second)
		}
		if got := fmt.Sprint(h.Err()); got != c.want && (c.want != "" || h.Err() != nil) {
			t.Errorf("%s: %s, want %q", c.name, got, c.want)
		}
	}
	var none *Health
	none.OK(part)
	fault(none)
	if none.Err() != nil {
		t.Error("nil is not well")
	}
}
