package segment

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Tally is what a backfill's source has done up to its checkpoint. It moves in the
// same write, so that it is exact whatever was killed on the way. All but Dropped and
// Segments follow from the objects alone.
type Tally struct {
	Objects  uint64 `json:"objects"`  // read to their end, or as far as they could be
	Rows     uint64 `json:"rows"`     // taken in
	Bytes    uint64 `json:"bytes"`    // of the values of those
	Rejected uint64 `json:"rejected"` // rows taken in as rejected records
	Filtered uint64 `json:"filtered"` // rows left out by their event time
	// Dropped is rows that were there already when they were brought again, after a
	// restart or by two at once.
	Dropped uint64 `json:"dropped"`
	// Failures are the objects that could not be read to their end, ascending; at most
	// MaxFailures. For each a refused record follows when all objects are done.
	Failures []Failure `json:"failures,omitempty"`
	// Segments are those that took in rows, or had them already; sorted. No more than
	// MaxTallied are named.
	Segments []topic.SegmentID `json:"segments,omitempty"`
}

// Failure is an object that could not be read to its end.
type Failure struct {
	Object uint64 `json:"object"` // its number, from 1
	Row    uint32 `json:"row"`    // the first that could not be read
	Reason string `json:"reason"`
}

// Bounds of failures: a checkpoint is written again and again.
const (
	MaxFailures      = 1000
	MaxFailureReason = 300 // bytes
)

// MaxTallied bounds the segments that a tally names.
const MaxTallied = 1000

// Add adds what was done since.
func (t *Tally) Add(o Tally) {
	t.Objects += o.Objects
	t.Rows += o.Rows
	t.Bytes += o.Bytes
	t.Rejected += o.Rejected
	t.Filtered += o.Filtered
	t.Dropped += o.Dropped
	t.Failures = append(slices.Clip(t.Failures), o.Failures...)
	t.Touch(o.Segments...)
}

// Touch adds segments that took in rows.
func (t *Tally) Touch(ids ...topic.SegmentID) {
	for _, id := range ids {
		if at, found := slices.BinarySearch(t.Segments, id); !found && len(t.Segments) < MaxTallied {
			t.Segments = slices.Insert(slices.Clip(t.Segments), at, id)
		}
	}
}

// Position is how far the source is committed in every segment.
func (c Checkpoint) Position() topic.Position {
	if c.Rows > 0 {
		return topic.Position{Sequence: c.Sequence + 1, Row: c.Rows - 1}
	}
	return topic.Whole(c.Sequence)
}

// Finished tells whether a backfill's source of so many objects has nothing left to
// do. After the last object come the records that stand for those that failed, as if
// they were one more.
func (c Checkpoint) Finished(objects uint64) bool {
	return c.Sequence > objects || c.Sequence == objects && (c.Tally == nil || len(c.Tally.Failures) == 0)
}

// AdvanceRows returns the checkpoint of a backfill moved to where objects of it are
// done and rows of the next, with what was done since the last one.
func (c Checkpoint) AdvanceRows(objects uint64, rows uint32, done Tally, now time.Time) Checkpoint {
	next := Checkpoint{Source: c.Source, Sequence: objects, Rows: rows, Witness: now.UTC(), Producers: []Producer{}, Marks: []Mark{}, Tally: &Tally{}}
	if c.Tally != nil {
		next.Tally.Add(*c.Tally)
	}
	next.Tally.Add(done)
	return next
}

// backfillPrefix begins the names of backfills' sources: "backfill.<job>.<n>".
const backfillPrefix = "backfill."

// BackfillSource is the name of source n of a backfill.
func BackfillSource(job string, n int) string { return fmt.Sprintf("%s%s.%d", backfillPrefix, job, n) }

// mostForeign is how many positions of other sources a chunk carries before it is
// looked which of them their checkpoints have passed.
const mostForeign = 16

// prune leaves out of the tail's positions those of other backfills that lie at or below
// their checkpoints (rule 10), so that the list stays small however many backfills
// there were. It looks again only when there are twice as many as were left. A checkpoint
// that cannot be read is another's business: its position stays.
func (s *Segment) prune(ctx context.Context, own string) error {
	if len(s.tail.Positions) <= max(mostForeign, s.foreign) {
		return nil
	}
	passed := s.topic.store.passed()
	kept := make([]SourcePosition, 0, len(s.tail.Positions))
	for _, p := range s.tail.Positions {
		if p.Source != own && strings.HasPrefix(p.Source, backfillPrefix) {
			below, err := passed(ctx, p.Source)
			if ctx.Err() != nil {
				return err
			}
			if err == nil && !p.At.After(below) {
				continue
			}
		}
		kept = append(kept, p)
	}
	s.tail.Positions, s.foreign = kept, 2*len(kept)
	return nil
}
