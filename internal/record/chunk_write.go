package record

import (
	"crypto/sha256"
	"encoding/binary"
	"runtime"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

const (
	magic    = "Obj\x01"
	syncSize = 16

	// blockTarget is the size of a block before compression. A larger record has
	// a block of its own.
	blockTarget = 256 << 10

	// wave is how many blocks are compressed before any is written, which bounds
	// the memory for those that wait for their turn.
	wave = 32
)

// EncodeChunk appends a whole chunk file with the set's records, in the order of
// its Recs. Equal sets give equal bytes. With zstandard it uses all processors,
// and memory for a few blocks beside dst; with null it stays on its goroutine.
// On an error dst is returned as it was. The set is only read.
func EncodeChunk(dst []byte, s *Set, codec string) ([]byte, error) {
	if err := checkCodec(codec); err != nil {
		return dst, err
	}
	blocks, err := cutBlocks(s)
	if err != nil {
		return dst, err
	}
	sync := syncMarker(s, blocks, codec)
	b := appendHeader(dst, codec, sync)
	for len(blocks) > 0 {
		n := min(wave, len(blocks))
		if b, err = appendWave(b, s, blocks[:n], codec, sync); err != nil {
			return dst, err
		}
		blocks = blocks[n:]
	}
	return b, nil
}

// block is some consecutive records of a set.
type block struct {
	recs  []Rec
	size  int
	whole bool // they lie one after the other in Data too
}

func cutBlocks(s *Set) ([]block, error) {
	var blocks []block
	cur := block{whole: true}
	first := 0
	for i, r := range s.Recs {
		if uint64(r.Off)+uint64(r.Len) > uint64(len(s.Data)) {
			return nil, outOfSet(r, s)
		}
		if r.Len > MaxRecord {
			return nil, invalid("record", "it has %d bytes, at most %d are allowed", r.Len, MaxRecord)
		}
		if cur.size > 0 && cur.size+int(r.Len) > blockTarget {
			cur.recs = s.Recs[first:i]
			blocks = append(blocks, cur)
			cur, first = block{whole: true}, i
		}
		cur.whole = cur.whole && r.Off == s.Recs[first].Off+uint32(cur.size)
		cur.size += int(r.Len)
	}
	if first < len(s.Recs) {
		cur.recs = s.Recs[first:]
		blocks = append(blocks, cur)
	}
	return blocks, nil
}

// data gives the block's bytes, in scratch if they have to be gathered.
func (b block) data(s *Set, scratch []byte) []byte {
	if b.whole {
		off := int(b.recs[0].Off)
		return s.Data[off : off+b.size]
	}
	for _, r := range b.recs {
		scratch = append(scratch, s.Data[r.Off:r.Off+r.Len]...)
	}
	return scratch
}

// syncMarker is a function of what the file holds, so that equal sets give equal
// files, and different ones different markers.
func syncMarker(s *Set, blocks []block, codec string) []byte {
	d := xxhash.New()
	for _, b := range blocks {
		if b.whole {
			d.Write(b.data(s, nil))
			continue
		}
		for _, r := range b.recs {
			d.Write(s.Data[r.Off : r.Off+r.Len])
		}
	}
	seed := binary.BigEndian.AppendUint64([]byte(codec), uint64(len(s.Recs)))
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(seed, d.Sum64()))
	return sum[:syncSize]
}

func appendHeader(dst []byte, codec string, sync []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.AppendVarint(dst, 2)
	for _, s := range [...]string{"avro.codec", codec, "avro.schema", recordSchema} {
		dst = append(binary.AppendVarint(dst, int64(len(s))), s...)
	}
	dst = append(dst, 0)
	return append(dst, sync...)
}

// appendWave appends blocks, packed in parallel, in their order.
func appendWave(dst []byte, s *Set, blocks []block, codec string, sync []byte) ([]byte, error) {
	if codec == CodecNull {
		for _, b := range blocks {
			dst = binary.AppendVarint(dst, int64(len(b.recs)))
			dst = binary.AppendVarint(dst, int64(b.size))
			if b.whole {
				dst = append(dst, b.data(s, nil)...)
			} else {
				dst = b.data(s, dst)
			}
			dst = append(dst, sync...)
		}
		return dst, nil
	}
	var packed [wave]*[]byte
	if err := packAll(packed[:len(blocks)], s, blocks); err != nil {
		return dst, err
	}
	for i, b := range blocks {
		dst = binary.AppendVarint(dst, int64(len(b.recs)))
		dst = appendBytes(dst, *packed[i])
		dst = append(dst, sync...)
		putBuffer(packed[i])
	}
	return dst, nil
}

func packAll(packed []*[]byte, s *Set, blocks []block) error {
	var next atomic.Int32
	work := func() error {
		scratch := getBuffer()
		defer putBuffer(scratch)
		for {
			i := int(next.Add(1)) - 1
			if i >= len(blocks) {
				return nil
			}
			data := blocks[i].data(s, (*scratch)[:0])
			if !blocks[i].whole {
				*scratch = data
			}
			packed[i] = getBuffer()
			*packed[i] = encoder.EncodeAll(data, *packed[i])
		}
	}
	workers := min(runtime.GOMAXPROCS(0), len(blocks))
	if workers == 1 {
		return work()
	}
	var g errgroup.Group
	for range workers {
		g.Go(work)
	}
	return g.Wait()
}
