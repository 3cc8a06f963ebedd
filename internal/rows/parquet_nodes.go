package rows

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

type nodeKind byte

const (
	leafNode  nodeKind = iota
	groupNode          // an object
	listNode           // an array
	mapNode            // an object whose members' names are values
)

// node is a field of a Parquet schema: how to put its columns' entries together. A
// field is there if its first column's entry is defined at least as deep as it is.
type node struct {
	kind     nodeKind
	label    []byte
	optional bool  // it can be null
	def      int16 // how deep it is defined
	// Of what repeats, in a list or map: an element's depths.
	elementDef, elementRep int16
	from, to               int     // its columns
	kids                   []*node // of a list the element, of a map key and value
}

// nodeBuilder makes the nodes of a schema in the order of its columns.
type nodeBuilder struct{ columns int }

// field makes the node of a field inside of what has the depths def and rep.
func (b *nodeBuilder) field(f schema.Node, def, rep int16) (*node, error) {
	switch f.RepetitionType() {
	case parquet.Repetitions.Optional:
		n, err := b.body(f, def+1, rep)
		if n != nil {
			n.optional = true
		}
		return n, err
	case parquet.Repetitions.Repeated: // a list without the groups around
		element, err := b.body(f, def+1, rep+1)
		if err != nil {
			return nil, err
		}
		return &node{
			kind: listNode, label: memberLabel(f.Name()), def: def, elementDef: def + 1, elementRep: rep + 1,
			from: element.from, to: element.to, kids: []*node{element},
		}, nil
	}
	return b.body(f, def, rep)
}

// body makes the node of a field, whether or not it is optional or repeated.
func (b *nodeBuilder) body(f schema.Node, def, rep int16) (*node, error) {
	n := &node{kind: leafNode, label: memberLabel(f.Name()), def: def, from: b.columns}
	group, ok := f.(*schema.GroupNode)
	if !ok {
		b.columns++
		n.to = b.columns
		return n, nil
	}
	if group.NumFields() == 0 {
		return nil, fmt.Errorf("the group %q has no fields", f.Path())
	}
	repeated := repeatedField(group)
	var err error
	switch {
	case repeated != nil && isList(f):
		n.kind, n.elementDef, n.elementRep = listNode, def+1, rep+1
		n.kids, err = b.element(f, repeated, def+1, rep+1)
	case repeated != nil && isMap(f, repeated):
		n.kind, n.elementDef, n.elementRep = mapNode, def+1, rep+1
		n.kids, err = b.fields(repeated.(*schema.GroupNode), def+1, rep+1)
	default:
		n.kind = groupNode
		n.kids, err = b.fields(group, def, rep)
	}
	n.to = b.columns
	return n, err
}

func (b *nodeBuilder) fields(group *schema.GroupNode, def, rep int16) ([]*node, error) {
	kids := make([]*node, group.NumFields())
	for i := range kids {
		var err error
		if kids[i], err = b.field(group.Field(i), def, rep); err != nil {
			return nil, err
		}
	}
	return kids, nil
}

// element makes the node of a list's elements. In the standard form the repeated
// field is a group around the element; in older ones it is the element itself. This
// follows the format's "backward-compatibility rules".
func (b *nodeBuilder) element(list, repeated schema.Node, def, rep int16) ([]*node, error) {
	group, ok := repeated.(*schema.GroupNode)
	if ok && group.NumFields() == 1 && group.Field(0).RepetitionType() != parquet.Repetitions.Repeated &&
		group.Name() != "array" && group.Name() != list.Name()+"_tuple" {
		n, err := b.field(group.Field(0), def, rep)
		return []*node{n}, err
	}
	n, err := b.body(repeated, def, rep)
	return []*node{n}, err
}

// repeatedField is the only field of a group, if it is repeated.
func repeatedField(group *schema.GroupNode) schema.Node {
	if group.NumFields() != 1 || group.Field(0).RepetitionType() != parquet.Repetitions.Repeated {
		return nil
	}
	return group.Field(0)
}

func isList(f schema.Node) bool {
	_, ok := f.LogicalType().(schema.ListLogicalType)
	return ok || f.ConvertedType() == schema.ConvertedTypes.List
}

// isMap tells if a field is a map: one repeated group of a key, which is a plain
// value, and mostly a value.
func isMap(f, repeated schema.Node) bool {
	_, ok := f.LogicalType().(schema.MapLogicalType)
	if !ok && f.ConvertedType() != schema.ConvertedTypes.Map && f.ConvertedType() != schema.ConvertedTypes.MapKeyValue {
		return false
	}
	pair, ok := repeated.(*schema.GroupNode)
	if !ok || pair.NumFields() < 1 || pair.NumFields() > 2 {
		return false
	}
	key := pair.Field(0)
	return key.Type() == schema.Primitive && key.RepetitionType() != parquet.Repetitions.Repeated
}

// errLevels tells that columns of one group, list or map do not agree about it.
var errLevels = errors.New("its levels contradict those of the columns beside it")

// write writes the node's part of a row and goes on to the next in all of its
// columns.
func (n *node) write(t *rowText, columns []*column) error {
	first := columns[n.from]
	if err := first.peek(); err != nil {
		return err
	}
	if first.defined() < n.def {
		if !n.optional {
			return first.err(errLevels)
		}
		t.raw("null")
		return n.absent(columns, n.def)
	}
	switch n.kind {
	case listNode, mapNode:
		return n.writeRepeated(t, columns)
	case groupNode:
		return n.writeGroup(t, columns)
	}
	first.values.write(t, first.value)
	first.next()
	return nil
}

func (n *node) writeGroup(t *rowText, columns []*column) error {
	t.raw("{")
	for i, kid := range n.kids {
		t.label(i, kid.label)
		if err := kid.write(t, columns); err != nil {
			return err
		}
	}
	t.raw("}")
	return nil
}

func (n *node) writeRepeated(t *rowText, columns []*column) error {
	brackets := [...]string{"[", "]"}
	if n.kind == mapNode {
		brackets = [...]string{"{", "}"}
	}
	t.raw(brackets[0])
	first := columns[n.from]
	if first.defined() < n.elementDef {
		t.raw(brackets[1])
		return n.absent(columns, n.elementDef)
	}
	for i := 0; ; i++ {
		if i > 0 {
			t.raw(",")
		}
		if err := n.writeElement(t, columns); err != nil {
			return err
		}
		if more, err := n.more(columns); !more || err != nil {
			t.raw(brackets[1])
			return err
		}
	}
}

// more tells if another element follows, which all columns must agree about.
func (n *node) more(columns []*column) (bool, error) {
	more := false
	for i, c := range columns[n.from:n.to] {
		depth, err := c.repeats()
		if err != nil {
			return false, err
		}
		if i > 0 && more != (depth >= n.elementRep) || depth > n.elementRep {
			return false, c.err(errLevels)
		}
		more = depth >= n.elementRep
	}
	return more, nil
}

func (n *node) writeElement(t *rowText, columns []*column) error {
	if n.kind == listNode {
		return n.kids[0].write(t, columns)
	}
	start := len(t.b)
	if err := n.kids[0].write(t, columns); err != nil {
		return err
	}
	t.key(start)
	if len(n.kids) == 1 {
		t.raw("null")
		return nil
	}
	return n.kids[1].write(t, columns)
}

// absent passes over what is not there: one entry in each column, defined less deep.
func (n *node) absent(columns []*column, def int16) error {
	for _, c := range columns[n.from:n.to] {
		if err := c.peek(); err != nil {
			return err
		}
		if c.defined() >= def {
			return c.err(errLevels)
		}
		c.next()
	}
	return nil
}
