package ingest

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Counts is what a worker has done.
type Counts struct {
	Messages     uint64 `json:"messages"`
	Records      uint64 `json:"records"` // decoded, rejected ones too
	Committed    uint64 `json:"committed"`
	Rejected     uint64 `json:"rejected"`
	References   uint64 `json:"references"` // records with one
	Pending      uint64 `json:"pending"`    // of those, committed without a verdict
	Duplicates   uint64 `json:"duplicates"` // batches that a producer sent again, and S3 events that came again
	Chunks       uint64 `json:"chunks"`
	Bytes        uint64 `json:"bytes"` // of chunk files
	Conflicts    uint64 `json:"conflicts"`
	PartialDrops uint64 `json:"partial_drops"` // chunks of which another worker had a part
	Regrouped    uint64 `json:"regrouped"`     // times that a topic's records were divided anew because of an edit
	Checkpoint   uint64 `json:"checkpoint"`
}

// Add adds what another worker, or another session, has done.
func (c *Counts) Add(o Counts) {
	c.Messages += o.Messages
	c.Records += o.Records
	c.Committed += o.Committed
	c.Rejected += o.Rejected
	c.References += o.References
	c.Pending += o.Pending
	c.Duplicates += o.Duplicates
	c.Chunks += o.Chunks
	c.Bytes += o.Bytes
	c.Conflicts += o.Conflicts
	c.PartialDrops += o.PartialDrops
	c.Regrouped += o.Regrouped
}

// Metrics of a worker, labelled with its lane.
type Metrics struct {
	// Health is told of the worker's faults and progress; nil: nobody.
	Health *Health

	part                                                                        string // the worker, in Health
	messages, records, rejected, duplicates, conflicts, bytes, restarts, nudges prometheus.Counter
	references, pending                                                         prometheus.Counter
	lag, laneBytes, checkpoint                                                  prometheus.Gauge
	flushSeconds, flushRecords, editSeconds, lookSeconds                        prometheus.Histogram
}

// NewMetrics makes a lane's metrics and registers them. A nil registry leaves
// them unregistered.
func NewMetrics(reg prometheus.Registerer, lane string) *Metrics {
	labels := prometheus.Labels{"lane": lane}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "spillway", Subsystem: "ingest", Name: name, Help: help, ConstLabels: labels})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "spillway", Subsystem: "ingest", Name: name, Help: help, ConstLabels: labels})
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: "spillway", Subsystem: "ingest", Name: name, Help: help, ConstLabels: labels, Buckets: buckets})
	}
	m := &Metrics{
		part:         "worker of lane " + lane,
		messages:     counter("messages_total", "Lane messages committed."),
		records:      counter("records_total", "Records committed, rejected ones included."),
		rejected:     counter("rejected_total", "Records committed as rejected."),
		references:   counter("references_total", "Records committed that refer to an object, rejected ones included."),
		pending:      counter("pending_total", "Records committed with a reference whose object was not found, or not looked at, in time."),
		duplicates:   counter("duplicates_total", "Batches that their producer had sent before, and S3 events that had come before."),
		conflicts:    counter("conflicts_total", "Entry numbers that another writer won."),
		bytes:        counter("bytes_total", "Bytes of chunk files committed."),
		restarts:     counter("restarts_total", "Times that reading started again from the checkpoint."),
		nudges:       counter("nudges_total", "Times that a planner was called for because a segment took in more than its target."),
		lag:          gauge("lag_messages", "Lane messages above the checkpoint."),
		laneBytes:    gauge("lane_bytes", "Bytes that the lane holds."),
		checkpoint:   gauge("checkpoint", "Lane sequence up to which all is committed."),
		flushSeconds: histogram("flush_seconds", "Time to commit a flush, its uploads not included.", prometheus.ExponentialBuckets(0.001, 2, 14)),
		flushRecords: histogram("flush_records", "Records per flush.", prometheus.ExponentialBuckets(1, 4, 11)),
		editSeconds:  histogram("edit_pause_seconds", "Time from meeting a seal until the flush is committed in the children.", prometheus.ExponentialBuckets(0.001, 2, 14)),
	}
	m.lookSeconds = histogram("look_seconds", "Time that a flush waited for the objects that its records refer to.", prometheus.ExponentialBuckets(0.001, 2, 12))
	if reg != nil {
		reg.MustRegister(m.references, m.pending, m.lookSeconds)
		reg.MustRegister(m.messages, m.records, m.rejected, m.duplicates, m.conflicts, m.bytes, m.restarts, m.nudges,
			m.lag, m.laneBytes, m.checkpoint, m.flushSeconds, m.flushRecords, m.editSeconds)
	}
	return m
}

func (m *Metrics) flush(c Counts, took time.Duration) {
	m.messages.Add(float64(c.Messages))
	m.records.Add(float64(c.Committed))
	m.rejected.Add(float64(c.Rejected))
	m.references.Add(float64(c.References))
	m.pending.Add(float64(c.Pending))
	m.duplicates.Add(float64(c.Duplicates))
	m.conflicts.Add(float64(c.Conflicts))
	m.bytes.Add(float64(c.Bytes))
	m.flushSeconds.Observe(took.Seconds())
	m.flushRecords.Observe(float64(c.Records))
	m.Health.OK(m.part)
}

// restart counts a session that ended by an error.
func (m *Metrics) restart(err error) {
	m.restarts.Inc()
	m.Health.Fault(m.part, err)
}

func (m *Metrics) lane(s State, checkpoint uint64) {
	m.checkpoint.Set(float64(checkpoint))
	m.laneBytes.Set(float64(s.Bytes))
	m.lag.Set(float64(s.Last - min(s.Last, checkpoint)))
}
