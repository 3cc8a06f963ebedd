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
	topic.Segment
	key     topic.Key
	trimmed bool // chunks before the first were deleted
	// prev is the chunk before, the zero Chunk before the first, nil where it
	// is not known.
	prev *segment.Chunk
	// taken is how far each source is taken in, by the chunks so far.
	taken map[string]topic.Position
}

// chunkRef names a chunk in conclusions about the whole topic.
type chunkRef struct {
	place
}

// segment reads and checks one segment.
func (v *verifier) segment(ctx context.Context, h *history, c child) error {
	described, err := v.describedAs(ctx, c)
	if err != nil {
		return err
	}
	s := &segmentState{Segment: described, key: v.topic.Key, prev: &segment.Chunk{}, taken: map[string]topic.Position{}}
	v.report.Segments++
	log := commitlog.New(v.store.Filer, v.segmentDir(c.ID), ".avro")
	for l, err := range v.walk(ctx, log, ".avro", place{segment: c.ID}) {
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
	if s.prev == nil {
		return nil // its last entry could not be read
	}
	return v.end(ctx, h, c.ID, s.prev.Sealed)
}

// arrive notes what is not known where entries are missing, or trimmed.
func (s *segmentState) arrive(l link) {
	if l.e.N != l.expect || l.prev == nil && l.e.N > 0 {
		s.prev = nil
	}
	if l.prev == nil && l.expect > 0 {
		s.trimmed = true
	}
}

// chunkStep is a chunk's attributes with what comes before.
type chunkStep struct {
	*segmentState
	c segment.Chunk
	// checkpoint reads the checkpoint of a source as it is now.
	checkpoint func(source string) uint64
}

func checkBase(s *chunkStep) string {
	if s.prev == nil || s.c.Base == s.prev.End() {
		return ""
	}
	return fmt.Sprintf("it starts at offset %d, the chunk before ends at %d", s.c.Base, s.prev.End())
}

func checkEmpty(s *chunkStep) string {
	if s.c.Sealed || s.c.Count > 0 {
		return ""
	}
	return "it has no records and is no seal"
}

// checkTimes: append times never go back from chunk to chunk (rule 39).
func checkTimes(s *chunkStep) string {
	switch {
	case s.prev == nil:
		return ""
	case s.c.First.Before(s.prev.Last):
		return fmt.Sprintf("its first time %s is before the last one of the chunk before, %s", stamp(s.c.First), stamp(s.prev.Last))
	case s.c.Last.Before(s.prev.Last):
		return fmt.Sprintf("its last time %s is before that of the chunk before, %s", stamp(s.c.Last), stamp(s.prev.Last))
	}
	return ""
}

// checkBack: no source's position goes back. It may be left out once its
// checkpoint has reached it (rule 10).
func checkBack(s *chunkStep) string {
	if s.prev == nil {
		return ""
	}
	for _, old := range s.prev.Positions {
		now := s.c.PositionOf(old.Source)
		switch {
		case now.At == (topic.Position{}):
			if at := s.checkpoint(old.Source); old.At.After(topic.Whole(at)) {
				return fmt.Sprintf("source %s was at %s and is left out, but its checkpoint is %d", old.Source, old.At, at)
			}
		case old.At.After(now.At):
			return fmt.Sprintf("source %s goes back from %s to %s", old.Source, old.At, now.At)
		}
	}
	return ""
}

// checkForeign: a chunk moves the position of its own source and of no other. A
// seal moves none, but composes them with the floors (rule 11).
func checkForeign(s *chunkStep) string {
	if s.prev == nil {
		return ""
	}
	for _, now := range s.c.Positions {
		if now.Source == s.c.Source || !now.At.After(s.prev.PositionOf(now.Source).At) {
			continue
		}
		if s.c.Sealed && s.isFloor(now.Source, now.At) {
			continue
		}
		return fmt.Sprintf("source %s moves from %s to %s, but no record here is of it", now.Source, s.prev.PositionOf(now.Source).At, now.At)
	}
	return ""
}

func (s *segmentState) isFloor(source string, at topic.Position) bool {
	for _, f := range s.Floors {
		if f.Source == source && f.At == at {
			return true
		}
	}
	return false
}

func checkNothingAfter(s *chunkStep) string {
	if s.prev != nil && s.prev.Sealed {
		return fmt.Sprintf("it follows the seal of the segment, %s", path.Base(s.prev.Entry.Path))
	}
	return ""
}

func checkSealContent(s *chunkStep) string {
	if s.c.Sealed && (s.c.Count != 0 || s.c.Bytes != 0 || s.c.Entry.Size != 0) {
		return fmt.Sprintf("a seal has no records, but this one says %d in %d bytes, and its file has %d bytes", s.c.Count, s.c.Bytes, s.c.Entry.Size)
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
	run(v, v.checks.chunk, at, &chunkStep{s, c, func(source string) uint64 { return v.fresh(ctx, source) }})
	if !c.Sealed {
		v.report.Chunks++
		v.report.Bytes += c.Bytes
		if err := v.records(ctx, s, c, at); err != nil {
			return err
		}
		s.taken[c.Source] = s.taken[c.Source].Max(c.PositionOf(c.Source).At)
	}
	s.prev = &c
	return v.err
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
