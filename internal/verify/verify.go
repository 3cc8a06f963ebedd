// Package verify proves from the files of a topic, and from the lanes that feed
// it, that every record is there exactly once and in order. It trusts nothing
// that the writer says of a chunk: it reads attributes and bytes itself and
// holds each claim against what is there. docs/PROTOCOL.md has the rules.
//
// Each thing that is looked at is a check of its own, with a [Kind]; checks.go
// lists them all.
package verify

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// MaxViolations is after how many violations a verification ends.
const MaxViolations = 100

// Report is what a verification found.
type Report struct {
	OK         bool        `json:"ok"`
	Topic      string      `json:"topic"`
	Records    uint64      `json:"records"`
	Rejected   uint64      `json:"rejected"` // of the records
	Segments   uint64      `json:"segments"`
	Chunks     uint64      `json:"chunks"`              // seals are none
	Bytes      uint64      `json:"bytes"`               // of records, before compression
	Compacted  uint64      `json:"compacted,omitempty"` // of the segments: those with a manifest
	DataFiles  uint64      `json:"data_files,omitempty"`
	InTable    uint64      `json:"in_table,omitempty"`   // of the segments: those that the table has
	TableRows  uint64      `json:"table_rows,omitempty"` // of all that is in the table
	GivenUp    []GivenUp   `json:"given_up,omitempty"`
	BatchRefs  BatchRefs   `json:"batch_references,omitzero"`
	Violations []Violation `json:"violations"`
}

// Violation is one thing that is not as it must be.
type Violation struct {
	Kind    Kind            `json:"kind"`
	Path    string          `json:"path"` // of the file at fault
	Segment topic.SegmentID `json:"segment,omitempty"`
	Offset  uint64          `json:"offset"` // of the record, or of the chunk's first
	Detail  string          `json:"detail"`
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s: %s", v.Kind, v.Path, v.Detail) }

// Option changes a verification.
type Option func(*verifier)

// without leaves a check out; tests show with it that each one is needed.
func without(kind Kind) Option { return func(v *verifier) { v.checks.remove(kind) } }

// Topic verifies a topic. It may be written to meanwhile. With lanes it also
// proves that what the checkpoints say to be committed is; without (nil) it
// looks at files only. It holds one chunk, or a few pages of a data file, in memory,
// 16 bytes for each chunk of a compacted segment that is still there, 24 bytes for each run of
// consecutive rows of a message in a segment, and for each source how far it has
// got, by ranges of slots.
//
// The error tells that the verification could not be done: there is no such
// topic, it is being deleted, or the filer or a lane's server does not answer
// before ctx ends. What is wrong with the data is a violation, never an error.
func Topic(ctx context.Context, store *segment.Store, lanes Lanes, name string, opts ...Option) (Report, error) {
	v := &verifier{
		store: store, lanes: lanes, checks: allChecks(), sources: map[string]*source{},
		ended: map[topic.SegmentID]ending{}, reached: levels{}, counted: map[string]counted{},
		report: Report{Topic: name, Violations: []Violation{}},
	}
	for _, o := range opts {
		o(v)
	}
	if err := v.verify(ctx, name); err != nil {
		return v.report, fmt.Errorf("verify topic %q: %w", name, err)
	}
	if v.report.OK = len(v.report.Violations) == 0; !v.report.OK && v.topic != nil {
		// A topic that was deleted meanwhile looks damaged, and is not.
		now, err := store.Topic(ctx, name)
		if err == nil && now.Incarnation != v.topic.Incarnation {
			err = segment.ErrDeleting
		}
		if err != nil {
			return v.report, fmt.Errorf("verify topic %q: it changed meanwhile: %w", name, err)
		}
	}
	return v.report, nil
}

// verifier is one verification.
type verifier struct {
	store   *segment.Store
	lanes   Lanes
	checks  checks
	report  Report
	counter Counter                                              // nil: batch references are not read
	open    func(context.Context, *segment.Topic) (Table, error) // nil: no table is looked at
	tabled  tabled
	counted map[string]counted

	topic   *segment.Topic
	before  map[string]topic.Position  // checkpoints as they were when it began
	trims   [][]segment.SourcePosition // of the first entry that is left of each trimmed segment
	tallied map[string]tallied         // of those, what backfills count
	ended   map[topic.SegmentID]ending // segments that are read, and whose children are not
	refused map[string]topic.Position  // by the topic for messages that name none
	reached levels                     // by the records of the segments that are read
	sources map[string]*source
	chunks  []chunkRef
	slots   slotLoads // of the chunk that is being read
	// broken: some of the topic could not be read, or is out of order. What
	// concerns the topic as a whole is not judged then: that records are
	// missing would only repeat what is said already.
	broken bool
	err    error // of a checkpoint that a check asked for
}

// place is where something is wrong.
type place struct {
	path    string
	segment topic.SegmentID
	offset  uint64
}

// full tells that there is no need to go on.
func (v *verifier) full() bool { return v.err != nil || len(v.report.Violations) >= MaxViolations }

func (v *verifier) add(kind Kind, at place, detail string) {
	if len(v.report.Violations) < MaxViolations {
		v.report.Violations = append(v.report.Violations, Violation{kind, at.path, at.segment, at.offset, detail})
	}
}

func (v *verifier) verify(ctx context.Context, name string) error {
	t, err := v.store.Topic(ctx, name)
	if err != nil && !errors.Is(err, filer.ErrCorrupt) {
		return err
	}
	if err == nil && t.Name == name {
		err = t.Validate()
	} else if err == nil {
		err = fmt.Errorf("it describes topic %q", t.Name)
	}
	at := place{path: path.Join(v.store.Root(), "topics", name, "topic.json")}
	if !run(v, v.checks.topic, at, err) || err != nil {
		return nil //nolint:nilerr // it is in the report: what is wrong with the data is no error
	}
	v.topic = t
	// The checkpoints come first: what they say to be committed is in the
	// files that are read after them.
	if v.before, err = v.loadCheckpoints(ctx); err != nil {
		return err
	}
	if err := v.files(ctx); err != nil || v.full() {
		return errors.Join(err, v.err)
	}
	if err := v.table(ctx); err != nil || v.full() {
		return err
	}
	return v.whole(ctx)
}

// files looks at the layout, and at each segment with what it has from its
// parents.
func (v *verifier) files(ctx context.Context) error {
	folders, err := v.folders(ctx)
	if err != nil {
		return err
	}
	h, err := v.history(ctx)
	if err != nil || h == nil {
		return err
	}
	v.strays(h, folders)
	for list := range slices.Chunk(h.segments, loadAhead) {
		files, err := v.load(ctx, list)
		if err != nil {
			return err
		}
		for _, s := range files {
			if v.full() {
				return nil
			}
			if err := v.segment(ctx, h, s); err != nil {
				return err
			}
			if s.last {
				v.forget(s.by.Edit.Parents)
			}
		}
	}
	return v.underWay(ctx, h)
}

// forget drops what is kept of segments for their children.
func (v *verifier) forget(ids []topic.SegmentID) {
	for _, id := range ids {
		delete(v.ended, id)
	}
}

// whole judges what concerns all segments together.
func (v *verifier) whole(ctx context.Context) error {
	names := make([]string, 0, len(v.sources))
	for name := range v.sources {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := v.source(ctx, v.sources[name]); err != nil {
			return err
		}
	}
	if v.lanes == nil || v.broken || v.full() {
		return nil
	}
	return v.feeds(ctx)
}

// definite tells whether an error is about the data: another try would end the
// same.
func definite(err error) bool {
	return filer.Definite(err) || errors.Is(err, commitlog.ErrNoLog) || errors.Is(err, commitlog.ErrWentBack)
}
