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

// unpackedSize adds up the bytes of a chunk file's records before compression.
// The file has been read as one before; this looks at its frame only.
func unpackedSize(file []byte) (total uint64, err error) {
	f := frame{data: file, pos: 4}
	codec, err := f.header()
	if err != nil {
		return 0, err
	}
	var buf []byte
	for f.pos < len(f.data) {
		f.long()
		block := f.bytes()
		f.take(16)
		if f.err != nil {
			return 0, f.err
		}
		if codec == "zstandard" {
			if buf, err = unpacker.DecodeAll(block, buf[:0]); err != nil {
				return 0, fmt.Errorf("unpack a block: %w", err)
			}
			block = buf
		}
		total += uint64(len(block))
	}
	return total, nil
}

// frame reads the frame of an Avro file. Its error sticks.
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
