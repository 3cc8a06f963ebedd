package record

import (
	"bufio"
	"fmt"
	"io"
)

const (
	maxBlock  = 16 << 20 // of a chunk file's block, packed and unpacked
	maxHeader = 1 << 20  // of all that a chunk file's header holds
)

// Reader reads a chunk file from its beginning. It takes files of our schema
// only, packed with null or zstandard, and holds one block at a time. Not for
// concurrent use.
//
// Errors: those of the underlying reader are passed on wrapped, and may be worth
// another try; what is wrong with the file matches [ErrFormat], also a file that
// ends too soon; a sound file of something else is a *[SchemaError]. Errors
// stick.
type Reader struct {
	src    *source
	codec  string
	sync   [syncSize]byte
	packed []byte
	buf    []byte // for what had to be unpacked
	cur    cursor
	begin  int64 // of the current block, in the file
	block  int   // its number, from 1
	left   int64 // records of the block that are still to come
	row    int64 // of the block, from 0
	err    error
}

// NewReader reads a chunk file's header.
func NewReader(r io.Reader) (*Reader, error) {
	rd := &Reader{src: &source{r: bufio.NewReaderSize(r, 64<<10)}, codec: CodecNull}
	rd.cur.names = map[string]string{}
	if err := rd.header(); err != nil {
		return nil, err
	}
	return rd, nil
}

// Next returns the next record, or io.EOF (itself, unwrapped) at the clean end
// of the file. The record owns its bytes, except that records of one batch
// share their ID: do not change what it points to.
func (rd *Reader) Next() (Record, error) {
	var r Record
	if err := rd.fill(); err != nil {
		return r, err
	}
	start := rd.cur.pos
	if err := rd.decode(nil); err != nil {
		return r, err
	}
	// One copy of all the bytes costs less than a copy of each part.
	c := rd.cur
	c.data, c.pos = append([]byte(nil), rd.cur.data[start:rd.cur.pos]...), 0
	c.record(&r)
	return r, nil
}

// Read is Next without copies: r's byte slices and Headers are valid until the
// next call of Read or Next only. It uses r's Headers again.
func (rd *Reader) Read(r *Record) error {
	if err := rd.fill(); err != nil {
		return err
	}
	return rd.decode(r)
}

// fill makes sure that there is a record in the current block.
func (rd *Reader) fill() error {
	if rd.err == nil && rd.left == 0 {
		rd.err = rd.nextBlock()
	}
	return rd.err
}

func (rd *Reader) decode(r *Record) error {
	if rd.cur.record(r); rd.cur.err != nil {
		return rd.fail("record %d: %s (at byte %d of the block)", rd.row, rd.cur.err.What, rd.cur.err.Offset)
	}
	rd.row++
	rd.left--
	if rest := len(rd.cur.data) - rd.cur.pos; rd.left == 0 && rest != 0 {
		return rd.fail("%d bytes follow its last record", rest)
	}
	return nil
}

// fail makes an error about the current block stick.
func (rd *Reader) fail(format string, a ...any) error {
	rd.err = &FormatError{fmt.Sprintf("block %d: ", rd.block) + fmt.Sprintf(format, a...), int(rd.begin)}
	return rd.err
}

func (rd *Reader) header() error {
	var m [len(magic)]byte
	if err := rd.src.full(m[:], "header"); err != nil {
		return err
	}
	if string(m[:]) != magic {
		return &FormatError{"header: this is not an Avro file", 0}
	}
	schema, err := rd.meta()
	if err != nil {
		return err
	}
	if err := checkCodec(rd.codec); err != nil {
		return err
	}
	if schema == nil {
		return &FormatError{"header: avro.schema is missing", int(rd.src.pos)}
	}
	if err := checkSchema(schema); err != nil {
		return err
	}
	return rd.src.full(rd.sync[:], "header")
}

// meta reads the header's map and gives the schema in it.
func (rd *Reader) meta() (schema []byte, err error) {
	room := int64(maxHeader)
	for {
		n, err := rd.src.long("header")
		if err != nil || n == 0 {
			return schema, err
		}
		if n < 0 {
			n = -n // the size of the block follows; we do not skip by it
			if _, err := rd.src.long("header"); err != nil {
				return nil, err
			}
		}
		for ; n != 0; n-- { // each takes room, so it ends
			key, err := rd.src.text(&room)
			if err != nil {
				return nil, err
			}
			value, err := rd.src.text(&room)
			if err != nil {
				return nil, err
			}
			switch string(key) {
			case "avro.schema":
				schema = value
			case "avro.codec":
				rd.codec = string(value)
			}
		}
	}
}

// nextBlock reads and unpacks a block.
func (rd *Reader) nextBlock() error {
	if err := rd.src.end(); err != nil {
		return err
	}
	rd.begin, rd.block, rd.row = rd.src.pos, rd.block+1, 0
	where := fmt.Sprintf("block %d", rd.block)
	count, err := rd.src.long(where)
	if err != nil {
		return err
	}
	size, err := rd.src.long(where)
	if err != nil {
		return err
	}
	if size < 0 || size > maxBlock {
		return rd.fail("a size of %d bytes is not within 0 to %d", size, maxBlock)
	}
	if rd.packed, err = rd.src.take(rd.packed[:0], int(size), where); err != nil {
		return err
	}
	var sync [syncSize]byte
	if err := rd.src.full(sync[:], where); err != nil {
		return err
	}
	if sync != rd.sync {
		return rd.fail("the sync marker is not there")
	}
	data, bad := unpack(&rd.buf, rd.codec, rd.packed, maxBlock)
	if bad != nil {
		return rd.fail("%s", bad.What)
	}
	if count < 1 || count > int64(len(data)/minRecord) {
		return rd.fail("%d records cannot be in %d bytes", count, len(data))
	}
	rd.left = count
	rd.cur.data, rd.cur.pos = data, 0
	return nil
}
