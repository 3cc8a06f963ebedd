package parquet

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// benchRecords makes records as a busy topic has them: values of JSON, 180 bytes of it,
// two headers, one in a hundred with a reference, 200,000 keys.
func benchRecords(n int) []record.Record {
	r := rand.New(rand.NewPCG(1, 2))
	t := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	cities := []string{"Berlin", "Pune", "Lagos", "Lima", "Oslo", "Quito", "Tunis"}
	records := make([]record.Record, n)
	for i := range records {
		t = t.Add(time.Duration(r.IntN(60)) * time.Microsecond)
		records[i] = record.Record{
			Time: t, EventTime: t.Add(-time.Duration(r.IntN(1e6)) * time.Microsecond),
			Position: topic.Position{Sequence: uint64(1 + i/100), Row: uint32(i % 100)},
			ID:       &record.ID{Producer: fmt.Sprintf("producer-%d", i/100%7), Sequence: uint64(i / 100)},
			Key:      fmt.Appendf(nil, "customer-%06d", r.IntN(200_000)),
			Headers: []record.Header{
				{Name: "content-type", Value: []byte("application/json")},
				{Name: "trace-id", Value: fmt.Appendf(nil, "%016x", r.Uint64())},
			},
			Value: fmt.Appendf(nil, `{"id":%d,"city":"%s","amount":%d.%02d,"currency":"EUR","items":[%d,%d],"status":"%s","note":"order %08x of the customer"}`,
				i, cities[r.IntN(len(cities))], r.IntN(1000), r.IntN(100), r.IntN(1e6), r.IntN(1e6), []string{"new", "paid", "sent"}[r.IntN(3)], r.Uint32()),
		}
		if i%100 == 0 {
			records[i].Ref = &record.Ref{URL: fmt.Sprintf("s3://uploads/%08d.bin", i), Size: int64(r.IntN(1e9)), ETag: fmt.Sprintf("%032x", r.Uint64()), SHA256: bytes.Repeat([]byte{byte(i)}, 32)}
			records[i].Value = nil
		}
	}
	return records
}

const benchSegment = topic.SegmentID("k3j9x2abq7wz4m5n")

func rawBytes(records []record.Record) int64 {
	n := int64(0)
	for i := range records {
		n += rowSize(&Row{Segment: benchSegment, Source: benchSource, Record: records[i]})
	}
	return n
}

const benchSource = "lane.orders.0.k3j9x2ab"

// BenchmarkWrite writes half a million records, with this package's writer and with a
// bare one: arrow-go's builders and its own writer, with the same options.
func BenchmarkWrite(b *testing.B) {
	records := benchRecords(500_000)
	raw := rawBytes(records)
	for name, write := range map[string]func(io.Writer, []record.Record) error{"bare": writeBare, "spillway": writeOurs} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(raw)
			b.ReportAllocs()
			var out counter
			for b.Loop() {
				out = 0
				if err := write(&out, records); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(records))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(out)/1e6, "file-MB")
		})
	}
}

// BenchmarkWriteRatio is how many of the bare writer's rows per second this package's
// writer writes, both in one run, in turns; the median of each.
func BenchmarkWriteRatio(b *testing.B) {
	records := benchRecords(300_000)
	var bare, ours []time.Duration
	measure := func(write func(io.Writer, []record.Record) error) time.Duration {
		begin := time.Now()
		if err := write(io.Discard, records); err != nil {
			b.Fatal(err)
		}
		return time.Since(begin)
	}
	for b.Loop() {
		for range 3 {
			bare = append(bare, measure(writeBare))
			ours = append(ours, measure(writeOurs))
		}
	}
	slices.Sort(bare)
	slices.Sort(ours)
	b.ReportMetric(float64(bare[len(bare)/2])/float64(ours[len(ours)/2]), "ratio")
	b.ReportMetric(0, "ns/op")
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func writeOurs(out io.Writer, records []record.Record) error {
	w, err := NewWriter(out, WriterOptions{Segment: benchSegment})
	if err != nil {
		return err
	}
	row := Row{Source: benchSource, Batch: NoBatch}
	for i := range records {
		row.Offset, row.Record = uint64(i), records[i]
		if err := w.Write(&row); err != nil {
			return err
		}
	}
	_, err = w.Close()
	return err
}

func writeBare(out io.Writer, records []record.Record) error {
	o := WriterOptions{}.withDefaults()
	w, err := pqarrow.NewFileWriter(ArrowSchema(), struct{ io.Writer }{out}, properties(o), pqarrow.DefaultWriterProps())
	if err != nil {
		return err
	}
	b := newBare()
	for i := 0; i < len(records); i += o.GroupRows {
		group := records[i:min(i+o.GroupRows, len(records))]
		w.NewBufferedRowGroup()
		for k := 0; k < len(group); k += 8192 {
			part := group[k:min(k+8192, len(group))]
			for j := range part {
				b.add(uint64(i+k+j), &part[j])
			}
			batch := b.builder.NewRecordBatch()
			err := w.WriteBuffered(batch)
			batch.Release()
			if err != nil {
				return err
			}
		}
	}
	return w.Close()
}

// bare fills arrow-go's builders.
type bare struct {
	builder *array.RecordBuilder
}

func newBare() *bare { return &bare{array.NewRecordBuilder(memory.DefaultAllocator, ArrowSchema())} }

func optionalText(b *array.StringBuilder, s string) {
	if s == "" {
		b.AppendNull()
		return
	}
	b.Append(s)
}

func optionalBytes(b *array.BinaryBuilder, v []byte) {
	if v == nil {
		b.AppendNull()
		return
	}
	b.Append(v)
}

func micros(t time.Time) arrow.Timestamp { return arrow.Timestamp(t.UnixMicro()) }

func (b *bare) add(offset uint64, r *record.Record) {
	text := func(i int) *array.StringBuilder { return b.builder.Field(i).(*array.StringBuilder) }
	long := func(i int) *array.Int64Builder { return b.builder.Field(i).(*array.Int64Builder) }
	text(0).Append(string(benchSegment))
	long(1).Append(int64(offset))
	b.builder.Field(2).(*array.TimestampBuilder).Append(micros(r.Time))
	if event := b.builder.Field(3).(*array.TimestampBuilder); r.EventTime.IsZero() {
		event.AppendNull()
	} else {
		event.Append(micros(r.EventTime))
	}
	optionalBytes(b.builder.Field(4).(*array.BinaryBuilder), r.Key)
	b.addHeaders(r)
	b.addRef(r)
	optionalText(text(7), r.Rejected)
	b.builder.Field(8).(*array.Int32Builder).AppendNull()
	text(9).AppendNull()
	text(10).Append(benchSource)
	long(11).Append(int64(r.Position.Sequence))
	long(12).Append(int64(r.Position.Row))
	if r.ID == nil {
		text(13).AppendNull()
		long(14).AppendNull()
	} else {
		text(13).Append(r.ID.Producer)
		long(14).Append(int64(r.ID.Sequence))
	}
	optionalBytes(b.builder.Field(15).(*array.BinaryBuilder), r.Value)
}

func (b *bare) addHeaders(r *record.Record) {
	list := b.builder.Field(5).(*array.ListBuilder)
	if len(r.Headers) == 0 {
		list.AppendNull()
		return
	}
	list.Append(true)
	element := list.ValueBuilder().(*array.StructBuilder)
	for _, h := range r.Headers {
		element.Append(true)
		element.FieldBuilder(0).(*array.StringBuilder).Append(h.Name)
		element.FieldBuilder(1).(*array.BinaryBuilder).Append(h.Value)
	}
}

func (b *bare) addRef(r *record.Record) {
	ref := b.builder.Field(6).(*array.StructBuilder)
	if r.Ref == nil {
		ref.AppendNull()
		return
	}
	ref.Append(true)
	ref.FieldBuilder(0).(*array.StringBuilder).Append(r.Ref.URL)
	ref.FieldBuilder(1).(*array.Int64Builder).Append(r.Ref.Size)
	optionalText(ref.FieldBuilder(2).(*array.StringBuilder), r.Ref.ETag)
	optionalText(ref.FieldBuilder(3).(*array.StringBuilder), r.Ref.Version)
	optionalText(ref.FieldBuilder(4).(*array.StringBuilder), r.Ref.ContentType)
	optionalBytes(ref.FieldBuilder(5).(*array.BinaryBuilder), r.Ref.SHA256)
	if r.Ref.Records == nil {
		ref.FieldBuilder(6).AppendNull()
	} else {
		ref.FieldBuilder(6).(*array.Int64Builder).Append(*r.Ref.Records)
	}
	ref.FieldBuilder(7).(*array.BooleanBuilder).Append(r.Pending)
}
