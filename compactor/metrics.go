package compactor

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of a compactor. A nil *Metrics counts nothing.
type Metrics struct {
	segments                                    *prometheus.CounterVec
	records, rows, bytes, files, fileBytes      prometheus.Counter
	swept, faults                               prometheus.Counter
	quarantined                                 prometheus.Gauge
	rewriteSeconds, commitSeconds, sweepSeconds prometheus.Histogram
}

// The steps that segments are counted by.
const (
	stepCompacted = "compacted"
	stepCommitted = "committed"
	stepTrimmed   = "trimmed"
)

// NewMetrics makes a compactor's metrics and registers them. A nil registry leaves them
// unregistered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "spillway", Subsystem: "compactor", Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts(opts(name, help)))
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), []string{label})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "spillway", Subsystem: "compactor", Name: name, Help: help, Buckets: buckets,
		})
	}
	m := &Metrics{
		segments:    counters("segments_total", "Segments that came a step further, by step.", "step"),
		records:     counter("records_total", "Records of segments that were compacted."),
		rows:        counter("rows_total", "Rows of data files: records, and the rows of batch references."),
		bytes:       counter("bytes_total", "Bytes of records of segments that were compacted, before compression."),
		files:       counter("files_total", "Data files that came to be."),
		fileBytes:   counter("file_bytes_total", "Bytes of data files that came to be."),
		swept:       counter("swept_total", "Files that nothing names, deleted."),
		faults:      counter("faults_total", "Times that a topic could not be compacted, or not in all parts."),
		quarantined: gauge("quarantined_segments", "Segments that cannot be read, of the topics that this process has looked at."),

		rewriteSeconds: histogram("rewrite_seconds", "Duration of making the data files of one segment.", prometheus.ExponentialBuckets(0.05, 4, 8)),
		commitSeconds:  histogram("commit_seconds", "Duration of commits to tables.", prometheus.ExponentialBuckets(0.02, 3, 8)),
		sweepSeconds:   histogram("sweep_seconds", "Duration of sweeps over topics.", prometheus.ExponentialBuckets(0.01, 4, 8)),
	}
	for _, step := range []string{stepCompacted, stepCommitted, stepTrimmed} {
		m.segments.WithLabelValues(step) // so that they are there from the start
	}
	if reg != nil {
		reg.MustRegister(m.segments, m.records, m.rows, m.bytes, m.files, m.fileBytes, m.swept, m.faults,
			m.quarantined, m.rewriteSeconds, m.commitSeconds, m.sweepSeconds)
	}
	return m
}

// visited counts what came of a look at a topic.
func (m *Metrics) visited(r Report, err error) {
	if m == nil {
		return
	}
	m.segments.WithLabelValues(stepCompacted).Add(float64(r.Compacted))
	m.segments.WithLabelValues(stepCommitted).Add(float64(r.Committed))
	m.segments.WithLabelValues(stepTrimmed).Add(float64(r.Trimmed))
	m.records.Add(float64(r.Records))
	m.rows.Add(float64(r.Rows))
	m.bytes.Add(float64(r.Bytes))
	m.files.Add(float64(r.Files))
	m.fileBytes.Add(float64(r.FileBytes))
	m.swept.Add(float64(r.Swept))
	if err != nil && !noTopic(err) || r.Silent != nil {
		m.faults.Inc()
	}
}

func (m *Metrics) quarantineChanged(by int) {
	if m != nil {
		m.quarantined.Add(float64(by))
	}
}

func (m *Metrics) rewrote(took time.Duration) {
	if m != nil {
		m.rewriteSeconds.Observe(took.Seconds())
	}
}

func (m *Metrics) committed(took time.Duration) {
	if m != nil {
		m.commitSeconds.Observe(took.Seconds())
	}
}

func (m *Metrics) sweptAll(took time.Duration) {
	if m != nil {
		m.sweepSeconds.Observe(took.Seconds())
	}
}
