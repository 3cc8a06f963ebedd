package verify

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// segmentState is a segment while its chunks are read in order.
type segmentState struct {
	topic.Live
	key     topic.Key
	child   bool      // it has parents
	created time.Time // as its description says
	floors  levels    // as its description says; nil: not known
	trimmed bool      // chunks before the first were deleted
	// ended is the time of the edit that ends it, zero if there is none.
	ended time.Time
	// prev is the chunk before, the zero Chunk before the first, nil where it
	// is not known.
	prev *segment.Chunk
	// taken is how far each source is taken in, by the chunks so far.
	taken map[string]topic.Position

	// Of a segment that is compacted, or was while it was read.
	manifest *manifestStep  // nil: there is none, or none is known yet
	first    *segment.Chunk // the one with number 0, if it is there
	bytes    uint64         // of the records of the chunks that were read
	covered  []offsets      // of them
	marks    []mark         // what was in each of them
	dropped  []segment.DroppedRange
}

// chunkRef names a chunk in conclusions about the whole topic.
type chunkRef struct {
	place
}

// segment reads and checks one segment. Its parents have been read.
func (v *verifier) segment(ctx context.Context, h *history, file segmentFile) error {
	s := v.describe(file)
	s.ended = h.ended[s.ID]
	v.report.Segments++
	if err := v.aside(ctx, s); err != nil {
		return err
	}
	log := commitlog.New(v.store.Filer, v.segmentDir(s.ID), ".avro")
	for l, err := range v.walk(ctx, log, ".avro", place{segment: s.ID}) {
		if err != nil {
			return err
		}
		s.arrive(l)
		if err := v.chunk(ctx, s, l.e); err != nil {
			return err
		}
		if v.full() {
			return nil
		}
	}
	if err := v.compacted(ctx, s); err != nil || v.full() {
		return err
	}
	for source, at := range s.taken {
		v.reached[source] = raise(v.reached[source], s.Range, at)
	}
	if s.prev == nil {
		return nil // its last entry could not be read
	}
	return v.end(ctx, h, s.ID, s.prev.Sealed)
}

// arrive notes what is not known where entries are missing, or trimmed.
func (s *segmentState) arrive(l link) {
	jump := l.prev == nil && l.e.N > 0 || l.prev != nil && l.e.N > l.prev.N+1
	if jump {
		s.prev = nil
	}
	if l.prev == nil && l.expect > 0 || jump && l.e.N == l.expect {
		s.trimmed = true
	}
}

// notBefore is the time that nothing appended now may be earlier than: that of
// the chunk before, or of the parents' seals (rule 39).
func (s *segmentState) notBefore() time.Time {
	if s.child && s.prev.Entry.ID == "" {
		return s.created
	}
	return s.prev.Last
}

// chunkStep is a chunk's attributes with what comes before.
type chunkStep struct {
	*segmentState
	c segment.Chunk
	// passed tells whether a source's checkpoint has reached a position. It is
	// given with the checkpoint.
	passed func(source string, at topic.Position) (topic.Position, bool)
}

func checkBase(s *chunkStep) string {
	if s.prev == nil || s.c.Base == s.prev.End() {
		return ""
	}
	return fmt.Sprintf("it starts at offset %d, the chunk before ends at %d", s.c.Base, s.prev.End())
}

// checkByteBase: bytes are counted on over the segment's whole life.
func checkByteBase(s *chunkStep) string {
	if s.prev == nil || s.c.ByteBase == s.prev.ByteEnd() {
		return ""
	}
	return fmt.Sprintf("it starts at byte %d of the segment's records, the chunk before ends at %d", s.c.ByteBase, s.prev.ByteEnd())
}

func checkEmpty(s *chunkStep) string {
	if s.c.Sealed || s.c.Count > 0 {
		return ""
	}
	return "it has no records and is no seal"
}

// checkTimes: append times never go back from chunk to chunk, nor from the
// parents' seals to the first chunk (rule 39).
func checkTimes(s *chunkStep) string {
	switch {
	case s.prev == nil:
		return ""
	case s.c.First.Before(s.notBefore()):
		return fmt.Sprintf("its first time %s is before %s, the last one before it", stamp(s.c.First), stamp(s.notBefore()))
	case s.c.Last.Before(s.notBefore()):
		return fmt.Sprintf("its last time %s is before %s, the last one before it", stamp(s.c.Last), stamp(s.notBefore()))
	}
	return ""
}

// checkBack: no source's position goes back. It may be left out once its
// checkpoint has reached it (rule 10).
func checkBack(s *chunkStep) string {
	if s.prev == nil || s.c.Sealed {
		return ""
	}
	for _, old := range s.prev.Positions {
		now := s.c.PositionOf(old.Source)
		switch {
		case now.At == (topic.Position{}):
			if at, ok := s.passed(old.Source, old.At); !ok {
				return fmt.Sprintf("source %s was at %s and is left out, but its checkpoint is %s", old.Source, old.At, shown(at))
			}
		case old.At.After(now.At):
			return fmt.Sprintf("source %s goes back from %s to %s", old.Source, old.At, now.At)
		}
	}
	return ""
}

// checkForeign: a chunk moves the position of its own source and of no other.
func checkForeign(s *chunkStep) string {
	if s.prev == nil || s.c.Sealed {
		return ""
	}
	for _, now := range s.c.Positions {
		old := s.prev.PositionOf(now.Source)
		switch {
		case now.Source == s.c.Source:
		case now.At.After(old.At):
			return fmt.Sprintf("source %s moves from %s to %s, but no record here is of it", now.Source, old.At, now.At)
		case now.At == old.At && !now.Time.Equal(old.Time):
			return fmt.Sprintf("the time of source %s moves from %s to %s, but no record here is of it", now.Source, stamp(old.Time), stamp(now.Time))
		}
	}
	return ""
}

func checkNothingAfter(s *chunkStep) string {
	if s.prev != nil && s.prev.Sealed {
		return fmt.Sprintf("it follows the seal of the segment, %s", path.Base(s.prev.Entry.Path))
	}
	return ""
}

// chunk checks one entry of a segment: its attributes, its bytes, its records.
func (v *verifier) chunk(ctx context.Context, s *segmentState, e commitlog.Entry) error {
	c, err := attributes(e)
	at := place{e.Path, s.ID, c.Base}
	run(v, v.checks.attributes, at, err)
	if err != nil {
		v.broken, s.prev = true, nil
		return nil //nolint:nilerr // it is in the report: what is wrong with the data is no error
	}
	run(v, v.checks.chunk, at, &chunkStep{s, c, func(source string, at topic.Position) (topic.Position, bool) {
		return v.passed(ctx, source, at)
	}})
	if err := v.arrived(ctx, s, c); err != nil {
		return err
	}
	if !c.Sealed {
		v.report.Chunks++
		v.report.Bytes += c.Bytes
		s.bytes += c.Bytes
		if err := v.records(ctx, s, c, at); err != nil {
			return err
		}
	} else if floors, err := levelsOf(c.Floors); err == nil {
		v.ended[s.ID] = ending{s.Live, inherit(s.Range, []levels{floors}), c.Last}
	}
	s.take(c)
	s.prev = &c
	return v.err
}

// arrived notes what is not known of the records before a chunk: those that were
// trimmed, unless data files have them.
func (v *verifier) arrived(ctx context.Context, s *segmentState, c segment.Chunk) error {
	if c.Entry.N == 0 {
		s.first = &c
	}
	if !s.trimmed || s.prev != nil {
		return nil
	}
	if s.manifest == nil {
		var err error
		if s.manifest, err = v.loadManifest(ctx, s.ID); err != nil {
			return err
		}
	}
	if s.manifest == nil || s.manifest.err != nil || s.manifest.Base > 0 {
		v.trimmed(c)
	}
	return nil
}

// take notes how far a chunk has taken its source in. Of a trimmed segment it is
// the first to tell of all sources.
func (s *segmentState) take(c segment.Chunk) {
	for _, p := range c.Positions {
		if p.Source == c.Source || s.trimmed && s.prev == nil {
			s.taken[p.Source] = s.taken[p.Source].Max(p.At)
		}
	}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
