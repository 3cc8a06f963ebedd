package record

import "math"

// Refuse makes the record that Recs[i] tells of a refused one: reason is why, made
// valid UTF-8 and cut to [MaxText]. Place, slot, id, time and the bytes of its
// message stay as they are, also a reference that is in them. What is refused
// already stays as it is.
//
// The record is encoded anew behind the others, so what was made of the set before
// (a chunk, copies) does not know of it. Errors are those of [Set.Append], and those
// of [Set.Record]; the set is then as it was.
func (s *Set) Refuse(i int, reason string) error {
	if reason == "" {
		return invalid("rejected", "a reason is needed")
	}
	rec := s.Recs[i]
	src, err := s.bytes(rec)
	if err != nil {
		return err
	}
	c := cursor{data: src}
	c.origin(nil)
	origin := c.pos
	refused := c.reason() != nil
	message := c.pos
	c.message(nil)
	if err := c.endOfRecord(rec); err != nil || refused {
		return err
	}
	verdict, err := appendReason(nil, reason)
	if err != nil {
		return err
	}
	n := len(src) + len(verdict) - (message - origin)
	if n > MaxRecord {
		return invalid("record", "it has %d bytes, at most %d are allowed", n, MaxRecord)
	}
	off := len(s.Data)
	if uint64(off)+uint64(n) > math.MaxUint32 {
		return ErrSetFull
	}
	s.Data = append(s.Data, src[:origin]...)
	s.Data = append(s.Data, verdict...)
	s.Data = append(s.Data, src[message:]...)
	rec.Off, rec.Len, rec.HasRef, rec.Pending = uint32(off), uint32(n), false, false
	s.Recs[i] = rec
	return nil
}
