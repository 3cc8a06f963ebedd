// Package repair deals with what of a segment cannot be read: it mends a damaged chunk
// from its lane, if the lane still holds the chunk's messages, or notes that an operator
// gives its records up, so that the rest of the segment can be compacted.
//
// A chunk is mended only if exactly the bytes come out that it had: its attributes name
// their digest, and the attributes, which decide everything, stay as they are.
package repair

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Source yields the records that a topic's messages in a lane become, in the order of
// the lane, from the first that the lane holds up to and including message to; a set is
// valid until the next. Rows of one message come in one set.
type Source func(ctx context.Context, source string, t topic.Definition, to uint64) iter.Seq2[*record.Set, error]

// Repairer repairs segments of a store. Any number may be at one segment.
type Repairer struct {
	Store *segment.Store
	// Lane reads lanes again; nil: nothing can be mended from them.
	Lane   Source
	By     string // who is at it, for the note in the file
	Now    func() time.Time
	Logger *slog.Logger
	// ReadLimit is how long the bytes of one chunk are tried for while the filer
	// itself answers; 0: a minute.
	ReadLimit time.Duration
}

// Outcome is what became of a damaged chunk.
type Outcome string

// All outcomes. Mendable is what would be mended, in a dry run.
const (
	Mended   Outcome = "mended"
	Mendable Outcome = "mendable"
	Lost     Outcome = "lost" // for what Why says
	Given    Outcome = "given-up"
)

// Damage is a chunk whose records cannot be read.
type Damage struct {
	Chunk   uint64  `json:"chunk"`
	Path    string  `json:"path"`
	First   uint64  `json:"first"` // offsets
	Last    uint64  `json:"last"`
	Source  string  `json:"source,omitempty"`
	Reason  string  `json:"reason"` // what is wrong with it
	Outcome Outcome `json:"outcome,omitempty"`
	Why     string  `json:"why,omitempty"`

	chunk segment.Chunk // zero: its entry cannot be read either
	prev  segment.Chunk // the zero Chunk: not known, or none
}

// Report is what a repair found and did.
type Report struct {
	Topic   string          `json:"topic"`
	Segment topic.SegmentID `json:"segment"`
	DryRun  bool            `json:"dry_run"`
	Chunks  uint64          `json:"chunks"` // that were read
	Damaged []Damage        `json:"damaged"`
	// Dropped are all records of the segment that are given up, after the call.
	Dropped []segment.DroppedRange `json:"dropped"`
	// Compacted: the segment has a manifest. What is in its chunks does not matter.
	Compacted bool `json:"compacted"`
}

// Lost is how many damaged chunks are neither mended nor given up.
func (r Report) Lost() int {
	n := 0
	for _, d := range r.Damaged {
		if d.Outcome == Lost || d.Outcome == "" {
			n++
		}
	}
	return n
}

// ErrLive says that a segment takes records still, so that nothing of it is given up:
// it is compacted, and its damage in the way, only when it is sealed.
var ErrLive = errors.New("the segment is not sealed")

// ErrCompacted says that a segment has its manifest, which is never changed.
var ErrCompacted = errors.New("the segment is compacted already")

// open finds the segment, and what was given up of it.
func (r *Repairer) open(ctx context.Context, name string, id topic.SegmentID) (*segment.Segment, *segment.Topic, Report, error) {
	report := Report{Topic: name, Segment: id, Damaged: []Damage{}, Dropped: []segment.DroppedRange{}}
	t, err := r.Store.Topic(ctx, name)
	if err != nil {
		return nil, nil, report, err
	}
	s, err := t.Segment(ctx, id)
	if err != nil {
		return nil, nil, report, err
	}
	m, err := s.Manifest(ctx)
	switch {
	case err == nil:
		report.Compacted, report.Dropped = true, append(report.Dropped, m.Dropped...)
	case errors.Is(err, filer.ErrNotFound):
		q, _, err := r.quarantine(t, id).Load(ctx)
		if err != nil && !errors.Is(err, filer.ErrNotFound) {
			return nil, nil, report, err
		}
		report.Dropped = append(report.Dropped, q.Drop...)
	default:
		return nil, nil, report, err
	}
	return s, t, report, nil
}

// wrong tells why a chunk cannot be read; "" if it can, or was trimmed.
func (r *Repairer) wrong(ctx context.Context, s *segment.Segment, c segment.Chunk) (reason string, err error) {
	limit := r.ReadLimit
	if limit == 0 {
		limit = time.Minute
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var bad error
	for _, err := range s.Records(bounded, c) {
		bad = err
	}
	if bad == nil || ctx.Err() != nil {
		return "", ctx.Err()
	}
	// The filer itself has to answer, and to know the file, before bytes are called
	// lost.
	if _, err := s.ChunkAt(ctx, c.Entry.N); err != nil {
		if errors.Is(err, filer.ErrNotFound) || errors.Is(err, commitlog.ErrVoid) {
			return "", nil
		}
		return "", err
	}
	return bad.Error(), nil
}

// logger tells of a segment.
func (r *Repairer) logger(report Report) *slog.Logger {
	if r.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return r.Logger.With("topic", report.Topic, "segment", report.Segment)
}
