package guard

import (
	"fmt"
	"sync"

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
	z, ok := zstdPool.Get().(*zstd.Decoder)
	if !ok {
		var err error
		if z, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(2<<30)); err != nil {
			return nil, err
		}
	}
	defer zstdPool.Put(z)
	return z.DecodeAll(src, dst[:0:len(dst)])
}

// zstdPool holds decoders, which need not be closed if they never read a stream.
var zstdPool sync.Pool

// plainCodec hides a codec's other methods, so that its panics become errors.
type plainCodec struct{ compress.Codec }
