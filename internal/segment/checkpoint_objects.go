package segment

import (
	"cmp"
	"container/list"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
)

// Limits of the object table. An object counts for the ObjectDistance lane
// messages after the one that brought its last event, as long as it is one of the
// MaxObjects objects whose last events came last.
const (
	ObjectDistance = 4096
	MaxObjects     = 4096
	MaxSequencer   = 32 // bytes
)

// Object is one row of the object table: the highest sequencer of the S3 events of
// an object that were taken, and where the event with it stands in the lane.
type Object struct {
	ID        uint64 // by ObjectID
	Sequencer string // its bytes, which compare as sequencers do; at most MaxSequencer
	At        uint64
}

// ObjectID stands for an object of a topic in the table: the first 8 bytes of a
// SHA-256. If two objects that the table holds at the same time had the same one,
// events of one would be judged by the sequencers of the other; with MaxObjects of
// them that is one event in 4·10¹⁵.
func ObjectID(topic, bucket, key, version string) uint64 {
	h := sha256.New()
	for _, part := range []string{topic, bucket, key, version} {
		_, _ = h.Write([]byte(part)) // never fails
		_, _ = h.Write([]byte{0})    // none of them has this byte
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// Forgotten tells whether an object no longer counts for the message at seq. It
// is asked instead of looking whether the row is still there, as for a [Producer].
func (o Object) Forgotten(seq uint64) bool { return seq > o.At+ObjectDistance }

// ObjectOrder is what the table says of an event.
type ObjectOrder int

// The orders of an event.
const (
	ObjectNewest    ObjectOrder = iota // nothing is known of its object, or nothing as new
	ObjectDuplicate                    // it is the newest that is known
	ObjectLate                         // a newer one is known
)

// ObjectTable is the table at work: rows in the order in which they were taken. It
// is a pure function of what was taken: rows that are forgotten by their distance
// are always the oldest, so that it makes no difference when they are evicted, and
// a table that starts with the rows of another goes on as that one would. Not for
// concurrent use.
type ObjectTable struct {
	order list.List // of Object
	rows  map[uint64]*list.Element
}

// NewObjectTable returns a table with rows, oldest first.
func NewObjectTable(rows ObjectRows) *ObjectTable {
	t := &ObjectTable{rows: make(map[uint64]*list.Element, len(rows))}
	for _, o := range rows {
		t.Take(o)
	}
	return t
}

// Order says how an event stands to those of its object that were taken.
func (t *ObjectTable) Order(o Object) ObjectOrder {
	row := t.rows[o.ID]
	if row == nil {
		return ObjectNewest
	}
	last := row.Value.(Object)
	switch c := cmp.Compare(o.Sequencer, last.Sequencer); {
	case last.Forgotten(o.At), c > 0:
		return ObjectNewest
	case c == 0:
		return ObjectDuplicate
	}
	return ObjectLate
}

// Take notes an event, which is the newest of its object. Events are taken in the
// order of the lane.
func (t *ObjectTable) Take(o Object) {
	if old := t.rows[o.ID]; old != nil {
		t.order.Remove(old)
	}
	t.rows[o.ID] = t.order.PushBack(o)
	if t.order.Len() > MaxObjects {
		oldest := t.order.Remove(t.order.Front()).(Object)
		delete(t.rows, oldest.ID)
	}
}

// Rows lists the table, oldest first. A nil table has none.
func (t *ObjectTable) Rows() ObjectRows {
	if t == nil {
		return nil
	}
	rows := make(ObjectRows, 0, t.order.Len())
	for e := t.order.Front(); e != nil; e = e.Next() {
		rows = append(rows, e.Value.(Object))
	}
	return rows
}

// WithObjects returns the checkpoint with the events that were taken on the way to
// it since the one before, oldest first.
func (c Checkpoint) WithObjects(taken ObjectRows) Checkpoint {
	if len(taken) > 0 {
		t := NewObjectTable(c.Objects)
		for _, o := range taken {
			t.Take(o)
		}
		c.Objects = t.Rows()
	}
	c.Objects = c.Objects.after(c.Sequence)
	return c
}

// ObjectRows is the object table as checkpoints hold it, oldest row first. In JSON
// it is one string: base64, of each row its ID (8 bytes), the length of its
// sequencer, the sequencer, and how much its At is above that of the row before,
// numbers as in encoding/binary's Uvarint.
type ObjectRows []Object

// after leaves out what is forgotten after a message. The rows are not changed.
func (rows ObjectRows) after(seq uint64) ObjectRows {
	n := slices.IndexFunc(rows, func(o Object) bool { return !o.Forgotten(seq + 1) })
	if n < 0 {
		return nil
	}
	return rows[n:]
}

// Until returns the rows for a source that goes on after a message: what stood above
// it counts as if it stood there.
func (rows ObjectRows) Until(seq uint64) ObjectRows {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].At = min(rows[i].At, seq)
	}
	return rows
}

// MarshalText encodes the rows.
func (rows ObjectRows) MarshalText() ([]byte, error) {
	var b []byte
	last := uint64(0)
	for _, o := range rows {
		if len(o.Sequencer) > MaxSequencer || o.At < last {
			return nil, fmt.Errorf("object %016x at %d, after %d, with a sequencer of %d bytes: out of order or too long", o.ID, o.At, last, len(o.Sequencer))
		}
		b = binary.BigEndian.AppendUint64(b, o.ID)
		b = binary.AppendUvarint(b, uint64(len(o.Sequencer)))
		b = append(b, o.Sequencer...)
		b = binary.AppendUvarint(b, o.At-last)
		last = o.At
	}
	return base64.StdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText is the inverse of MarshalText.
func (rows *ObjectRows) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("object table: %w", err)
	}
	var all ObjectRows
	seen := map[uint64]bool{}
	for last := uint64(0); len(b) > 0; {
		var o Object
		if o, b, err = cutObject(b, last); err != nil {
			return fmt.Errorf("object table, row %d: %w", len(all), err)
		}
		if seen[o.ID] || len(all) == MaxObjects {
			return fmt.Errorf("object table, row %d: object %016x is there twice, or there are more than %d", len(all), o.ID, MaxObjects)
		}
		seen[o.ID], last = true, o.At
		all = append(all, o)
	}
	*rows = all
	return nil
}

// cutObject reads one row, and returns what follows.
func cutObject(b []byte, last uint64) (o Object, rest []byte, err error) {
	const idSize = 8
	cut := fmt.Errorf("it is cut off or damaged %d bytes before the end", len(b))
	if len(b) < idSize {
		return o, nil, cut
	}
	o.ID = binary.BigEndian.Uint64(b)
	length, n := binary.Uvarint(b[idSize:])
	if b = b[idSize+max(n, 0):]; n <= 0 || length > MaxSequencer || length > uint64(len(b)) {
		return o, nil, cut
	}
	o.Sequencer = string(b[:length])
	step, n := binary.Uvarint(b[length:])
	if o.At = last + step; n <= 0 || o.At < last {
		return o, nil, cut
	}
	return o, b[length+uint64(n):], nil
}
