package parquet

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/record"
)

// benchFile is a file of half a million records.
func benchFile(b *testing.B, records []record.Record) []byte {
	b.Helper()
	var out bytes.Buffer
	if err := writeOurs(&out, records); err != nil {
		b.Fatal(err)
	}
	return out.Bytes()
}

// BenchmarkRead reads a file of half a million records in several ways.
func BenchmarkRead(b *testing.B) {
	records := benchRecords(500_000)
	data, raw := benchFile(b, records), rawBytes(records)
	for name, c := range map[string]struct {
		filter Filter
		rows   int
	}{
		"all":       {Filter{}, len(records)},
		"no-values": {Filter{NoValues: true}, len(records)},
		"offset":    {Filter{From: 300_000, To: 300_001}, 1},
		"1000-rows": {Filter{From: 300_000, To: 301_000}, 1000},
		"key":       {Filter{HasKey: true, Key: records[1234].Key}, -1},
		"no-key":    {Filter{HasKey: true, Key: []byte("nobody")}, 0},
		"last-part": {Filter{Since: records[490_000].Time}, 10_000},
	} {
		b.Run(name, func(b *testing.B) {
			if c.rows == len(records) {
				b.SetBytes(raw)
			}
			b.ReportAllocs()
			for b.Loop() {
				r, err := Open(bytes.NewReader(data), int64(len(data)))
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, err := range r.Records(b.Context(), c.filter) {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				if c.rows >= 0 && n < c.rows || c.rows == 1 && n != 1 {
					b.Fatalf("%d records", n)
				}
			}
		})
	}
}

// nowhere is a filer that keeps nothing.
type nowhere struct{ filer.Store }

func (nowhere) UploadAs(_ context.Context, _ string, data []byte, _ filer.Storage) (filer.Blob, error) {
	return filer.Blob{ID: "1,1", Size: int64(len(data))}, nil
}

func (nowhere) Create(context.Context, string, filer.File) error { return nil }

// BenchmarkMemory writes 1 GiB of rows to a filer that keeps nothing, as one file, and
// looks at what is in use meanwhile.
func BenchmarkMemory(b *testing.B) {
	records := benchRecords(100_000)
	raw := rawBytes(records)
	for b.Loop() {
		runtime.GC()
		var before, now runtime.MemStats
		runtime.ReadMemStats(&before)
		var peak, stop atomic.Uint64
		done := make(chan struct{})
		go func() {
			defer close(done)
			for stop.Load() == 0 {
				runtime.ReadMemStats(&now)
				peak.Store(max(peak.Load(), now.HeapInuse-before.HeapInuse))
				<-time.After(20 * time.Millisecond)
			}
		}()
		written, err := writeMany(b, records, (1<<30)/raw+1)
		stop.Store(1)
		<-done
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(peak.Load())/1e6, "peak-MB")
		b.ReportMetric(float64(written)/1e6, "file-MB")
	}
}

// writeMany writes the records some times over.
func writeMany(b *testing.B, records []record.Record, times int64) (int64, error) {
	b.Helper()
	out := filer.NewFileWriter(b.Context(), nowhere{}, "/buckets/b/data")
	defer out.Abort()
	w, err := NewWriter(out, WriterOptions{Segment: benchSegment})
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	row := Row{Source: benchSource, Batch: NoBatch}
	for offset := range uint64(times) * uint64(len(records)) {
		row.Offset, row.Record = offset, records[offset%uint64(len(records))]
		if err := w.Write(&row); err != nil {
			return 0, err
		}
	}
	if _, err := w.Close(); err != nil {
		return 0, err
	}
	_, _, err = out.Finish(fmt.Sprintf("/buckets/b/data/%x", out.Sum()), nil)
	return out.Size(), err
}
