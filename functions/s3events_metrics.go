package functions

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// relayMetrics are those of a relay of S3 events.
type relayMetrics struct {
	created, removed, found, retries, faults prometheus.Counter
	position                                 prometheus.Gauge
	list                                     prometheus.Histogram
}

// newRelayMetrics makes a relay's metrics and registers them. A nil registry leaves
// them unregistered.
func newRelayMetrics(reg prometheus.Registerer) *relayMetrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "spillway", Subsystem: "s3_events", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "spillway", Subsystem: "s3_events", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.01, 4, 8),
		})
	}
	m := &relayMetrics{
		created:  counter("created_total", "Notifications published of objects that were created."),
		removed:  counter("removed_total", "Notifications published of objects that were removed."),
		found:    counter("found_total", "Of those, the ones whose events the filer had lost, and whose objects a listing found."),
		retries:  counter("retries_total", "Notifications published again since they were not acknowledged."),
		faults:   counter("faults_total", "Times that the filer's events could not be followed."),
		position: gauge("position_seconds", "Time of the filer's log up to which all events are published, in seconds since 1970."),
		list:     histogram("list_seconds", "Duration of listings of the bucket."),
	}
	if reg != nil {
		reg.MustRegister(m.created, m.removed, m.found, m.retries, m.faults, m.position, m.list)
	}
	return m
}

func (m *relayMetrics) published(k seaweed.EventKind) {
	if k == seaweed.Removed {
		m.removed.Inc()
	} else {
		m.created.Inc()
	}
}

func (m *relayMetrics) recovered(n int)        { m.found.Add(float64(n)) }
func (m *relayMetrics) retried(n int)          { m.retries.Add(float64(n)) }
func (m *relayMetrics) fault()                 { m.faults.Inc() }
func (m *relayMetrics) at(position int64)      { m.position.Set(float64(position) / float64(time.Second)) }
func (m *relayMetrics) listed(d time.Duration) { m.list.Observe(d.Seconds()) }
