package rows

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/avro/ocf"
)

const (
	// maxAvroHeader bounds the header of an Avro file, which has its schema.
	maxAvroHeader = 4 << 20
	// maxAvroBlock bounds a block, packed and unpacked. Writers make blocks of some 64
	// KiB, and of one record if that is larger.
	maxAvroBlock = 32 << 20
	// maxEmptyRows bounds the rows of a block, and the elements of a list's block, that
	// take no bytes: nothing else does.
	maxEmptyRows = 1 << 16
)

// avroReader reads an Avro object container file. The library (twmb/avro) reads the
// schema and unpacks blocks; the walk from a block's bytes to JSON is this package's
// own, since values in between would take many times the memory of the bytes, and a
// row that is too long could not be passed over.
type avroReader struct {
	in     *stream
	buf    *bufio.Reader
	codec  ocf.BoundedDecompressor // nil: blocks are not packed
	close  func() error
	schema *avroNode
	sync   [16]byte
	packed []byte
	block  avroData
	left   int64 // rows of the block
	text   rowText
	from   uint64
	next   uint64 // the number of the row that comes next
	err    error
}

var _ Reader = (*avroReader)(nil)

// openAvro reads the header. It takes over in if there is no error.
func openAvro(in *stream, o Options) (Reader, error) {
	r := &avroReader{
		in: in, buf: bufio.NewReaderSize(in, 64<<10), close: func() error { return nil },
		text: rowText{max: o.MaxRow}, from: o.From,
	}
	meta, err := r.header()
	if err != nil {
		return nil, err
	}
	if r.schema, err = parseAvroSchema(meta["avro.schema"]); err != nil {
		return nil, r.fail("the Avro file's schema", err)
	}
	if err := r.setCodec(string(meta["avro.codec"])); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *avroReader) setCodec(name string) error {
	var codec ocf.Codec
	switch name {
	case "", "null":
		return nil
	case "deflate":
		codec = ocf.DeflateCodec(-1)
	case "snappy":
		codec = ocf.SnappyCodec()
	case "zstandard":
		var err error
		codec, err = ocf.ZstdCodec(nil, []zstd.DOption{zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxAvroBlock)})
		if err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
	default:
		return r.fail(fmt.Sprintf("the Avro file is packed with %.40q: null, deflate, snappy and zstandard can be read", name), nil)
	}
	r.codec, r.close = codec.(ocf.BoundedDecompressor), codec.Close
	return nil
}

// pos is the byte of the unpacked file that comes next.
func (r *avroReader) pos() int64 { return r.in.pos - int64(r.buf.Buffered()) }

func (r *avroReader) fail(what string, err error) error {
	return &FileError{what, r.next, r.pos(), err}
}

// cut makes an error of what reading failed with in the middle of something.
func (r *avroReader) cut(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return r.in.err(err, r.next)
}

// header reads the magic bytes, the metadata and the sync marker.
func (r *avroReader) header() (map[string][]byte, error) {
	var magic [4]byte
	n, err := io.ReadFull(r.buf, magic[:])
	if err != nil && r.in.src.err != nil {
		return nil, r.cut(err)
	}
	if string(magic[:n]) != "Obj\x01" {
		return nil, &FileError{"the file does not begin as an Avro object container file", 0, 0, nil}
	}
	meta := map[string][]byte{}
	for {
		count, err := r.long()
		if err != nil || count == 0 {
			if err == nil {
				_, err = io.ReadFull(r.buf, r.sync[:])
			}
			return meta, r.headerErr(err)
		}
		if count < 0 {
			count = -count
			if _, err := r.long(); err != nil {
				return nil, r.headerErr(err)
			}
		}
		for ; count > 0; count-- {
			if err := r.entry(meta); err != nil {
				return nil, r.headerErr(err)
			}
		}
	}
}

// headerErr tells damage of the header from a File that fails.
func (r *avroReader) headerErr(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errAvroDamaged):
		return r.fail("the Avro file's header", err)
	}
	return r.cut(err)
}

// entry reads a name and its value, and keeps what this package heeds.
func (r *avroReader) entry(meta map[string][]byte) error {
	var pair [2][]byte
	for i := range pair {
		n, err := r.long()
		if err != nil {
			return err
		}
		if n < 0 || n > maxAvroHeader-r.pos() {
			return fmt.Errorf("%w: it should have more than %d bytes", errAvroDamaged, maxAvroHeader)
		}
		if pair[i], err = io.ReadAll(io.LimitReader(r.buf, n)); err != nil {
			return err
		}
		if int64(len(pair[i])) < n {
			return io.ErrUnexpectedEOF
		}
	}
	if name := string(pair[0]); name == "avro.schema" || name == "avro.codec" {
		meta[name] = pair[1]
	}
	return nil
}

func (r *avroReader) long() (int64, error) {
	v, err := binary.ReadUvarint(r.buf)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && r.in.src.err == nil {
		err = fmt.Errorf("%w: %w", errAvroDamaged, err)
	}
	return int64(v>>1) ^ -int64(v&1), err
}

func (r *avroReader) Next() (Row, error) {
	if r.err == nil {
		r.err = r.read()
	}
	if r.err != nil {
		return Row{}, r.err
	}
	return r.text.row(r.next - 1), nil
}

func (r *avroReader) read() error {
	for {
		for r.left == 0 {
			if err := r.openBlock(); err != nil {
				return err
			}
		}
		passed := r.next < r.from
		r.text.reset()
		if passed {
			r.text.fail("passed over") // so that nothing is written
		}
		if err := r.schema.root(&r.text, &r.block); err != nil {
			return r.fail("the Avro file cannot be read on", err)
		}
		r.left--
		r.next++
		if r.left == 0 && r.block.at < len(r.block.b) {
			return r.fail(fmt.Sprintf("a block of the Avro file has %d bytes after its last row", len(r.block.b)-r.block.at), nil)
		}
		if !passed {
			return nil
		}
	}
}

// openBlock goes on to the next block, and over those that are below From.
func (r *avroReader) openBlock() error {
	if _, err := r.buf.Peek(1); err != nil {
		return r.in.err(err, r.next)
	}
	count, err := r.long()
	if err != nil {
		return r.blockErr(err)
	}
	size, err := r.long()
	if err != nil {
		return r.blockErr(err)
	}
	switch {
	case count < 0 || size < 0:
		return r.fail(fmt.Sprintf("a block of the Avro file should have %d rows in %d bytes", count, size), nil)
	case size > maxAvroBlock:
		return r.fail(fmt.Sprintf("a block of the Avro file has %d bytes: at most %d are taken", size, maxAvroBlock), nil)
	}
	if err := r.readBlock(size); err != nil {
		return err
	}
	if uint64(count) <= r.from && r.next <= r.from-uint64(count) {
		r.next += uint64(count)
		return nil
	}
	if err := r.unpack(); err != nil {
		return r.fail("a block of the Avro file cannot be unpacked", err)
	}
	if count > int64(max(len(r.block.b), maxEmptyRows)) {
		return r.fail(fmt.Sprintf("a block of the Avro file should have %d rows in %d bytes", count, len(r.block.b)), nil)
	}
	r.left = count
	return nil
}

func (r *avroReader) blockErr(err error) error {
	if errors.Is(err, errAvroDamaged) {
		return r.fail("the Avro file cannot be read on", err)
	}
	return r.cut(err)
}

// readBlock reads the packed bytes and the sync marker after them. It takes memory as
// bytes come, not as they are promised.
func (r *avroReader) readBlock(size int64) error {
	b := bytes.NewBuffer(r.packed[:0])
	n, err := io.CopyN(b, r.buf, size)
	if r.packed = b.Bytes(); n < size {
		return r.cut(err)
	}
	var sync [16]byte
	if _, err := io.ReadFull(r.buf, sync[:]); err != nil {
		return r.cut(err)
	}
	if sync != r.sync {
		return r.fail("a block of the Avro file does not end with the file's sync marker", nil)
	}
	return nil
}

func (r *avroReader) unpack() error {
	r.block = avroData{b: r.packed}
	if r.codec == nil {
		return nil
	}
	var err error
	r.block.b, err = r.codec.DecompressBounded(r.packed, maxAvroBlock)
	return err
}

func (r *avroReader) Close() error {
	if r.err == nil {
		r.err = errors.New("the reader is closed")
	}
	return errors.Join(r.close(), r.in.Close())
}
