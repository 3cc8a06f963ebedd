package guard

import (
	"fmt"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The library unpacks a page into room of the size that the page's header says. Of
// its codecs, snappy and zstd take more room if the packed bytes ask for it: a bomb.
// These take their place, for the whole process, and refuse such pages. In all else
// they are the library's own.
func init() {
	compress.RegisterCodec(compress.Codecs.Snappy, boundedSnappy{mustCodec(compress.Codecs.Snappy)})
	compress.RegisterCodec(compress.Codecs.Zstd, boundedZstd{mustCodec(compress.Codecs.Zstd)})
}

// streamCodec is what both codecs of the library are.
type streamCodec interface {
	compress.Codec
	compress.StreamingCodec
}

func mustCodec(c compress.Compression) streamCodec {
	codec, err := compress.GetCodec(c)
	if err != nil {
		panic(err) // the library has lost a codec: nothing works
	}
	return codec.(streamCodec)
}

type boundedSnappy struct{ streamCodec }

// DecodeWithError unpacks into dst; a nil dst is without a bound, as before.
func (c boundedSnappy) DecodeWithError(dst, src []byte) ([]byte, error) {
	n, err := snappy.DecodedLen(src)
	if err != nil {
		return nil, err
	}
	if dst != nil && n > len(dst) {
		return nil, fmt.Errorf("snappy: %d bytes are packed where %d should be", n, len(dst))
	}
	return snappy.Decode(dst, src)
}

type boundedZstd struct{ streamCodec }

// DecodeWithError unpacks into dst; a nil dst is without a bound, as before.
func (c boundedZstd) DecodeWithError(dst, src []byte) ([]byte, error) {
	if dst == nil {
		return compress.Decode(plainCodec{c.streamCodec}, nil, src)
	}
	return decoder.DecodeAll(src, dst[:0:len(dst)])
}

// decoder is shared, and made at start, so that its channels belong to no one who
// happens to come first (a synctest bubble, for one). It may be used concurrently.
var decoder = newDecoder()

func newDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(2<<30))
	if err != nil {
		panic(err)
	}
	return d
}

// plainCodec hides a codec's other methods, so that its panics become errors.
type plainCodec struct{ compress.Codec }
