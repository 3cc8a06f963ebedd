package inspect

import (
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// integral is how many bytes and records a series makes up to a time.
func integral(points []Point, until time.Time) (bytes, records float64) {
	for i, p := range points {
		to := until
		if i+1 < len(points) {
			to = points[i+1].At
		}
		bytes += p.Bytes * to.Sub(p.At).Seconds()
		records += p.Records * to.Sub(p.At).Seconds()
	}
	return bytes, records
}

// TestHistory: the loads of a picture add up to what the chunks hold, segments and
// stretches that are gone are not known, and a topic that is gone is an error.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		now := func() time.Time { return time.Now().UTC() }
		split := func(plan func(topic.Layout) (topic.Edit, error)) {
			_, err := w.Edit(t.Context(), now(), plan)
			w.check(err)
		}
		seq := uint64(0)
		fill := func(from, to, each int) {
			for i := from; i < to; i++ {
				w.wait(i)
				var recs []rec
				for range each {
					seq++
					recs = append(recs, rec{seq, 0, 7, i}, rec{seq, 1, 60000, i})
				}
				w.append("lane", recs...)
			}
		}
		fill(1, 30, 1)
		split(splitFirst)
		fill(31, 60, 4)
		w.wait(100)
		split(mergeAll)
		fill(101, 130, 2)
		var told []Progress
		layouts, p, err := w.History(t.Context(), now(), func(p Progress) { told = append(told, p) })
		w.check(err)
		if len(layouts) != 5 || len(p.Segments) != 4 || p.Title != "orders" {
			t.Fatalf("%d layouts, %d segments, %q", len(layouts), len(p.Segments), p.Title)
		}
		if last := told[len(told)-1]; last.Segments != 4 || last.Of != 4 || last.Chunks < 29+2*29+29 {
			t.Errorf("told %+v", last)
		}
		bytes, records := integral(p.Load, p.Now)
		if want := 2.0 * (29 + 4*29 + 2*29); math.Abs(records-want) > 1e-6*want || bytes < 100*want {
			t.Errorf("the load adds up to %v records of %v bytes, want %v", records, bytes, want)
		}
		first := p.Segments[layouts[0].Live[0].ID]
		if mid := first[len(first)/2]; mid.Records < 1.5 || mid.Records > 2.5 {
			t.Errorf("the first segment took in %v records/s, want 2", mid.Records)
		}
		series := newSeries(p.Load, p.seconds, func(at Point) float64 { return at.Records })
		for _, c := range []struct{ from, to, want float64 }{{5, 25, 2}, {35, 55, 8}, {65, 95, 0}, {105, 125, 4}} {
			if got, ok := series.mean(c.from, c.to); !ok || math.Abs(got-c.want) > 0.2 {
				t.Errorf("from %v to %v s it is %v records/s, want %v", c.from, c.to, got, c.want)
			}
		}
		drawSVG(t, layouts, p)
	})
}

// TestHistoryGone: what is trimmed or deleted.
func TestHistoryGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		for i := 1; i < 30; i++ {
			w.wait(i)
			w.append("lane", rec{uint64(i), 0, 7, i})
		}
		w.trim(20)
		layouts, p, err := w.History(t.Context(), time.Now(), nil)
		w.check(err)
		hot, cold := p.Segments[layouts[0].Live[0].ID], p.Segments[layouts[0].Live[1].ID]
		if p.seconds(hot[0].At) < 19 || p.seconds(hot[0].At) > 21 {
			t.Errorf("what is trimmed up to 20 s is known from %s", hot[0].At)
		}
		if len(cold) != 1 || cold[0].Bytes != 0 || !cold[0].At.Equal(noon) {
			t.Errorf("of a segment without records: %v", cold)
		}
		w.check(w.store.DeleteTopic(t.Context(), "orders", time.Now()))
		if _, _, err = w.History(t.Context(), time.Now(), nil); !errors.Is(err, segment.ErrNoTopic) && !errors.Is(err, segment.ErrDeleting) {
			t.Errorf("of a topic that is gone: %v", err)
		}
	})
}
