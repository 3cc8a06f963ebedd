package followup

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/infra/bubble"
	"github.com/spillway-mq/spillway/internal/filer"
)

// gauge is what spillway_refs_open shows.
func gauge(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_refs_open" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatal("there is no gauge of open references")
	return 0
}

// TestSeat: all who follow up a topic at the same time have one seat, however the one
// before leaves it, and what the last one found is known.
func TestSeat(t *testing.T) {
	reg := prometheus.NewRegistry()
	f := New(Options{Metrics: NewMetrics(reg)})
	shows := func(want int) {
		t.Helper()
		if got := gauge(t, reg); got != float64(want) || slices.Contains(f.waiting(), "a") != (want > 0) {
			t.Errorf("%v are shown, %v wait, want %d", got, f.waiting(), want)
		}
	}
	first := f.seat("a")
	waits := f.seat("a") // and is let in when the first one is done
	f.leave("a", first, 0)
	third := f.seat("a")
	if waits != first || third != waits {
		t.Error("two have seats of their own at one topic")
	}
	f.leave("a", waits, 5)
	shows(5)
	f.leave("a", third, 3)
	shows(3)
	f.leave("a", f.seat("a"), 0)
	shows(0)
	if len(f.topics) != 0 {
		t.Errorf("%d seats are kept for nobody", len(f.topics))
	}
}

// TestGaugeOfDamaged: a topic of which some part cannot be read shows what is open in
// the others, and one whose state cannot be read what was known before.
func TestGaugeOfDamaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		reg := prometheus.NewRegistry()
		w.Metrics = NewMetrics(reg)
		live := w.live(t)
		w.commit(t, live[0].ID, "pp")
		w.follow(t)
		look := func(want int) {
			t.Helper()
			bubble.Pass(time.Hour)
			if _, err := w.Topic(t.Context(), t.Context(), "orders"); !errors.Is(err, filer.ErrNotFound) && !errors.Is(err, filer.ErrCorrupt) {
				t.Fatalf("error %v", err)
			}
			if got := gauge(t, reg); got != float64(want) {
				t.Errorf("%v are open, want %d", got, want)
			}
		}
		w.damaged(t, live[1].ID)
		look(2)
		w.objects.say(nil, w.refs[0].url)
		look(1)
		w.objects.say(nil, w.refs[1].url)
		look(0)
		w.commit(t, live[0].ID, "ppp")
		look(3)
		path := w.top.Dir() + "/refs.json"
		if err := w.store.Filer.Delete(t.Context(), path, ""); err != nil {
			t.Fatal(err)
		}
		if err := w.store.Filer.Create(t.Context(), path, filer.File{ID: filer.NewID(), Content: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		look(3)
	})
}
