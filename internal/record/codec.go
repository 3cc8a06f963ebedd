package record

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// minMessage and minRecord are the sizes of the smallest message and record.
// They bound what a row count can claim.
const (
	minMessage = 5
	minRecord  = minMessage + 5
)

// The encoder and the decoder are shared and made at start, so that their
// channels belong to no one who happens to come first (a synctest bubble, for
// one). They run one goroutine's work at a time per processor, and hold buffers
// for that many.
var (
	encoder = newEncoder()
	decoder = newDecoder()
)

func newEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithWindowSize(encoderWindow), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err)
	}
	e.EncodeAll([]byte{0}, nil) // it makes its channel at the first use
	return e
}

// newDecoder makes a decoder that writes into the room it is given and not
// beyond.
func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderMaxMemory(maxBlock), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		panic(err)
	}
	return d
}

// encoderWindow is how far back the compressor looks. Blocks are little larger.
const encoderWindow = 512 << 10

// buffers holds scratch space: unpacked batches and packed blocks. Buffers that
// grew over maxBuffer are left to the garbage collector.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxBuffer = MaxBatchBytes + 512<<10

func getBuffer() *[]byte { return buffers.Get().(*[]byte) }

func putBuffer(b *[]byte) {
	if cap(*b) <= maxBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

func checkCodec(codec string) error {
	if codec != CodecNull && codec != CodecZstd {
		return &CodecError{codec}
	}
	return nil
}

// unpack gives the data of a block, at most limit bytes: packed itself, or what
// it decompresses to, in buf, which grows if need be.
func unpack(buf *[]byte, codec string, packed []byte, limit int) ([]byte, *FormatError) {
	if codec == CodecNull {
		if len(packed) > limit {
			return nil, &FormatError{fmt.Sprintf("it has %d bytes, at most %d are allowed", len(packed), limit), 0}
		}
		return packed, nil
	}
	if len(packed) == 0 {
		return nil, nil
	}
	var h zstd.Header
	if err := h.Decode(packed); err != nil {
		return nil, &FormatError{"zstandard: " + err.Error(), 0}
	}
	tooMuch := &FormatError{fmt.Sprintf("zstandard: it unpacks to more than the %d bytes allowed", limit), 0}
	// Every 4 bytes can claim 128 KiB, but not more.
	most := min(limit, (len(packed)/4+1)*(128<<10))
	room := min(most, max(64<<10, 16*len(packed)))
	if h.HasFCS && !h.Skippable {
		if h.FrameContentSize > uint64(limit) {
			return nil, tooMuch
		}
		room = min(most, int(h.FrameContentSize))
		most = room
	}
	data, err := decodeInto(buf, packed, room)
	if room < most && errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		data, err = decodeInto(buf, packed, most)
	}
	switch {
	case len(data) > limit, errors.Is(err, zstd.ErrWindowSizeExceeded), most == limit && errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, tooMuch
	case err != nil:
		return nil, &FormatError{"zstandard: " + err.Error(), 0}
	}
	return data, nil
}

// decodeInto unpacks to at most room bytes, or a few more.
func decodeInto(buf *[]byte, packed []byte, room int) ([]byte, error) {
	const slack = 64 // without some, the decoder works with more care than speed
	room += slack
	*buf = slices.Grow((*buf)[:0], room)
	return decoder.DecodeAll(packed, (*buf)[:0:room])
}
