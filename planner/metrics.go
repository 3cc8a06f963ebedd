package planner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a planner. A nil *Metrics counts nothing.
type Metrics struct {
	edits           *prometheus.CounterVec
	looks, faults   prometheus.Counter
	active, hottest prometheus.Gauge
	sweepSeconds    prometheus.Histogram
}

// NewMetrics makes a planner's metrics and registers them. A nil registry leaves
// them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "spillway", Subsystem: "planner", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), []string{label})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "spillway", Subsystem: "planner", Name: name, Help: help, Buckets: buckets,
		})
	}
	m := &Metrics{
		edits:        counters("edits_total", "Edits made, by kind.", "kind"),
		looks:        counter("looks_total", "Times that a topic was looked at."),
		faults:       counter("faults_total", "Times that a topic could not be looked at or edited."),
		active:       gauge("active_topics", "Topics that were not at rest in the last sweep."),
		hottest:      gauge("hottest_level", "Load of the hottest segment in the last sweep, as a multiple of its target."),
		sweepSeconds: histogram("sweep_seconds", "Duration of sweeps over all topics that are due.", prometheus.ExponentialBuckets(0.01, 4, 8)),
	}
	for _, kind := range []string{Split, Merge, Roll} {
		m.edits.WithLabelValues(kind) // so that they are there from the start
	}
	if reg != nil {
		reg.MustRegister(m.edits, m.looks, m.faults, m.active, m.hottest, m.sweepSeconds)
	}
	return m
}

func (m *Metrics) looked(r Report, err error) {
	if m == nil {
		return
	}
	m.looks.Inc()
	if err != nil && !noTopic(err) {
		m.faults.Inc()
	}
	for _, made := range r.Made {
		m.edits.WithLabelValues(made.Kind).Inc()
	}
}

func (m *Metrics) swept(active int, hottest float64, took time.Duration) {
	if m == nil {
		return
	}
	m.active.Set(float64(active))
	m.hottest.Set(hottest)
	m.sweepSeconds.Observe(took.Seconds())
}
