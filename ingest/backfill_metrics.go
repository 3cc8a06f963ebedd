package ingest

import "github.com/prometheus/client_golang/prometheus"

// NewBackfillMetrics makes the metrics of all backfills of a process and registers
// them. A nil registry leaves them unregistered.
func NewBackfillMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "spillway", Subsystem: "backfill", Name: name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "spillway", Subsystem: "backfill", Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(0.001, 2, 14)})
	}
	m := NewMetrics(nil, "")
	m.part = "backfill"
	m.messages = counter("rows_total", "Rows of objects passed by checkpoints, rejected ones and those left out included.")
	m.records = counter("records_total", "Records committed, rejected ones included.")
	m.rejected = counter("rejected_total", "Rows, and ends of objects that cannot be read, committed as rejected records.")
	m.conflicts = counter("conflicts_total", "Entry numbers that another writer won.")
	m.bytes = counter("bytes_total", "Bytes of chunk files committed.")
	m.restarts = counter("restarts_total", "Times that reading started again from the checkpoint.")
	m.nudges = counter("nudges_total", "Times that a planner was called for because a segment took in more than its target.")
	m.flushSeconds = histogram("flush_seconds", "Time to commit a flush, its uploads not included.")
	m.editSeconds = histogram("edit_pause_seconds", "Time from meeting a seal until the flush is committed in the children.")
	if reg != nil {
		reg.MustRegister(m.messages, m.records, m.rejected, m.conflicts, m.bytes, m.restarts, m.nudges, m.flushSeconds, m.editSeconds)
	}
	return m
}
