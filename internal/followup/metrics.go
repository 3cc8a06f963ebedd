package followup

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a follow-up. A nil *Metrics counts nothing.
type Metrics struct {
	looks, resolved, givenUp, faults prometheus.Counter
	open                             prometheus.Gauge
	sweepSeconds                     prometheus.Histogram
}

// NewMetrics makes a follow-up's metrics and registers them. A nil registry leaves
// them unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "spillway", Subsystem: "refs", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "spillway", Subsystem: "refs", Name: name, Help: help, Buckets: buckets,
		})
	}
	m := &Metrics{
		looks:    counter("looks_total", "Looks at the objects of pending references."),
		resolved: counter("resolved_total", "Pending references whose objects came, and are pinned."),
		givenUp:  counter("given_up_total", "Pending references that are looked at no more."),
		faults:   counter("faults_total", "Times that a topic's pending references could not be followed up."),
		open:     gauge("open", "References that are pending still, of the topics that this process has looked at."),

		sweepSeconds: histogram("sweep_seconds", "Duration of sweeps over topics for pending references.", prometheus.ExponentialBuckets(0.01, 4, 8)),
	}
	if reg != nil {
		reg.MustRegister(m.looks, m.resolved, m.givenUp, m.faults, m.open, m.sweepSeconds)
	}
	return m
}

func (m *Metrics) looked() {
	if m != nil {
		m.looks.Inc()
	}
}

// saved counts what a round has found, once that is saved.
func (m *Metrics) saved(r Report) {
	if m != nil {
		m.resolved.Add(float64(r.Resolved))
		m.givenUp.Add(float64(r.GivenUp))
	}
}

func (m *Metrics) fault() {
	if m != nil {
		m.faults.Inc()
	}
}

func (m *Metrics) openChanged(by int) {
	if m != nil {
		m.open.Add(float64(by))
	}
}

func (m *Metrics) swept(took time.Duration) {
	if m != nil {
		m.sweepSeconds.Observe(took.Seconds())
	}
}
