package compactor

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestSweep(t *testing.T) {
	w := sealedWorld(t)
	_, err := w.store.CreateTopic(t.Context(), topic.Definition{
		Name: "quiet", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
	}, 1, noon)
	must(t, err)
	c := w.compactor()
	sum, err := c.Sweep(t.Context(), t.Context(), false)
	if err != nil || sum.Topics != 2 || sum.Compacted != 1 || sum.Waiting != 1 || !sum.Next.Equal(noon.Add(grace)) {
		t.Errorf("%+v, %v", sum, err)
	}
	// Topics at rest are looked at if something of them waits.
	for m, err := range w.store.Active(t.Context()) {
		must(t, err)
		must(t, w.store.Rest(t.Context(), m))
	}
	w.pass(grace)
	if sum, err = c.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 1 || sum.Trimmed != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err = c.Sweep(t.Context(), t.Context(), false); err != nil || sum.Topics != 0 {
		t.Errorf("%+v, %v", sum, err)
	}
	if sum, err = c.Sweep(t.Context(), t.Context(), true); err != nil || sum.Topics != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if sum, err = c.Sweep(t.Context(), stopped, true); err != nil || sum.Left != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
}

func TestSweepGoesOn(t *testing.T) {
	w := sealedWorld(t)
	must(t, w.store.Filer.Create(t.Context(), "/buckets/test/topics/broken/topic.json", fileOf("{")))
	must(t, w.store.MarkActive(t.Context(), "broken", noon))
	must(t, w.store.MarkActive(t.Context(), "gone", noon))
	sum, err := w.compactor().Sweep(t.Context(), t.Context(), false)
	var some *SweepError
	if !errors.As(err, &some) || len(some.Faults) != 1 || !strings.Contains(err.Error(), `topic "broken"`) {
		t.Errorf("%v", err)
	}
	if sum.Topics != 1 || sum.Failed != 1 || sum.Gone != 1 || sum.Compacted != 1 {
		t.Errorf("%+v", sum)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := sealedWorld(t)
		reg := prometheus.NewRegistry()
		o := w.options(nil, nil)
		o.Metrics = NewMetrics(reg)
		stop, halt := context.WithCancel(t.Context())
		var sums []Summary
		New(o).Run(t.Context(), stop, time.Minute, func(sum Summary, err error) {
			must(t, err)
			sums = append(sums, sum)
			w.pass(time.Minute)
			if len(sums) == 70 {
				halt()
			}
		})
		trimmed := 0
		for _, s := range sums {
			trimmed += s.Trimmed
		}
		if len(sums) != 70 || sums[0].Compacted != 1 || trimmed != 1 {
			t.Errorf("%d sweeps, the first %+v, %d trimmed", len(sums), sums[0], trimmed)
		}
		got := map[string]float64{}
		families, err := reg.Gather()
		must(t, err)
		for _, f := range families {
			for _, m := range f.GetMetric() {
				name := f.GetName()
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
		for name, want := range map[string]float64{
			"spillway_compactor_segments_total compacted": 1, "spillway_compactor_segments_total committed": 1,
			"spillway_compactor_segments_total trimmed": 1, "spillway_compactor_records_total": 3,
			"spillway_compactor_files_total": 1, "spillway_compactor_quarantined_segments": 0, "spillway_compactor_faults_total": 0,
		} {
			if v, there := got[name]; !there || v != want {
				t.Errorf("%s is %v, want %v", name, v, want)
			}
		}
	})
}

// A topic that is deleted at any moment leaves nothing behind that was written later.
func TestTopicIsDeleted(t *testing.T) {
	for n, more := 1, true; more; n++ {
		w := sealedWorld(t)
		deleted := false
		calls := 0
		o := w.options(func(memfs.Op) memfs.Fault {
			if calls++; calls == n {
				must(t, w.store.DeleteTopic(t.Context(), "orders", noon))
				deleted = true
			}
			return memfs.Fault{}
		}, nil)
		o.Grace = 0
		_, err := New(o).Topic(t.Context(), t.Context(), "orders")
		if more = deleted; deleted && !noTopic(err) && n < calls {
			t.Errorf("deleted at call %d of %d: %v", n, calls, err)
		}
		if !deleted {
			break
		}
		for _, p := range w.fs.Paths() {
			if strings.HasPrefix(p, "/buckets/test/topics/") {
				t.Errorf("deleted at call %d of %d: %s is left", n, calls, p)
			}
		}
	}
}

func TestNoTopic(t *testing.T) {
	w := newWorld(t, 1)
	c := w.compactor()
	if _, err := c.Topic(t.Context(), t.Context(), "nobody"); !errors.Is(err, segment.ErrNoTopic) {
		t.Error(err)
	}
	var bad *topic.NameError
	if _, err := c.Topic(t.Context(), t.Context(), "../x"); !errors.As(err, &bad) {
		t.Error(err)
	}
}
