package verify

import (
	"fmt"

	"github.com/spillway-mq/spillway/internal/topic"
)

func checkSealContent(s *chunkStep) string {
	if s.c.Sealed && (s.c.Count != 0 || s.c.Bytes != 0 || s.c.Entry.Size != 0) {
		return fmt.Sprintf("a seal has no records, but this one says %d in %d bytes, and its file has %d bytes", s.c.Count, s.c.Bytes, s.c.Entry.Size)
	}
	return ""
}

// checkSealPositions: a seal repeats the positions of the chunk before it. One
// may be left out once its checkpoint has reached it (rule 10).
func checkSealPositions(s *chunkStep) string {
	if s.prev == nil || !s.c.Sealed {
		return ""
	}
	for _, old := range s.prev.Positions {
		if now := s.c.PositionOf(old.Source); now.At == (topic.Position{}) {
			if at, ok := s.passed(old.Source, old.At); !ok {
				return fmt.Sprintf("source %s was at %s and is left out, but its checkpoint is %s", old.Source, old.At, shown(at))
			}
		}
	}
	for _, now := range s.c.Positions {
		if old := s.prev.PositionOf(now.Source); now.At != old.At || !now.Time.Equal(old.Time) {
			return fmt.Sprintf("source %s is at %s of %s, in the chunk before it was at %s of %s",
				now.Source, now.At, stamp(now.Time), old.At, stamp(old.Time))
		}
	}
	return ""
}

// checkSealTime: everybody who makes an edit seals with the same time, that of
// its intent, or the one of the chunk before if that is later (rule 26).
func checkSealTime(s *chunkStep) string {
	if s.prev == nil || !s.c.Sealed || s.ended.IsZero() || checkTimes(s) != "" {
		return ""
	}
	want := s.ended
	if s.notBefore().After(want) {
		want = s.notBefore()
	}
	if s.c.First.Equal(want) && s.c.Last.Equal(want) {
		return ""
	}
	return fmt.Sprintf("its times are %s and %s, by the edit that ends the segment they are %s", stamp(s.c.First), stamp(s.c.Last), stamp(want))
}

// checkSealFloors: what a seal hands down is, slot by slot, the highest of its
// positions and of the segment's own floors, except what the checkpoint of the
// source had reached when it was sealed (rules 10 and 11).
func checkSealFloors(s *chunkStep) string {
	if !s.c.Sealed || s.floors == nil {
		return ""
	}
	got, err := levelsOf(s.c.Floors)
	if err != nil {
		return err.Error()
	}
	if detail := got.outside(s.Range); detail != "" {
		return detail
	}
	position := levels{}
	final := s.c.Positions
	if s.prev != nil {
		final = s.prev.Positions
	}
	for _, p := range final {
		position[p.Source] = []level{{s.Range, p.At, p.Time}}
	}
	for _, source := range sourcesOf(got, position, s.floors) {
		if detail := s.checkSealFloor(source, got[source], position[source]); detail != "" {
			return fmt.Sprintf("for source %s %s", source, detail)
		}
	}
	return ""
}

// checkSealFloor judges one source of a seal.
func (s *chunkStep) checkSealFloor(source string, got, position []level) string {
	var omitted, kept level // the highest left out, and the lowest that is there
	for own := range stretches(s.Range, s.floors[source], position) {
		want := own.a.higher(own.b)
		for x := range stretches(own.Range, []level{{own.Range, want.at, want.time}}, got) {
			switch {
			case x.b.at == topic.Position{}:
				x.a.Range, omitted = x.Range, omitted.higher(x.a)
			case !x.a.same(x.b):
				return fmt.Sprintf("in the slots %s it hands down %s, the segment has %s: %s", x.Range, x.b, x.a, consequence(x.b, x.a))
			case kept.at == topic.Position{} || kept.at.After(x.b.at):
				kept = x.b
			}
		}
	}
	if at, ok := s.passed(source, omitted.at); !ok {
		return fmt.Sprintf("in the slots %s it leaves out that the segment has %s, but the checkpoint is %s: records may come twice", omitted.Range, omitted, shown(at))
	}
	if kept.at != (topic.Position{}) && !kept.at.After(omitted.at) {
		return fmt.Sprintf("in the slots %s it leaves out that the segment has %s, but in %s it tells of %s: no checkpoint lies between",
			omitted.Range, omitted, kept.Range, kept)
	}
	return ""
}
