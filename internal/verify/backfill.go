package verify

import (
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// holes tells that rows of a backfill's object may be missing: where some were left
// out, and where it could not be read to its end. Another run may have read more of that
// one, and what it committed stays.
func (s *source) holes(object uint64) bool {
	t := s.checkpoint.Tally
	if t == nil {
		return false
	}
	return t.Filtered > 0 || slices.ContainsFunc(t.Failures, func(f segment.Failure) bool { return f.Object == object })
}

// tallied is what a backfill's checkpoint counted before the files were read, and up
// to where.
type tallied struct {
	at    topic.Position
	tally segment.Tally
}

// checkTally: a backfill's checkpoint counts its records in the same write that passes
// them, so there are as many. Of objects that could not be read to their end there may be
// more, and the count says nothing.
func checkTally(s *source) string {
	if s.counted == nil || len(s.counted.tally.Failures) > 0 || s.known > 0 || s.checkpointErr != nil {
		return ""
	}
	var records uint64
	for _, r := range s.runs {
		lo, hi := topic.Position{Sequence: r.seq, Row: r.lo}, topic.Position{Sequence: r.seq, Row: r.hi}
		switch at := s.counted.at; {
		case lo.After(at):
			continue
		case hi.After(at):
			r.hi = at.Row
		}
		records += uint64(r.hi-r.lo) + 1
	}
	t := s.counted.tally
	if want := t.Rows + t.Rejected; records != want {
		return fmt.Sprintf("up to %s it counts %d records, of which %d are rejected; there are %d", shown(s.counted.at), want, t.Rejected, records)
	}
	return ""
}

// unnamed is up to which object chunks of a backfill may have been trimmed away that the
// first entry that is left does not tell of: chunks leave out backfills that a checkpoint
// has passed (rule 10).
func (v *verifier) unnamed(source string, checkpoint topic.Position) uint64 {
	for _, named := range v.trims {
		if !slices.ContainsFunc(named, func(p segment.SourcePosition) bool { return p.Source == source }) {
			return checkpoint.Sequence + 1
		}
	}
	return 0
}
