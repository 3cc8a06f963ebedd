package verify

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// maxBlock bounds what one block of a chunk file unpacks to.
const maxBlock = 16 << 20

var errTooShort = errors.New("it ends within an Avro block")

// unpacker is shared: whole blocks may be unpacked with it concurrently.
var unpacker = newUnpacker()

func newUnpacker() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		panic(err) // only for options that are wrong
	}
	return d
}

// sizes tells how many bytes the records of a chunk file have before compression,
// one after the other. The file is read as one beside it; this looks at its frame,
// and at where records end, only.
type sizes struct {
	file  frame
	codec string
	buf   []byte // for what had to be unpacked
	block frame
	left  int64 // records of the block that are still to come
}

func newSizes(file []byte) (*sizes, error) {
	s := &sizes{file: frame{data: file, pos: 4}}
	var err error
	s.codec, err = s.file.header()
	return s, err
}

// next is the size of the next record.
func (s *sizes) next() (uint64, error) {
	for s.left <= 0 {
		if err := s.open(); err != nil {
			return 0, err
		}
	}
	s.left--
	start := s.block.pos
	s.block.record()
	return uint64(s.block.pos - start), s.block.err
}

// open unpacks the next block.
func (s *sizes) open() (err error) {
	s.left = s.file.long()
	packed := s.file.bytes()
	s.file.take(16)
	if s.file.err != nil {
		return s.file.err
	}
	if s.codec == "zstandard" {
		if s.buf, err = unpacker.DecodeAll(packed, s.buf[:0]); err != nil {
			return fmt.Errorf("unpack a block: %w", err)
		}
		packed = s.buf
	}
	s.block = frame{data: packed}
	return nil
}

// frame reads Avro data. Its error sticks.
type frame struct {
	data []byte
	pos  int
	err  error
}

// header passes the header and gives the codec in it.
func (f *frame) header() (codec string, err error) {
	for n := f.long(); n != 0 && f.err == nil; n = f.long() {
		if n < 0 {
			n = -n
			f.long() // the size of the block of pairs
		}
		for ; n > 0 && f.err == nil; n-- {
			key, value := f.bytes(), f.bytes()
			if string(key) == "avro.codec" {
				codec = string(value)
			}
		}
	}
	f.take(16)
	return codec, f.err
}

func (f *frame) long() int64 {
	if f.err != nil {
		return 0
	}
	n, size := binary.Varint(f.data[f.pos:])
	if size <= 0 {
		f.err = errTooShort
		return 0
	}
	f.pos += size
	return n
}

func (f *frame) bytes() []byte { return f.take(f.long()) }

// some passes what a union with null holds.
func (f *frame) some(value func()) {
	if f.long() != 0 && f.err == nil {
		value()
	}
}

// record passes a record of FORMAT's schema.
func (f *frame) record() {
	number, text := func() { f.long() }, func() { f.bytes() }
	number() // ts
	number() // sequence
	number() // row
	f.some(func() { text(); number() })
	f.some(text)   // rejected
	f.some(number) // event_ts
	f.some(text)   // key
	f.headers()
	f.some(text) // value
	f.some(func() {
		text() // url
		number()
		text() // etag
		text() // version
		text() // content_type
		f.some(text)
		f.some(number)
	})
}

func (f *frame) headers() {
	for n := f.long(); n != 0 && f.err == nil; n = f.long() {
		if n < 0 {
			f.bytes() // they say their size
			continue
		}
		for ; n > 0 && f.err == nil; n-- {
			f.bytes()
			f.bytes()
		}
	}
}

func (f *frame) take(n int64) []byte {
	if f.err != nil {
		return nil
	}
	if n < 0 || n > int64(len(f.data)-f.pos) {
		f.err = errTooShort
		return nil
	}
	f.pos += int(n)
	return f.data[f.pos-int(n) : f.pos]
}
