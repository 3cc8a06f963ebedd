package rows

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// columnData is what a column of a row group has, with its levels.
type columnData struct {
	values   any
	def, rep []int16
}

// writeParquet writes a file with arrow-go, one row group after the other.
func writeParquet(t testing.TB, w io.Writer, fields schema.FieldList, groups [][]columnData, o ...parquet.WriterProperty) {
	t.Helper()
	root, err := schema.NewGroupNode("root", parquet.Repetitions.Required, fields, -1)
	if err != nil {
		t.Fatal(err)
	}
	out := file.NewParquetWriter(w, root, file.WithWriterProps(parquet.NewWriterProperties(o...)))
	for _, group := range groups {
		g, err := out.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for _, data := range group {
			c, err := g.NextColumn()
			if err == nil {
				err = writeColumn(c, data)
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func writeColumn(c file.ColumnChunkWriter, d columnData) (err error) {
	switch v := d.values.(type) {
	case []bool:
		_, err = c.(*file.BooleanColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []int32:
		_, err = c.(*file.Int32ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []int64:
		_, err = c.(*file.Int64ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []parquet.Int96:
		_, err = c.(*file.Int96ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []float32:
		_, err = c.(*file.Float32ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []float64:
		_, err = c.(*file.Float64ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []parquet.ByteArray:
		_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []parquet.FixedLenByteArray:
		_, err = c.(*file.FixedLenByteArrayColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	default:
		err = errors.ErrUnsupported
	}
	return err
}

// texts makes values of a column of bytes.
func texts(values ...string) []parquet.ByteArray {
	b := make([]parquet.ByteArray, len(values))
	for i, v := range values {
		b[i] = parquet.ByteArray(v)
	}
	return b
}

// fileOf is a File in memory.
type fileOf struct{ *bytes.Reader }

func newFile(b []byte) fileOf { return fileOf{bytes.NewReader(b)} }

// readRows reads what a file gives up to its end, or to the error.
func readRows(t testing.TB, f File, o Options) (values []string, err error) {
	t.Helper()
	r, err := Open(f, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	for n := o.From; ; n++ {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			if _, again := r.Next(); !errors.Is(again, err) {
				t.Errorf("after %v comes %v", err, again)
			}
			return values, err
		}
		if row.N != n {
			t.Fatalf("row %d has the number %d", n, row.N)
		}
		if row.Rejected != "" {
			values = append(values, "rejected: "+row.Rejected)
			continue
		}
		values = append(values, string(row.Value))
	}
}
