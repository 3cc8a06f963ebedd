package parquet

import (
	"strconv"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// The columns that have values, in the order of a file's schema.
const (
	colSegment = iota
	colOffset
	colTime
	colEventTime
	colKey
	colHeaderName
	colHeaderValue
	colURL
	colSize
	colETag
	colVersion
	colContentType
	colSHA256
	colRecords
	colPending
	colRejected
	colRow
	colError
	colSource
	colSequence
	colSourceRow
	colProducer
	colProducerSequence
	colValue
	columnCount
)

// field makes a field with its id, by which Iceberg knows it whatever its name is. Ids
// are for ever: those of fields in groups begin at 100.
func field(id int, name string, t arrow.DataType, nullable bool) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: nullable, Metadata: arrow.NewMetadata([]string{"PARQUET:field_id"}, []string{strconv.Itoa(id)})}
}

// ArrowSchema is the schema of all data files, with field ids.
func ArrowSchema() *arrow.Schema {
	const required, optional = false, true
	long, text, bytes := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.BinaryTypes.Binary
	micros := &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	header := arrow.StructOf(field(101, "name", text, required), field(102, "value", bytes, required))
	return arrow.NewSchema([]arrow.Field{
		field(1, "_segment", text, required),
		field(2, "_offset", long, required),
		field(3, "_ts", micros, required),
		field(4, "_event_ts", micros, optional),
		field(5, "_key", bytes, optional),
		field(6, "_headers", arrow.ListOfField(field(100, "element", header, required)), optional),
		field(7, "_ref", arrow.StructOf(
			field(103, "url", text, required),
			field(104, "size", long, required),
			field(105, "etag", text, optional),
			field(106, "version", text, optional),
			field(107, "content_type", text, optional),
			field(108, "sha256", bytes, optional),
			field(109, "records", long, optional),
			field(110, "pending", arrow.FixedWidthTypes.Boolean, required),
		), optional),
		field(8, "_rejected", text, optional),
		field(9, "_row", arrow.PrimitiveTypes.Int32, optional),
		field(10, "_error", text, optional),
		field(11, "_source", text, required),
		field(12, "_source_seq", long, required),
		field(13, "_source_row", long, required),
		field(14, "_producer", text, optional),
		field(15, "_producer_seq", long, optional),
		field(16, "value", bytes, optional),
	}, nil)
}

// fileSchema is ArrowSchema in Parquet's terms.
var fileSchema = sync.OnceValue(func() *schema.Schema {
	s, err := pqarrow.ToParquet(ArrowSchema(), parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
	if err != nil {
		panic(err) // the schema above is not one: nothing works
	}
	return s
})

// paths are the columns' names as the library has them.
var paths = sync.OnceValue(func() []string {
	names := make([]string, columnCount)
	for i := range names {
		names[i] = fileSchema().Column(i).Path()
	}
	return names
})
