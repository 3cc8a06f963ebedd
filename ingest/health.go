package ingest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Times of a Health. A fault counts when it has lasted for patience, and is
// over when it has not come again for forgotten.
const (
	patience  = 30 * time.Second
	forgotten = 2 * time.Minute
)

// Health tells whether what runs in a process gets on. Parts of it ("lane
// default.0") report faults and that all is well again; short faults are
// nobody's business, since everything here retries. All methods may be called
// concurrently, and on nil, which takes no notice.
type Health struct {
	now    func() time.Time
	mu     sync.Mutex
	faults map[string]fault
}

type fault struct {
	since, last time.Time
	err         error
	final       bool // the part has ended with it
}

// NewHealth returns one without faults. now is the clock; nil: time.Now.
func NewHealth(now func() time.Time) *Health {
	if now == nil {
		now = time.Now
	}
	return &Health{now: now, faults: map[string]fault{}}
}

// OK reports that a part works. A part that was Stopped stays so.
func (h *Health) OK(part string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.faults[part].final {
		delete(h.faults, part)
	}
}

// Fault reports that a part failed and will try again.
func (h *Health) Fault(part string, err error) { h.report(part, err, false) }

// Stopped reports that a part ended for good, by an error.
func (h *Health) Stopped(part string, err error) { h.report(part, err, true) }

func (h *Health) report(part string, err error, final bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	f, ok := h.faults[part]
	if !ok || now.Sub(f.last) > forgotten {
		f.since = now
	}
	f.last, f.err, f.final = now, err, f.final || final
	h.faults[part] = f
}

// Err is nil unless a part has stopped or has been failing for longer than
// 30 s; then it says in one line which, since when, and why.
func (h *Health) Err() error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	var lines []string
	for _, part := range slices.Sorted(maps.Keys(h.faults)) {
		f := h.faults[part]
		why := strings.Join(strings.Fields(f.err.Error()), " ")
		switch {
		case f.final:
			lines = append(lines, fmt.Sprintf("%s stopped: %s", part, why))
		case now.Sub(f.last) <= forgotten && now.Sub(f.since) >= patience:
			lines = append(lines, fmt.Sprintf("%s has been failing for %s: %s", part, now.Sub(f.since).Round(time.Second), why))
		}
	}
	if lines == nil {
		return nil
	}
	return &UnhealthyError{lines}
}

// UnhealthyError lists the parts that have failed for too long.
type UnhealthyError struct{ Parts []string }

func (e *UnhealthyError) Error() string { return strings.Join(e.Parts, "; ") }
