package rows

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/avro"
)

const (
	// maxAvroDepth is how deep the values of a row may be nested. Rows that go deeper
	// are rejected.
	maxAvroDepth = 128
	// mostAvroDepth is how deep the end of such a row is looked for.
	mostAvroDepth = 10_000
)

var errAvroDamaged = errors.New("it is damaged")

// avroData is a block's bytes.
type avroData struct {
	b  []byte
	at int
}

func (d *avroData) long() (int64, error) {
	v, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		return 0, fmt.Errorf("%w: a number is cut off or too long", errAvroDamaged)
	}
	d.at += n
	return int64(v>>1) ^ -int64(v&1), nil
}

func (d *avroData) take(n int64) ([]byte, error) {
	if n < 0 || n > int64(len(d.b)-d.at) {
		return nil, fmt.Errorf("%w: a value of %d bytes, and %d are left in the block", errAvroDamaged, n, len(d.b)-d.at)
	}
	v := d.b[d.at : d.at+int(n)]
	d.at += int(n)
	return v, nil
}

// bytes takes bytes with their length before them.
func (d *avroData) bytes() ([]byte, error) {
	n, err := d.long()
	if err != nil {
		return nil, err
	}
	return d.take(n)
}

// avroNode is a type of an Avro schema, and how a value of it becomes JSON. A type
// that refers to itself is a circle of nodes.
type avroNode struct {
	typ    string
	labels [][]byte    // of a record's fields
	kids   []*avroNode // of a record, an array, a map, a union
	names  []string    // of an enumeration
	size   int64       // of a fixed, and of what else has one
	empty  bool        // values take no bytes
	number func(t *rowText, v int64)
	text   func(t *rowText, v []byte)
}

// parseAvroSchema reads a schema. The library recovers nothing of what panics in it.
func parseAvroSchema(text []byte) (n *avroNode, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	if len(text) == 0 {
		return nil, errors.New("there is none")
	}
	schema, err := avro.Parse(string(text), avro.WithLaxNames(nil))
	if err != nil {
		return nil, err
	}
	c := avroCompiler{names: map[string]*avroNode{}}
	return c.node(schema.Root(), 0)
}

type avroCompiler struct{ names map[string]*avroNode }

func (c *avroCompiler) node(s *avro.SchemaNode, depth int) (*avroNode, error) {
	if depth > maxAvroDepth {
		return nil, fmt.Errorf("it has more than %d types in each other", maxAvroDepth)
	}
	if known := c.names[s.Type]; known != nil {
		return known, nil
	}
	n := &avroNode{typ: s.Type, size: int64(s.Size), names: s.Symbols}
	switch s.Type {
	case "record", "error", "enum", "fixed":
		c.names[fullName(s)] = n
	}
	var inner []*avro.SchemaNode
	switch s.Type {
	case "record", "error":
		n.typ, n.empty = "record", true
		for i := range s.Fields {
			n.labels = append(n.labels, memberLabel(s.Fields[i].Name))
			inner = append(inner, &s.Fields[i].Type)
		}
	case "array":
		inner = append(inner, s.Items)
	case "map":
		inner = append(inner, s.Values)
	case "union":
		for i := range s.Branches {
			inner = append(inner, &s.Branches[i])
		}
	case "null":
		n.empty = true
	case "fixed":
		n.empty = n.size == 0
		n.text = avroBytesText(s)
	case "bytes", "string":
		n.text = avroBytesText(s)
	case "int", "long":
		n.number = avroNumberText(s)
	case "boolean":
		n.size = 1
	case "float":
		n.size = 4
	case "double":
		n.size = 8
	case "enum":
	default:
		return nil, fmt.Errorf("the type %.80q is not known", s.Type)
	}
	for _, s := range inner {
		kid, err := c.node(s, depth+1)
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, kid)
		n.empty = n.empty && kid.empty && kid != n
	}
	return n, nil
}

func fullName(s *avro.SchemaNode) string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Namespace + "." + s.Name
}

// avroNumberText gives how an int or long looks.
func avroNumberText(s *avro.SchemaNode) func(*rowText, int64) {
	timestamp := func(digits int) func(*rowText, int64) {
		return func(t *rowText, v int64) { t.timestamp(v, digits) }
	}
	timeOfDay := func(digits int) func(*rowText, int64) {
		return func(t *rowText, v int64) { t.timeOfDay(v, digits) }
	}
	switch s.Type + " " + s.LogicalType {
	case "int date":
		return (*rowText).date
	case "int time-millis":
		return timeOfDay(3)
	case "long time-micros":
		return timeOfDay(6)
	case "long timestamp-millis", "long local-timestamp-millis":
		return timestamp(3)
	case "long timestamp-micros", "long local-timestamp-micros":
		return timestamp(6)
	case "long timestamp-nanos", "long local-timestamp-nanos":
		return timestamp(9)
	}
	return (*rowText).int
}

// avroBytesText gives how bytes, a fixed or a string look.
func avroBytesText(s *avro.SchemaNode) func(*rowText, []byte) {
	switch {
	case s.LogicalType == "decimal" && s.Type != "string" && s.Scale >= 0 && s.Scale <= maxDecimal:
		return func(t *rowText, v []byte) { t.decimalBytes(v, s.Scale) }
	case s.LogicalType == "uuid" && s.Type == "fixed" && s.Size == 16:
		return (*rowText).uuid
	case s.LogicalType == "duration" && s.Type == "fixed" && s.Size == 12:
		return durationText
	}
	return (*rowText).bytes
}

// root writes a row, which is an object: a value that is none becomes its member
// "value".
func (n *avroNode) root(t *rowText, d *avroData) error {
	branch := n
	if n.typ == "union" {
		var err error
		if branch, err = n.branch(d); err != nil {
			return err
		}
	}
	if branch.typ == "record" || branch.typ == "map" {
		return branch.write(t, d, 0)
	}
	t.raw(`{"value":`)
	if err := branch.write(t, d, 0); err != nil {
		return err
	}
	t.raw("}")
	return nil
}

func (n *avroNode) branch(d *avroData) (*avroNode, error) {
	i, err := d.long()
	if err != nil {
		return nil, err
	}
	if i < 0 || i >= int64(len(n.kids)) {
		return nil, fmt.Errorf("%w: a union of %d types has none with the number %d", errAvroDamaged, len(n.kids), i)
	}
	return n.kids[i], nil
}

// write writes one value. Errors mean that its end is not known.
func (n *avroNode) write(t *rowText, d *avroData, depth int) error {
	if depth > maxAvroDepth {
		t.fail("values are nested more than %d deep", maxAvroDepth)
		if depth > mostAvroDepth {
			return fmt.Errorf("%w: values are nested more than %d deep", errAvroDamaged, mostAvroDepth)
		}
	}
	if n.empty && t.why != "" {
		return nil // nothing to read, and nothing to write
	}
	switch n.typ {
	case "record":
		return n.writeRecord(t, d, depth)
	case "union":
		branch, err := n.branch(d)
		if err != nil {
			return err
		}
		return branch.write(t, d, depth+1)
	case "array", "map":
		return n.writeBlocks(t, d, depth)
	}
	return n.writePlain(t, d)
}

func (n *avroNode) writePlain(t *rowText, d *avroData) error {
	switch n.typ {
	case "null":
		t.raw("null")
		return nil
	case "int", "long", "enum":
		return n.writeNumber(t, d)
	case "string", "bytes":
		v, err := d.bytes()
		if err == nil {
			n.text(t, v)
		}
		return err
	}
	v, err := d.take(n.size)
	if err != nil {
		return err
	}
	switch n.typ {
	case "boolean":
		if v[0] > 1 {
			return fmt.Errorf("%w: a boolean of %d", errAvroDamaged, v[0])
		}
		t.boolean(v[0] == 1)
	case "float":
		t.float(float64(math.Float32frombits(binary.LittleEndian.Uint32(v))), 32)
	case "double":
		t.float(math.Float64frombits(binary.LittleEndian.Uint64(v)), 64)
	case "fixed":
		n.text(t, v)
	}
	return nil
}

func (n *avroNode) writeNumber(t *rowText, d *avroData) error {
	v, err := d.long()
	switch {
	case err != nil:
		return err
	case n.typ == "long":
		n.number(t, v)
	case n.typ == "int" && v == int64(int32(v)):
		n.number(t, v)
	case n.typ == "enum" && v >= 0 && v < int64(len(n.names)):
		t.bytes([]byte(n.names[v]))
	default:
		return fmt.Errorf("%w: an %s of %d", errAvroDamaged, n.typ, v)
	}
	return nil
}

func (n *avroNode) writeRecord(t *rowText, d *avroData, depth int) error {
	t.raw("{")
	for i, kid := range n.kids {
		t.label(i, n.labels[i])
		if err := kid.write(t, d, depth+1); err != nil {
			return err
		}
	}
	t.raw("}")
	return nil
}

// writeBlocks writes an array or a map, which come in blocks of elements.
func (n *avroNode) writeBlocks(t *rowText, d *avroData, depth int) error {
	brackets := [...]string{"[", "]"}
	if n.typ == "map" {
		brackets = [...]string{"{", "}"}
	}
	t.raw(brackets[0])
	for first := true; ; {
		count, err := n.blockCount(d)
		if err != nil {
			return err
		}
		if count == 0 {
			t.raw(brackets[1])
			return nil
		}
		for ; count > 0; count-- {
			if t.why != "" && n.kids[0].empty && n.typ == "array" {
				break // they are nothing, and there can be many
			}
			if !first {
				t.raw(",")
			}
			first = false
			if err := n.writeElement(t, d, depth+1); err != nil {
				return err
			}
		}
	}
}

func (n *avroNode) blockCount(d *avroData) (int64, error) {
	count, err := d.long()
	if err != nil {
		return 0, err
	}
	if count < 0 { // and the block's size in bytes
		if _, err := d.long(); err != nil {
			return 0, err
		}
		count = -count
	}
	if count < 0 || count > int64(max(len(d.b)-d.at, maxEmptyRows)) {
		return 0, fmt.Errorf("%w: %d elements, and %d bytes are left in the block", errAvroDamaged, count, len(d.b)-d.at)
	}
	return count, nil
}

func (n *avroNode) writeElement(t *rowText, d *avroData, depth int) error {
	if n.typ == "map" {
		name, err := d.bytes()
		if err != nil {
			return err
		}
		start := len(t.b)
		t.bytes(name)
		t.key(start)
	}
	return n.kids[0].write(t, d, depth)
}
