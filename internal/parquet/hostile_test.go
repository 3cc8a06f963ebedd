package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// hostileFilters go all ways through a file.
var hostileFilters = []Filter{
	{}, {From: 8, To: 13}, {Since: t0, HasKey: true, Key: []byte("SAN")}, {NoValues: true, From: 12},
}

// readAll reads a file in all ways. The error is of its bytes, or there is none.
func readAll(t testing.TB, data []byte) error {
	t.Helper()
	r, err := Open(bytes.NewReader(data), int64(len(data)))
	for _, f := range hostileFilters {
		if err != nil {
			break
		}
		for _, err = range r.Records(t.Context(), f) {
			if err != nil {
				break
			}
		}
		if err == nil {
			_, err = tryRows(t, r, f)
		}
	}
	if err != nil && !errors.Is(err, ErrFormat) {
		t.Fatalf("%v is no *FileError", err)
	}
	if err != nil && err.Error() == "" {
		t.Fatal("an error without a text")
	}
	return err
}

func golden(t testing.TB) []byte {
	t.Helper()
	data, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestDamage damages bytes of a file all over it, each in some way, and cuts it off.
func TestDamage(t *testing.T) {
	data := golden(t)
	r := rand.New(rand.NewPCG(1, 1))
	tried, found := 0, 0
	for i := r.IntN(3); i < len(data); i += 1 + r.IntN(15) {
		tried++
		bad := bytes.Clone(data)
		bad[i] ^= byte(1 + r.IntN(255))
		if readAll(t, bad) != nil {
			found++
		}
		if tried%4 > 0 {
			continue
		}
		if err := readAll(t, data[:i]); err == nil {
			t.Errorf("cut off at byte %d of %d it can be read", i, len(data))
		}
	}
	if found < tried/2 { // the rest is in values, bounds and names
		t.Errorf("only %d of %d damages were noticed", found, tried)
	}
}

// TestOtherSchemas opens files whose columns are others.
func TestOtherSchemas(t *testing.T) {
	change := func(edit func([]arrow.Field) []arrow.Field) *arrow.Schema {
		return arrow.NewSchema(edit(ArrowSchema().Fields()), nil)
	}
	for name, c := range map[string]struct {
		schema *arrow.Schema
		good   bool
	}{
		"ours": {ArrowSchema(), true},
		"one more column": {change(func(f []arrow.Field) []arrow.Field {
			return append([]arrow.Field{field(17, "value_city", arrow.BinaryTypes.String, true)}, f...)
		}), true},
		"a column less":       {change(func(f []arrow.Field) []arrow.Field { return f[:len(f)-1] }), false},
		"another type":        {change(func(f []arrow.Field) []arrow.Field { f[1].Type = arrow.BinaryTypes.String; return f }), false},
		"text for bytes":      {change(func(f []arrow.Field) []arrow.Field { f[15].Type = arrow.BinaryTypes.String; return f }), false},
		"other units of time": {change(func(f []arrow.Field) []arrow.Field { f[2].Type = arrow.FixedWidthTypes.Timestamp_ms; return f }), false},
		"another id":          {change(func(f []arrow.Field) []arrow.Field { f[1] = field(99, "_offset", f[1].Type, false); return f }), false},
		"optional":            {change(func(f []arrow.Field) []arrow.Field { f[1].Nullable = true; return f }), false},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := pqarrow.NewFileWriter(c.schema, struct{ io.Writer }{&out}, nil, pqarrow.DefaultWriterProps())
			if err != nil {
				t.Fatal(err)
			}
			b := array.NewRecordBuilder(memory.DefaultAllocator, c.schema)
			if err := errors.Join(w.AppendKeyValueMetadata(metaRecords, "0"), w.Write(b.NewRecordBatch()), w.Close()); err != nil {
				t.Fatal(err)
			}
			_, err = Open(bytes.NewReader(out.Bytes()), int64(out.Len()))
			if name == "one more column" || c.good {
				err = withoutRows(err)
			}
			if c.good != (err == nil) || err != nil && !errors.Is(err, ErrFormat) {
				t.Errorf("%v", err)
			}
		})
	}
}

// withoutRows forgives the row group without rows that the library writes.
func withoutRows(err error) error {
	if err != nil && errors.Is(err, ErrFormat) && bytes.Contains([]byte(err.Error()), []byte("has 0 rows")) {
		return nil
	}
	return err
}

// failing fails to read from a byte on.
type failing struct {
	r    *bytes.Reader
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from && off < f.from+100 {
		return 0, f.err
	}
	return f.r.ReadAt(p, off)
}

// TestReadError: what the file's reader failed with comes as it was, wherever.
func TestReadError(t *testing.T) {
	data := golden(t)
	lost := errors.New("the connection is lost")
	for from := int64(0); from < int64(len(data)); from += 50 {
		r, err := Open(failing{bytes.NewReader(data), from, lost}, int64(len(data)))
		if err == nil {
			_, err = tryRows(t, r, Filter{From: 9})
		}
		if err != nil && (!errors.Is(err, lost) || errors.Is(err, ErrFormat)) {
			t.Errorf("from byte %d: %v", from, err)
		}
	}
}

// TestBombs: a file that promises more than it has takes little memory.
func TestBombs(t *testing.T) {
	data := golden(t)
	length := int(binary.LittleEndian.Uint32(data[len(data)-8:]))
	footer := len(data) - 8 - length
	r := rand.New(rand.NewPCG(2, 2))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const tries = 300
	for range tries {
		bad := bytes.Clone(data)
		at := r.IntN(len(bad) - 12)
		if r.IntN(2) == 0 {
			at = footer + r.IntN(length-4)
		}
		copy(bad[at:], []byte{0xff, 0xff, 0xff, 0x7f}) // a large number in most places
		_ = readAll(t, bad)
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / tries; each > 24<<20 {
		t.Errorf("a file takes %d bytes", each)
	}
}

// FuzzOpen: whatever the bytes are, reading ends, with rows or with a *FileError.
func FuzzOpen(f *testing.F) {
	f.Add(golden(f))
	small, _ := write(f, WriterOptions{}, goldenRows()[:1])
	f.Add(small)
	empty, _ := write(f, WriterOptions{}, nil)
	f.Add(empty)
	f.Fuzz(func(t *testing.T, data []byte) { _ = readAll(t, data) })
}
