package guard

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// The footer of a Parquet file is a structure in Thrift's compact encoding. The
// library takes memory for what the footer promises before it sees that it is not
// there, and up to a hundred times of what the footer is long. So it is walked over
// first, without taking any: what passes is in bounds.
const (
	// MaxFooter is the longest footer that is taken.
	MaxFooter        = 16 << 20 // bytes
	maxFooterStructs = 200_000  // about 4 for each column of a row group
	maxSchemaDepth   = 64       // groups in groups
	maxThriftDepth   = 24
)

// The types of Thrift's compact encoding.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// thriftKind is a structure of parquet.thrift, as far as it has lists or leads to
// some: the library reads a list by the type that it expects, whatever the list says,
// and would then read other bytes than were walked over.
type thriftKind struct {
	lists map[int16]byte        // the types of the lists' elements, by field
	kinds map[int16]*thriftKind // of structures, and of structures in lists
}

var (
	otherKind  = &thriftKind{}
	schemaKind = &thriftKind{}
	footerKind = &thriftKind{
		lists: map[int16]byte{2: thriftStruct, 4: thriftStruct, 5: thriftStruct, 7: thriftStruct},
		kinds: map[int16]*thriftKind{2: schemaKind, 4: {
			lists: map[int16]byte{1: thriftStruct, 4: thriftStruct},
			kinds: map[int16]*thriftKind{1: {kinds: map[int16]*thriftKind{3: columnKind, 8: cryptoKind}}},
		}},
	}
	columnKind = &thriftKind{
		lists: map[int16]byte{2: thriftI32, 3: thriftBinary, 8: thriftStruct, 13: thriftStruct},
		kinds: map[int16]*thriftKind{
			16: {lists: map[int16]byte{2: thriftI64, 3: thriftI64}}, // SizeStatistics
			17: {lists: map[int16]byte{2: thriftI32}},               // GeospatialStatistics
		},
	}
	offsetIndexKind = &thriftKind{lists: map[int16]byte{1: thriftStruct, 2: thriftI64}}
	columnIndexKind = &thriftKind{lists: map[int16]byte{1: thriftTrue, 2: thriftBinary, 3: thriftBinary, 5: thriftI64, 6: thriftI64, 7: thriftI64}}
	cryptoKind      = &thriftKind{kinds: map[int16]*thriftKind{2: {lists: map[int16]byte{1: thriftBinary}}}}
)

var errThriftCut = errors.New("it is cut off or damaged")

// thriftWalk walks over a footer.
type thriftWalk struct {
	b        []byte
	structs  int
	children []int32 // of each schema element that was met
}

// Footer tells whether a footer can be given to the library.
func Footer(b []byte) error {
	w := &thriftWalk{b: b}
	if err := w.structure(footerKind, 0); err != nil {
		return err
	}
	return w.schema()
}

// OffsetIndex tells whether the index of a column's pages can be given to the library.
func OffsetIndex(b []byte) error { return (&thriftWalk{b: b}).structure(offsetIndexKind, 0) }

// ColumnIndex tells whether the bounds of a column's pages can be given to the library.
func ColumnIndex(b []byte) error { return (&thriftWalk{b: b}).structure(columnIndexKind, 0) }

// schema checks that the elements' numbers of children fit together.
func (w *thriftWalk) schema() error {
	if len(w.children) == 0 {
		return errors.New("it has no schema")
	}
	var open []int32 // children to come, of each group around
	for i, n := range w.children {
		switch {
		case n < 0 || int64(n) >= int64(len(w.children)):
			return fmt.Errorf("a group of its schema has %d fields", n)
		case i > 0 && len(open) == 0:
			return errors.New("its schema has fields outside of the root")
		case len(open) > maxSchemaDepth:
			return fmt.Errorf("its schema has more than %d groups in each other", maxSchemaDepth)
		}
		if i > 0 {
			open[len(open)-1]--
		}
		if n > 0 {
			open = append(open, n)
		}
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return errors.New("its schema ends before its last field")
	}
	return nil
}

func (w *thriftWalk) structure(kind *thriftKind, depth int) error {
	if w.structs++; w.structs > maxFooterStructs {
		return fmt.Errorf("it has more than %d parts", maxFooterStructs)
	}
	if depth > maxThriftDepth {
		return errors.New("it is nested too deep")
	}
	if kind == schemaKind {
		w.children = append(w.children, 0)
	}
	last := int16(0)
	for {
		head, err := w.byte()
		if err != nil || head == 0 {
			return err
		}
		typ := head & 15
		if delta := int16(head >> 4); delta != 0 {
			last += delta
		} else {
			id, err := w.varint()
			if err != nil {
				return err
			}
			last = int16(int64(id>>1) ^ -int64(id&1))
		}
		if err := w.field(kind, last, typ, depth); err != nil {
			return err
		}
	}
}

func (w *thriftWalk) field(kind *thriftKind, id int16, typ byte, depth int) error {
	switch {
	case typ == thriftTrue || typ == thriftFalse:
		return nil
	case kind == schemaKind && id == 5 && typ == thriftI32:
		n, err := w.varint()
		w.children[len(w.children)-1] = int32(uint32(n)>>1) ^ -int32(n&1)
		return err
	case typ == thriftList && kind.lists[id] != 0:
		return w.list(kind.child(id), kind.lists[id], depth)
	}
	return w.value(kind.child(id), typ, depth)
}

func (k *thriftKind) child(id int16) *thriftKind {
	if c := k.kinds[id]; c != nil {
		return c
	}
	return otherKind
}

func (w *thriftWalk) value(kind *thriftKind, typ byte, depth int) error {
	switch typ {
	case thriftTrue, thriftFalse, thriftByte: // in a list a truth is a byte
		return w.skip(1)
	case thriftI16, thriftI32, thriftI64:
		_, err := w.varint()
		return err
	case thriftDouble:
		return w.skip(8)
	case thriftUUID:
		return w.skip(16)
	case thriftBinary:
		n, err := w.varint()
		if err != nil {
			return err
		}
		return w.skip(n)
	case thriftList, thriftSet:
		return w.list(kind, 0, depth)
	case thriftMap:
		return w.mapping(depth)
	case thriftStruct:
		return w.structure(kind, depth+1)
	}
	return errThriftCut
}

// list walks over a list whose elements must be of a type; 0: of any.
func (w *thriftWalk) list(kind *thriftKind, want byte, depth int) error {
	head, err := w.byte()
	if err != nil {
		return err
	}
	size, typ := uint64(head>>4), head&15
	if size == 15 {
		if size, err = w.varint(); err != nil {
			return err
		}
	}
	if typ == thriftFalse {
		typ = thriftTrue // either stands for the type in a list
	}
	if want != 0 && typ != want || size > uint64(len(w.b)) || depth > maxThriftDepth {
		return errThriftCut
	}
	for range size {
		if err := w.value(kind, typ, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *thriftWalk) mapping(depth int) error {
	size, err := w.varint()
	if err != nil || size == 0 {
		return err
	}
	types, err := w.byte()
	if err != nil {
		return err
	}
	if size > uint64(len(w.b)) || depth > maxThriftDepth {
		return errThriftCut
	}
	for range size {
		if err := w.value(otherKind, types>>4, depth+1); err != nil {
			return err
		}
		if err := w.value(otherKind, types&15, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *thriftWalk) byte() (byte, error) {
	if len(w.b) == 0 {
		return 0, errThriftCut
	}
	c := w.b[0]
	w.b = w.b[1:]
	return c, nil
}

func (w *thriftWalk) varint() (uint64, error) {
	v, n := binary.Uvarint(w.b)
	if n <= 0 {
		return 0, errThriftCut
	}
	w.b = w.b[n:]
	return v, nil
}

func (w *thriftWalk) skip(n uint64) error {
	if n > uint64(len(w.b)) {
		return errThriftCut
	}
	w.b = w.b[n:]
	return nil
}
