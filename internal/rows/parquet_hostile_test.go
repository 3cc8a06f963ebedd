package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// fileError asserts that an error is a *FileError that says a thing.
func fileError(t *testing.T, err error, says string) {
	t.Helper()
	var f *FileError
	if !errors.As(err, &f) {
		t.Fatalf("got %v (%T), not a *FileError", err, err)
	}
	if !strings.Contains(f.Error(), says) {
		t.Errorf("got %q, which does not say %q", f, says)
	}
}

// holes is a file of a size with some bytes at its end, and zeros before.
type holes struct {
	size int64
	tail []byte
}

func (h holes) Size() int64 { return h.size }

func (h holes) ReadAt(p []byte, off int64) (int, error) {
	if off >= h.size {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), h.size-off))
	clear(p[:n])
	if start := h.size - int64(len(h.tail)); off+int64(n) > start {
		copy(p[max(0, start-off):n], h.tail[max(0, off-start):])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// withFooter makes a file of a footer.
func withFooter(footer []byte) []byte {
	b := append([]byte("PAR1"), footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
}

func TestParquetFooters(t *testing.T) {
	sound := sample(t, "flights.parquet")
	tail := func(length uint32, magic string) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, length), magic...)
	}
	element := func(children string) string { return "\x48\x01s" + children + "\x00" } // name "s", num_children
	for name, c := range map[string]struct {
		file File
		says string
	}{
		"empty":                      {newFile(nil), "0 bytes"},
		"short":                      {newFile([]byte("PAR1PAR1")), "8 bytes"},
		"cut off":                    {newFile(sound[:len(sound)-1]), "cut off"},
		"another kind":               {newFile([]byte(strings.Repeat(`{"a":1}`+"\n", 10))), "does not end as"},
		"encrypted":                  {holes{1000, tail(100, "PARE")}, "encrypted"},
		"footer beyond the file":     {holes{1000, tail(1<<31, "PAR1")}, "should have 2147483648 bytes"},
		"500 MB of schema":           {holes{1 << 30, tail(500e6, "PAR1")}, "500000000 bytes"},
		"footer of zeros":            {holes{1 << 20, tail(1000, "PAR1")}, "no schema"},
		"schema list beyond the end": {newFile(withFooter([]byte("\x29\xfc\xff\xff\xff\xff\x0f"))), "damaged"},
		"schema list of numbers":     {newFile(withFooter([]byte("\x29\x15\x00\x00"))), "damaged"},
		"group of too many fields":   {newFile(withFooter([]byte("\x29\x1c" + element("\x15\xfe\xff\xff\xff\x0f") + "\x00"))), "2147483647 fields"},
		"group of fewer than none":   {newFile(withFooter([]byte("\x29\x1c" + element("\x15\x01") + "\x00"))), "-1 fields"},
		"groups in groups": {
			newFile(withFooter([]byte("\x29\xfc\xac\x02" + strings.Repeat(element("\x15\x02"), 300) + "\x00"))), "64 groups",
		},
		"structs in structs": {newFile(withFooter([]byte(strings.Repeat("\x8c", 100)))), "too deep"},
		"many small structs": {newFile(withFooter(append([]byte("\x59\xfc\x80\x80\x20"), make([]byte, 1<<20)...))), "more than 200000 parts"},
		"no columns":         {newFile(withFooter([]byte("\x15\x02\x19\x1c\x48\x01s\x00\x16\x00\x19\x0c\x00"))), "0 columns"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readRows(t, c.file, Options{Format: Parquet})
			fileError(t, err, c.says)
		})
	}
}

// TestParquetFileFails checks that a File that fails is told from a file that is bad.
func TestParquetFileFails(t *testing.T) {
	b := sample(t, "flights.parquet")
	gone := errors.New("gone")
	failed := 0
	for at := 1; at < 40; at++ {
		rows, err := readRows(t, &failing{fileOf: newFile(b), after: at, err: gone}, Options{Format: Parquet})
		var bad *FileError
		if err != nil && (!errors.Is(err, gone) || errors.As(err, &bad)) {
			t.Fatalf("read %d: after %d rows: %v", at, len(rows), err)
		}
		if err != nil {
			failed++
		}
	}
	if failed < 10 {
		t.Errorf("only %d reads failed", failed)
	}
}

// failing fails from a read on.
type failing struct {
	fileOf
	after int
	err   error
}

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.after--; f.after <= 0 {
		return 0, f.err
	}
	return f.fileOf.ReadAt(p, off)
}

// TestParquetLongRows checks that a row over the limit is rejected, and the next one
// is read.
func TestParquetLongRows(t *testing.T) {
	var b bytes.Buffer
	writeParquet(t, &b, schema.FieldList{schema.NewByteArrayNode("v", required, -1), schema.NewInt32Node("n", required, -1)},
		[][]columnData{{
			{values: texts("short", strings.Repeat("x", 1000), strings.Repeat("\x01", 30), "short")}, {values: []int32{1, 2, 3, 4}},
		}})
	got, err := readRows(t, newFile(b.Bytes()), Options{Format: Parquet, MaxRow: 100})
	if err != nil {
		t.Fatal(err)
	}
	long := "rejected: the row is longer than 100 bytes as JSON"
	if want := []string{`{"v":"short","n":1}`, long, long, `{"v":"short","n":4}`}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q", got)
	}
}

// TestParquetCodecs checks that what is packed in a page cannot be larger than the
// page's header says.
func TestParquetCodecs(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := make([]byte, 32<<20)
	for name, c := range map[string]struct {
		codec  compress.Compression
		packed []byte
	}{
		"snappy":      {compress.Codecs.Snappy, snappy.Encode(nil, bomb)},
		"snappy, 4GB": {compress.Codecs.Snappy, []byte("\xff\xff\xff\xff\x0f")},
		"zstd":        {compress.Codecs.Zstd, z.EncodeAll(bomb, nil)},
		"zstd, cut":   {compress.Codecs.Zstd, z.EncodeAll(bomb, nil)[:100]},
	} {
		t.Run(name, func(t *testing.T) {
			codec, err := compress.GetCodec(c.codec)
			if err != nil {
				t.Fatal(err)
			}
			room := make([]byte, 1000)
			took := testing.AllocsPerRun(1, func() {
				if got, err := compress.Decode(codec, room, c.packed); err == nil {
					t.Errorf("%d bytes are in room of 1000", len(got))
				}
			})
			if took > 100 {
				t.Errorf("%v pieces of memory were taken", took)
			}
			if got, err := compress.Decode(codec, nil, codec.Encode(nil, bomb)); err != nil || !bytes.Equal(got, bomb) {
				t.Errorf("without a bound there are %d bytes, %v", len(got), err)
			}
		})
	}
}

// TestParquetDamaged reads samples with bytes changed at random. Whatever comes, it is
// rows and then the end or a *FileError.
func TestParquetDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, name := range []string{"flights.parquet", "duckdb-types.parquet", "duckdb-delta.parquet"} {
		sound := sample(t, name)
		for range 300 {
			b := bytes.Clone(sound)
			for range 1 + rng.IntN(4) {
				at := rng.IntN(len(b))
				if rng.IntN(2) == 0 { // more often in the footer
					at = len(b) - 1 - rng.IntN(min(2000, len(b)))
				}
				b[at] = byte(rng.Uint32())
			}
			checkHostile(t, b, Parquet)
		}
	}
}

// checkHostile reads what may be anything.
func checkHostile(t *testing.T, b []byte, format Format) {
	t.Helper()
	r, err := Open(newFile(b), Options{Format: format, MaxRow: 1 << 20})
	for n := uint64(0); err == nil && n < 5000; n++ {
		var row Row
		row, err = r.Next()
		if err == nil && (row.N != n || len(row.Value) > 1<<20) {
			t.Fatalf("row %d has the number %d and %d bytes", n, row.N, len(row.Value))
		}
	}
	if r != nil {
		_ = r.Close() // what it cannot close is as damaged as the rest
	}
	var bad *FileError
	if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &bad) {
		t.Fatalf("got %v (%T)", err, err)
	}
}

func FuzzParquet(f *testing.F) {
	for _, name := range []string{"flights.parquet", "duckdb-types.parquet", "duckdb-delta.parquet"} {
		if b := sample(f, name); len(b) < 20_000 {
			f.Add(b)
		}
	}
	var b bytes.Buffer
	writeParquet(f, &b, schema.FieldList{schema.NewInt32Node("n", repeated, -1)},
		[][]columnData{{{[]int32{1, 2}, []int16{0, 1, 1}, []int16{0, 0, 1}}}}, parquet.WithCompression(compress.Codecs.Gzip))
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, b, Parquet) })
}
