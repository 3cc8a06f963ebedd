package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// mostHeap is what a reader may add to the heap, garbage included, whatever the file.
const mostHeap = 240 << 20

// sparse is a file that keeps only the blocks that are not zeros. It looks at the heap
// with each read.
type sparse struct {
	blocks map[int64][]byte
	part   []byte // of the last block
	size   int64
	most   uint64
}

const sparseBlock = 64 << 10

func (s *sparse) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), sparseBlock-len(s.part))
		s.part, rest = append(s.part, rest[:n]...), rest[n:]
		s.size += int64(n)
		if len(s.part) == sparseBlock {
			s.keep()
		}
	}
	return len(p), nil
}

func (s *sparse) keep() {
	if len(bytes.Trim(s.part, "\x00")) > 0 {
		s.blocks[(s.size-1)/sparseBlock] = s.part
		s.part = nil
	}
	s.part = s.part[:0]
}

func (s *sparse) Size() int64 { return s.size }

// look measures the heap.
func (s *sparse) look() {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	s.most = max(s.most, stats.HeapInuse+stats.StackInuse)
}

func (s *sparse) ReadAt(p []byte, off int64) (n int, err error) {
	s.look()
	for n < len(p) && off < s.size {
		b, at := s.blocks[off/sparseBlock], off%sparseBlock
		k := int(min(int64(len(p)-n), sparseBlock-at, s.size-off))
		clear(p[n : n+k])
		if at < int64(len(b)) {
			copy(p[n:n+k], b[at:])
		}
		n, off = n+k, off+int64(k)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// measured reads a sparse file and says how many rows it gave, how many of them were
// good, and by how much the heap grew.
func measured(t *testing.T, s *sparse, o Options) (rows, good int, used int64, err error) {
	t.Helper()
	for range 3 { // until pools and finalizers have let go of what writing took
		debug.FreeOSMemory()
	}
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	s.most = 0
	r, err := Open(s, o)
	for err == nil {
		var row Row
		row, err = r.Next()
		s.look()
		if err == nil {
			if rows++; row.Rejected == "" {
				good++
			}
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if r != nil {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	used = int64(s.most) - int64(before.HeapInuse+before.StackInuse)
	t.Logf("%d rows, %d good, %d MiB", rows, good, used>>20)
	if used > mostHeap {
		t.Errorf("%d MiB of memory", used>>20)
	}
	return rows, good, used, err
}

// TestParquetMemory reads large row groups, large pages and many columns.
func TestParquetMemory(t *testing.T) {
	bytesField := schema.FieldList{schema.NewByteArrayNode("v", required, -1)}
	zeros := parquet.ByteArray(make([]byte, 1<<20))
	plain := []parquet.WriterProperty{parquet.WithDictionaryDefault(false), parquet.WithStats(false), parquet.WithBatchSize(120)}
	with := func(o ...parquet.WriterProperty) []parquet.WriterProperty { return append(o, plain...) }
	for name, c := range map[string]struct {
		n    int // values of 1 MiB in one row group
		o    []parquet.WriterProperty
		says string
	}{
		"a row group of 2 GiB":     {2048, append(with(parquet.WithDataPageSize(1<<20)), parquet.WithBatchSize(1)), ""},
		"a page of 120 MiB":        {120, with(parquet.WithDataPageSize(1 << 30)), ""},
		"a page of 120 MiB, gzip":  {120, with(parquet.WithDataPageSize(1<<30), parquet.WithCompression(compress.Codecs.Gzip)), ""},
		"a page of 60 MiB, snappy": {60, with(parquet.WithDataPageSize(60<<20), parquet.WithCompression(compress.Codecs.Snappy)), ""},
		"pages of 60 MiB, zstd":    {120, append(with(parquet.WithDataPageSize(59<<20), parquet.WithCompression(compress.Codecs.Zstd)), parquet.WithBatchSize(60)), ""},
		"a page of 120 MiB, zstd":  {120, with(parquet.WithDataPageSize(1<<30), parquet.WithCompression(compress.Codecs.Zstd)), "pages are too large"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sparse{blocks: map[int64][]byte{}}
			values := make([]parquet.ByteArray, c.n)
			for i := range values {
				values[i] = zeros
			}
			writeParquet(t, s, bytesField, [][]columnData{{{values: values}}}, c.o...)
			s.keep()
			rows, _, _, err := measured(t, s, Options{Format: Parquet, MaxRow: 1 << 20})
			if c.says != "" {
				fileError(t, err, c.says)
				return
			}
			if err != nil || rows != c.n {
				t.Errorf("%d rows of %d, %v", rows, c.n, err)
			}
		})
	}
}

// TestParquetColumns reads a file of as many columns as there may be, and one of one
// more.
func TestParquetColumns(t *testing.T) {
	for _, n := range []int{maxParquetColumns, maxParquetColumns + 1} {
		var fields schema.FieldList
		var group []columnData
		for i := range n {
			fields = append(fields, schema.NewByteArrayNode(fmt.Sprint("c", i), required, -1))
			group = append(group, columnData{values: texts("a", "b", strings.Repeat("c", 5000))})
		}
		s := &sparse{blocks: map[int64][]byte{}}
		writeParquet(t, s, fields, [][]columnData{group})
		s.keep()
		rows, good, _, err := measured(t, s, Options{Format: Parquet})
		if n > maxParquetColumns {
			fileError(t, err, "2001 columns")
		} else if rows != 3 || good != 2 || err != nil {
			t.Errorf("%d rows, %d of them good, %v", rows, good, err)
		}
	}
}

// TestPageMemory checks the allocator by itself.
func TestPageMemory(t *testing.T) {
	var m pageMemory
	a := m.Allocate(1 << 20)
	m.Free(a)
	if b := m.Allocate(1 << 20); &a[0] != &b[0] {
		t.Error("a freed piece is not used again")
	}
	c := m.Reallocate(10<<20, m.Allocate(100))
	if len(c) != 10<<20 || m.used != 11<<20 {
		t.Errorf("%d bytes, %d used", len(c), m.used)
	}
	defer func() {
		if _, ok := recover().(*memoryError); !ok {
			t.Error("no panic with a *memoryError")
		}
	}()
	m.Allocate(maxPages)
}
