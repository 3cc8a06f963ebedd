// Package topic is the pure model of a topic: names, slots, key ranges,
// positions, segments, layouts and edits, with the invariants that hold
// between them. It does no I/O and reads no clock.
package topic

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// Slots is the size of the key space: slots are 0..Slots-1.
const Slots = 1 << 16

// Slot is a place in the key space.
type Slot uint16

// SlotOf maps a partition key to its slot: the top 16 bits of its xxhash64.
func SlotOf(key []byte) Slot { return Slot(xxhash.Sum64(key) >> 48) }

// SpreadSlot is the slot of a record that has no usable key. It depends on
// where the record stands in its source and on nothing else, so that every
// rerun puts it in the same place.
func SpreadSlot(source string, p Position) Slot {
	b := make([]byte, 0, 64)
	b = append(b, source...)
	b = binary.BigEndian.AppendUint64(b, p.Sequence)
	b = binary.BigEndian.AppendUint32(b, p.Row)
	return SlotOf(b)
}

// Range is the key range [Lo, Hi) of slots; Hi goes up to [Slots].
type Range struct {
	Lo uint32 `json:"lo"`
	Hi uint32 `json:"hi"`
}

// Full is the whole key space.
var Full = Range{0, Slots}

// Contains tells whether s lies in r.
func (r Range) Contains(s Slot) bool { return r.Lo <= uint32(s) && uint32(s) < r.Hi }

// Covers tells whether all of o lies in r.
func (r Range) Covers(o Range) bool { return r.Lo <= o.Lo && o.Hi <= r.Hi }

// Overlaps tells whether r and o share a slot.
func (r Range) Overlaps(o Range) bool { return r.Lo < o.Hi && o.Lo < r.Hi }

// Valid tells whether r is not empty and lies in the key space.
func (r Range) Valid() bool { return r.Lo < r.Hi && r.Hi <= Slots }

// Size is the number of slots in r.
func (r Range) Size() uint32 { return r.Hi - r.Lo }

// String gives "[lo,hi)".
func (r Range) String() string { return fmt.Sprintf("[%d,%d)", r.Lo, r.Hi) }

// Position says how far a source has been taken in: the sequence number of a
// message and the row of a record in it (rows count from 0). The zero value
// lies before everything, since sequences start at 1.
type Position struct {
	Sequence uint64
	Row      uint32
}

// LastRow as a Position's row means "the whole message".
const LastRow = 1<<32 - 1

// MaxRow is the highest row that a record can have: FORMAT, "Chunk files".
const MaxRow = 1<<31 - 1

// Whole is the position of everything up to and including message seq.
func Whole(seq uint64) Position {
	if seq == 0 {
		return Position{}
	}
	return Position{seq, LastRow}
}

// Compare orders positions: -1, 0 or +1.
func (p Position) Compare(o Position) int {
	switch {
	case p.Sequence < o.Sequence || p.Sequence == o.Sequence && p.Row < o.Row:
		return -1
	case p == o:
		return 0
	}
	return 1
}

// After tells whether p lies strictly above o.
func (p Position) After(o Position) bool { return p.Compare(o) > 0 }

// Max returns the higher of the two.
func (p Position) Max(o Position) Position {
	if o.After(p) {
		return o
	}
	return p
}

// String gives "sequence:row", or "sequence" for a whole message.
func (p Position) String() string {
	if p.Row == LastRow && p.Sequence > 0 {
		return strconv.FormatUint(p.Sequence, 10)
	}
	return fmt.Sprintf("%d:%d", p.Sequence, p.Row)
}

// ParsePosition reads what [Position.String] writes.
func ParsePosition(s string) (Position, error) {
	seq, row, found := strings.Cut(s, ":")
	n, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		return Position{}, fmt.Errorf("position %q: want sequence:row", s)
	}
	if !found {
		return Whole(n), nil
	}
	r, err := strconv.ParseUint(row, 10, 32)
	if err != nil {
		return Position{}, fmt.Errorf("position %q: want sequence:row", s)
	}
	return Position{n, uint32(r)}, nil
}

// MarshalText makes positions strings in JSON.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is the inverse of MarshalText.
func (p *Position) UnmarshalText(b []byte) (err error) {
	*p, err = ParsePosition(string(b))
	return err
}
