package rows

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
)

// flights gives the 3,000,000 flights of SPILLWAY_DATA, or else the sample.
func flights(b *testing.B) []byte {
	b.Helper()
	if dir := os.Getenv("SPILLWAY_DATA"); dir != "" {
		data, err := os.ReadFile(filepath.Join(dir, "flights-3m.parquet"))
		if err != nil {
			b.Fatal(err)
		}
		return data
	}
	return sample(b, "flights.parquet")
}

// BenchmarkParquet reads all rows as JSON. MB/s are of the JSON.
func BenchmarkParquet(b *testing.B) {
	data := flights(b)
	var rows, size int64
	for b.Loop() {
		r, err := Open(newFile(data), Options{Format: Parquet})
		if err != nil {
			b.Fatal(err)
		}
		rows, size = 0, 0
		for {
			row, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows, size = rows+1, size+int64(len(row.Value))
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(size)
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

// BenchmarkParquetColumns reads the same values with arrow-go, column by column, and
// makes nothing of them: the bound of what can be had.
func BenchmarkParquetColumns(b *testing.B) {
	data := flights(b)
	numbers, words := make([]int64, mostBatch), make([]parquet.ByteArray, mostBatch)
	def := make([]int16, mostBatch)
	var rows int64
	for b.Loop() {
		rows = 0
		props := parquet.NewReaderProperties(nil)
		props.BufferedStreamEnabled = true
		f, err := file.NewParquetReader(bytes.NewReader(data), file.WithReadProps(props))
		if err != nil {
			b.Fatal(err)
		}
		for g := range f.NumRowGroups() {
			group := f.RowGroup(g)
			for i := range group.NumColumns() {
				c, err := group.Column(i)
				for err == nil && c.HasNext() {
					switch c := c.(type) {
					case *file.Int64ColumnChunkReader:
						_, _, err = c.ReadBatch(mostBatch, numbers, def, nil)
					case *file.ByteArrayColumnChunkReader:
						_, _, err = c.ReadBatch(mostBatch, words, def, nil)
					}
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			rows += group.NumRows()
		}
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkAvro(b *testing.B) {
	values, _ := quakes(20_000)
	data := writeAvro(b, quakeSchema, "zstandard", values...)
	var rows, size int64
	for b.Loop() {
		r, err := Open(newFile(data), Options{Format: Avro})
		if err != nil {
			b.Fatal(err)
		}
		rows, size = 0, 0
		for {
			row, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows, size = rows+1, size+int64(len(row.Value))
		}
	}
	b.SetBytes(size)
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
