package followup

import (
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// compact seals the first segment of the topic, and has it compacted, its chunks
// deleted.
func (w *world) compact(t *testing.T) {
	t.Helper()
	_, err := w.top.Edit(t.Context(), time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) })
	if err != nil {
		t.Fatal(err)
	}
	c := compactor.New(compactor.Options{Store: w.store, Holder: "test"})
	if r, err := c.Topic(t.Context(), t.Context(), "orders"); err != nil || r.Trimmed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
}

// timed is a world whose follower has a clock that is set.
func timed(t *testing.T) (w *world, pass func(time.Duration)) {
	t.Helper()
	w = newWorld(t, 1)
	now := time.Now()
	w.Now = func() time.Time { return now }
	return w, func(d time.Duration) { now = now.Add(d) }
}

// TestCompacted: references of a segment that is compacted are followed up as ever, those
// that are open and those that nobody has seen.
func TestCompacted(t *testing.T) {
	w, pass := timed(t)
	id := w.first(t)
	w.commit(t, id, "p.vp")
	w.commit(t, id, "p")
	if r := w.follow(t); r.Open != 3 || r.Looked != 3 {
		t.Fatalf("%+v", r)
	}
	w.commit(t, id, ".p")
	w.commit(t, id, "rpp")
	w.compact(t)
	if r := w.follow(t); r.Open != 6 || r.Looked != 3 || r.Trimmed != 0 {
		t.Fatalf("new ones in data files: %+v", r)
	}
	for i, p := range w.refs {
		if i != 1 {
			w.objects.say(nil, p.url)
		}
	}
	pass(DefaultRetryAfter)
	if r := w.follow(t); r.Looked != 6 || r.Resolved != 5 || r.Open != 1 || r.Trimmed != 0 {
		t.Fatalf("%+v", r)
	}
	for i, p := range w.refs {
		if w.objects.isPinned(w.top, p.url) != (i != 1) {
			t.Errorf("reference %d: pinned %v", i, i == 1)
		}
	}
	if s := w.state(t); len(s.Open) != 1 || s.Open[0].Offset != w.refs[1].offset || len(s.Segments) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestCompactedLimit: what does not fit is looked at later, from where it ended.
func TestCompactedLimit(t *testing.T) {
	w, pass := timed(t)
	id := w.first(t)
	for range 4 {
		w.commit(t, id, "p.p")
	}
	w.compact(t)
	w.MaxOpen = 3
	if r := w.follow(t); r.Open != 3 || !r.Full {
		t.Fatalf("%+v", r)
	}
	for _, p := range w.refs {
		w.objects.say(nil, p.url)
	}
	pass(DefaultRetryAfter)
	total := 0
	for range 4 {
		total += w.follow(t).Resolved
	}
	if total != 8 || len(w.state(t).Open) > 0 {
		t.Errorf("%d resolved, %+v", total, w.state(t))
	}
	for _, p := range w.refs {
		if n := w.objects.looked(w.top, p.url); n < 1 || n > 2 {
			t.Errorf("%s: %d looks", p.url, n)
		}
	}
}

// TestCompactedMeanwhile: a segment is compacted at each call of a round.
func TestCompactedMeanwhile(t *testing.T) {
	calls := 0
	for n := 0; n <= calls; n++ {
		w, _ := timed(t)
		id := w.first(t)
		w.store.Inline = 0
		w.commit(t, id, "pp")
		w.commit(t, id, ".p")
		calls = 0
		store := segment.NewStore(w.fs.Client("reader", func(memfs.Op) memfs.Fault {
			if calls++; calls == n+1 {
				w.compact(t)
			}
			return memfs.Fault{}
		}), "test")
		f := w.follower(store)
		f.Now = w.Now
		if r, err := f.Topic(t.Context(), t.Context(), "orders"); err != nil || r.Looked != 3 || r.Open != 3 || r.Trimmed != 0 {
			t.Errorf("at call %d: %+v, %v", n, r, err)
		}
	}
	if calls < 5 {
		t.Errorf("%d calls only", calls)
	}
}
