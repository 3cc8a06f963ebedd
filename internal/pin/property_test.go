package pin_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/pin"
)

// TestHoldersSurvive: who pins is who holds.
func TestHoldersSurvive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := newLab(t, nil)
		want := map[string]string{}
		for range rapid.IntRange(1, 10).Draw(r, "holders") {
			h := pin.Holder{
				Topic:       rapid.StringMatching(`[a-z0-9][a-z0-9_-]{0,99}`).Draw(r, "topic"),
				Incarnation: rapid.StringMatching(`[a-z0-9]{1,32}`).Draw(r, "incarnation"),
			}
			want[h.Incarnation] = h.Topic
			ok(t, l.Pin(t.Context(), key, l.info, h))
		}
		for _, m := range l.held(t, key) {
			if want[m.Holder.Incarnation] != m.Holder.Topic || m.At.IsZero() {
				r.Errorf("held by %+v, want %v", m, want)
			}
			delete(want, m.Holder.Incarnation)
			ok(t, l.Unpin(t.Context(), key, m))
		}
		if len(want) > 0 || len(l.attrs(t)) > 0 {
			r.Errorf("missing %v, left %v", want, l.attrs(t))
		}
	})
}

// FuzzMarks: whatever others have put there, marks can be read and taken away.
func FuzzMarks(f *testing.F) {
	f.Add("Pin-Abc", "t 2026-01-01T00:00:00Z x")
	f.Add("Pin-", "")
	f.Add("Pin-Ä", "\x00 \xff ")
	f.Add("Pin-A", "t 0000-01-01T00:00:00Z x")
	f.Fuzz(func(t *testing.T, name, value string) {
		l := newLab(t, nil)
		l.info = l.put(t, key.Key, "bytes", filer.Attrs{name: value})
		for _, m := range l.held(t, key) {
			ok(t, l.Unpin(t.Context(), key, m))
			if err := l.Unpin(t.Context(), key, m); err != nil && !errors.Is(err, filer.ErrConflict) {
				t.Error(err)
			}
		}
		if marks := l.held(t, key); len(marks) != 0 {
			t.Errorf("%q: %q: left %+v", name, value, marks)
		}
	})
}
