package record

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Rec tells where a record of a set lies in its Data, and what the worker needs
// to know of it. It stays as small as it is: a flush has some 100,000 of them.
type Rec struct {
	Off, Len uint32
	Slot     topic.Slot
	// HasRef: the record is accepted, and its payload is a reference.
	HasRef bool
	// Pending says of a record with HasRef that its object was not verified. The
	// set's owner sets it: nothing here looks at objects.
	Pending bool
	Pos     topic.Position
	Time    int64 // append time, unix microseconds
}

// Set is encoded records on their way to chunks. The zero value is ready, and
// [Set.Reset] makes it so again with its memory kept. Recs may be cut, filtered
// and reordered by its owner: they, and not Data, say what the set holds. Data
// is at most 4 GiB. Not for concurrent use.
type Set struct {
	Data []byte
	Recs []Rec
}

// Reset empties the set and keeps its memory.
func (s *Set) Reset() { s.Data, s.Recs = s.Data[:0], s.Recs[:0] }

// Append encodes r into the set. What cannot be encoded is an *[InvalidError],
// and the set is as it was. But a refused message must find its place whatever it
// holds: of a rejected record the reason and the header names are made valid
// UTF-8 and cut to [MaxText], and headers over [MaxHeaders] are left out.
func (s *Set) Append(r *Record, slot topic.Slot) error {
	off := len(s.Data)
	if uint64(off)+2*MaxRecord > math.MaxUint32 {
		return s.appendLast(r, slot)
	}
	data, err := appendRecord(s.Data, r)
	if err != nil {
		return err
	}
	s.Data = data
	s.Recs = append(s.Recs, Rec{
		Off: uint32(off), Len: uint32(len(data) - off), Slot: slot, HasRef: r.Ref != nil && r.Rejected == "",
		Pos: r.Position, Time: r.Time.UnixMicro(),
	})
	return nil
}

// appendLast is Append where the limit is near: it does not grow Data before it
// knows the record's size.
func (s *Set) appendLast(r *Record, slot topic.Slot) error {
	var one Set
	if err := one.Append(r, slot); err != nil {
		return err
	}
	return s.Copy(&one, one.Recs[0])
}

// Copy appends the record rec of from to s, with its marks. On an error the set is
// as it was.
func (s *Set) Copy(from *Set, rec Rec) error {
	src, err := from.bytes(rec)
	if err != nil {
		return err
	}
	if uint64(len(s.Data))+uint64(rec.Len) > math.MaxUint32 {
		return ErrSetFull
	}
	rec.Off = uint32(len(s.Data))
	s.Data = append(s.Data, src...)
	s.Recs = append(s.Recs, rec)
	return nil
}

// bytes is the encoded record rec.
func (s *Set) bytes(rec Rec) ([]byte, error) {
	end := uint64(rec.Off) + uint64(rec.Len)
	if end > uint64(len(s.Data)) {
		return nil, outOfSet(rec, s)
	}
	return s.Data[rec.Off:end], nil
}

// Records decodes the set. The records share no memory with it.
func (s *Set) Records() ([]Record, error) {
	recs := make([]Record, len(s.Recs))
	c := cursor{names: map[string]string{}}
	for i, rec := range s.Recs {
		if err := s.decode(&c, rec, &recs[i]); err != nil {
			return nil, err
		}
	}
	return recs, nil
}

// Record decodes the record that Recs[i] tells of. It shares no memory with the
// set. An error tells that Recs[i] does not point to a record.
func (s *Set) Record(i int) (Record, error) {
	var r Record
	if err := s.decode(&cursor{}, s.Recs[i], &r); err != nil {
		return Record{}, err
	}
	return r, nil
}

func (s *Set) decode(c *cursor, rec Rec, r *Record) error {
	data, err := s.bytes(rec)
	if err != nil {
		return err
	}
	c.data, c.pos = slices.Clone(data), 0
	c.record(r)
	return c.endOfRecord(rec)
}

// endOfRecord checks that a record of a set was sound and used up its bytes.
func (c *cursor) endOfRecord(rec Rec) error {
	if c.err == nil && c.pos != len(c.data) {
		c.fail("%d bytes follow", len(c.data)-c.pos)
	}
	if c.err != nil {
		return &FormatError{fmt.Sprintf("record %s: %s", rec.Pos, c.err.What), int(rec.Off) + c.err.Offset}
	}
	return nil
}

func outOfSet(rec Rec, s *Set) error {
	return fmt.Errorf("record %s at %d+%d does not lie in the %d bytes of its set", rec.Pos, rec.Off, rec.Len, len(s.Data))
}

// AppendBatch splices the records of a batch into the set without decoding
// their values; row numbers count from 0. slotOf maps each to its slot; its key
// is nil if the record has none, and is valid during the call only. The batch is
// checked in full: on an error, which matches [ErrFormat] if the payload or the
// codec is at fault, the set is as it was. The payload is not kept.
func (s *Set) AppendBatch(m Meta, codec string, payload []byte, slotOf func(p topic.Position, key []byte) topic.Slot) (rows int, err error) {
	scratch := getBuffer()
	defer putBuffer(scratch)
	rows, data, err := openBatch(scratch, codec, payload)
	if err != nil {
		return 0, err
	}
	nData, nRecs := len(s.Data), len(s.Recs)
	if err := s.splice(m, rows, data, slotOf); err != nil {
		s.Data, s.Recs = s.Data[:nData], s.Recs[:nRecs]
		return 0, err
	}
	return rows, nil
}

// prefix is the prefix of a batch's records without the rows.
type prefix struct{ source, verdict []byte }

func (m Meta) prefix() (p prefix, err error) {
	t, err := microsOf("time", m.Time)
	if err != nil {
		return p, err
	}
	if p.source, err = appendSource(nil, t, m.Sequence); err != nil {
		return p, err
	}
	p.verdict, err = appendVerdict(nil, m.ID, "")
	return p, err
}

func (s *Set) splice(m Meta, rows int, data []byte, slotOf func(topic.Position, []byte) topic.Slot) error {
	p, err := m.prefix()
	if err != nil {
		return err
	}
	room := len(data) + rows*(len(p.source)+binary.MaxVarintLen32+len(p.verdict))
	if uint64(len(s.Data))+uint64(room) > math.MaxUint32 {
		return ErrSetFull
	}
	dst, recs := slices.Grow(s.Data, room), slices.Grow(s.Recs, rows)
	micros := m.Time.UnixMicro()
	c := cursor{data: data}
	for row := range rows {
		start := c.pos
		key, ref := c.message(nil)
		if c.err != nil {
			return rowError(row, c.err)
		}
		off := len(dst)
		dst = append(dst, p.source...)
		dst = binary.AppendVarint(dst, int64(row))
		dst = append(dst, p.verdict...)
		dst = append(dst, data[start:c.pos]...)
		pos := topic.Position{Sequence: m.Sequence, Row: uint32(row)}
		recs = append(recs, Rec{
			Off: uint32(off), Len: uint32(len(dst) - off), Slot: slotOf(pos, key), HasRef: ref, Pos: pos, Time: micros,
		})
	}
	if err := c.endOfBatch(rows); err != nil {
		return err
	}
	s.Data, s.Recs = dst, recs
	return nil
}
