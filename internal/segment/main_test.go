package segment

import (
	"fmt"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
)

func TestMain(m *testing.M) {
	if err := shareCodec(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	devtest.Main(m)
}

// shareCodec makes what Parquet's codec keeps for the whole process: what is made in
// one synctest bubble cannot be used in another.
func shareCodec() error {
	codec, err := compress.GetCodec(compress.Codecs.Zstd)
	if err != nil {
		return err
	}
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0))
	if err != nil {
		return err
	}
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	e.EncodeAll([]byte("what it keeps is made by the first call"), nil)
	compress.RegisterCodec(compress.Codecs.Zstd, sharedZstd{codec, d, e})
	return nil
}

type sharedZstd struct {
	compress.Codec
	d *zstd.Decoder
	e *zstd.Encoder
}

func (c sharedZstd) Encode(dst, src []byte) []byte { return c.e.EncodeAll(src, dst[:0]) }

func (c sharedZstd) EncodeLevel(dst, src []byte, _ int) []byte { return c.e.EncodeAll(src, dst[:0]) }

func (c sharedZstd) Decode(dst, src []byte) []byte {
	out, err := c.DecodeWithError(dst, src)
	if err != nil {
		panic(err)
	}
	return out
}

func (c sharedZstd) DecodeWithError(dst, src []byte) ([]byte, error) {
	return c.d.DecodeAll(src, dst[:0])
}
