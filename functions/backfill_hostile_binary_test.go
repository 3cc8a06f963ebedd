package functions

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/hamba/avro/v2/ocf"
)

// parquetColumn is what a column of a row group has, with its levels.
type parquetColumn struct {
	values   any
	def, rep []int16
}

// inParquet makes a Parquet file of one row group.
func inParquet(fields schema.FieldList, columns []parquetColumn, o ...parquet.WriterProperty) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		root, err := schema.NewGroupNode("root", parquet.Repetitions.Required, fields, -1)
		if err != nil {
			t.Fatal(err)
		}
		out := file.NewParquetWriter(struct{ io.Writer }{w}, root, file.WithWriterProps(parquet.NewWriterProperties(o...)))
		g, err := out.AppendRowGroupChecked()
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range columns {
			c, err := g.NextColumn()
			if err == nil {
				err = column.write(c)
			}
			if err = errors.Join(err, c.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(g.Close(), out.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func (d parquetColumn) write(c file.ColumnChunkWriter) (err error) {
	switch v := d.values.(type) {
	case []int32:
		_, err = c.(*file.Int32ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []parquet.Int96:
		_, err = c.(*file.Int96ColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	case []parquet.ByteArray:
		_, err = c.(*file.ByteArrayColumnChunkWriter).WriteBatch(v, d.def, d.rep)
	default:
		err = errors.ErrUnsupported
	}
	return err
}

// inAvro makes an Avro file.
func inAvro(schema string, values ...any) func(*testing.T, io.Writer) {
	return func(t *testing.T, w io.Writer) {
		t.Helper()
		out, err := ocf.NewEncoder(schema, w, ocf.WithCodec(ocf.Deflate))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range values {
			if err := out.Encode(v); err != nil {
				t.Fatal(err)
			}
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func avroRecord(fields string) string {
	return `{"type":"record","name":"r","fields":[` + fields + `]}`
}

func hostileBinary() []hostileCase {
	zeros := parquet.ByteArray(make([]byte, 1<<20))
	end := parquet.ByteArray("end")
	bytesField := schema.FieldList{schema.NewByteArrayNode("v", parquet.Repetitions.Required, -1)}
	plain := []parquet.WriterProperty{parquet.WithDictionaryDefault(false), parquet.WithStats(false), parquet.WithBatchSize(1)}
	small := parquetFile
	small.MaxRow = 1 << 20
	int96 := parquet.NewInt96([3]uint32{0, 0, 2440588 + 20_000})
	int96.SetNanoSeconds(123_456_789)
	return []hostileCase{
		{name: "nested.parquet", read: parquetFile, make: inParquet(nestedFields(), []parquetColumn{
			{[]int32{1, 2, 3}, []int16{5, 5, 5, 2, 3, 4}, []int16{0, 2, 1, 1, 1, 0}},
			{[]int32{7, 8}, []int16{2, 2, 0}, []int16{0, 1, 0}},
			{[]int32{5}, []int16{2, 1, 0}, []int16{0, 1, 0}},
		}), lines: []string{
			`0 {"lists":[[1,2],[3],null,[]],"groups":[{"a":7,"b":5},{"a":8,"b":null}]}`, `1 {"lists":[[null]],"groups":[]}`,
		}},
		{name: "int96.parquet", read: parquetFile, make: inParquet(
			schema.FieldList{schema.NewInt96Node("at", parquet.Repetitions.Required, -1)},
			[]parquetColumn{{values: []parquet.Int96{int96, parquet.NewInt96([3]uint32{0, 0, 0xffffffff})}}},
		), lines: []string{`0 {"at":"2024-10-04T00:00:00.123456789Z"}`, `1 {"at":{"base64":"AAAAAAAAAAD/////"}}`}},
		{name: "row-group-of-2-GiB.parquet", read: small, make: inParquet(bytesField,
			[]parquetColumn{{values: append(slices.Repeat([]parquet.ByteArray{zeros}, 2048), end)}}, append(plain, parquet.WithDataPageSize(1<<20))...,
		), rows: 2049, good: 1, rejected: "the row is longer than 1048576 bytes as JSON"},
		{name: "page-of-130-MiB.parquet", read: small, make: inParquet(bytesField,
			[]parquetColumn{{values: append(slices.Repeat([]parquet.ByteArray{zeros}, 130), end)}},
			append(plain, parquet.WithDataPageSize(2<<30), parquet.WithBatchSize(2000))...,
		), rows: 131, good: 1, rejected: "the row is longer than 1048576 bytes as JSON"},
		{name: "page-bomb.parquet", read: parquetFile, make: inParquet(bytesField,
			[]parquetColumn{{values: slices.Repeat([]parquet.ByteArray{zeros}, 120)}},
			append(plain, parquet.WithDataPageSize(2<<30), parquet.WithBatchSize(2000), parquet.WithCompression(compress.Codecs.Zstd))...,
		), fails: "its pages are too large"},
		{name: "cut-off.parquet", read: parquetFile, make: cut(4, inParquet(bytesField, []parquetColumn{{values: []parquet.ByteArray{end}}})),
			fails: "the file does not end as a Parquet file: it is cut off"},
		{name: "one-schema.avro", read: avroFile, make: inAvro(avroRecord(`{"name":"a","type":"long"}`), map[string]any{"a": int64(1) << 60}),
			lines: []string{`0 {"a":1152921504606846976}`}},
		{name: "another-schema.avro", read: avroFile, make: inAvro(
			avroRecord(`{"name":"a","type":["null","string"]},{"name":"b","type":{"type":"array","items":"double"}}`),
			map[string]any{"a": "x", "b": []float64{1.5}}, map[string]any{"a": nil, "b": []float64{}},
		), lines: []string{`0 {"a":"x","b":[1.5]}`, `1 {"a":null,"b":[]}`}},
		{name: "truncated.avro", read: avroFile, make: cut(20, inAvro(avroRecord(`{"name":"a","type":"long"}`), manyRecords(150)...)),
			rows: 100, good: 100, fails: "it is cut off"},
		{name: "bomb.avro", read: avroFile, make: func(t *testing.T, w io.Writer) {
			inAvro(avroRecord(`{"name":"a","type":"string"}`), map[string]any{"a": strings.Repeat("x", 40<<20)})(t, w)
		},
			fails: "a block of the Avro file cannot be unpacked"},
		{name: "not.avro", read: avroFile, make: text(fmt.Sprintf("Obj\x01%s", strings.Repeat("\xff", 100))), fails: "the Avro file's header"},
	}
}

// nestedFields are a list of lists, and a repeated group with an optional column.
func nestedFields() schema.FieldList {
	group := func(name string, rep parquet.Repetition, fields ...schema.Node) schema.Node {
		return schema.Must(schema.NewGroupNode(name, rep, fields, -1))
	}
	list := func(name string, element schema.Node) schema.Node {
		return schema.Must(schema.NewGroupNodeLogical(name, parquet.Repetitions.Optional,
			schema.FieldList{group("list", parquet.Repetitions.Repeated, element)}, schema.NewListLogicalType(), -1))
	}
	return schema.FieldList{
		list("lists", list("element", schema.NewInt32Node("element", parquet.Repetitions.Optional, -1))),
		group("groups", parquet.Repetitions.Repeated,
			schema.NewInt32Node("a", parquet.Repetitions.Optional, -1), schema.NewInt32Node("b", parquet.Repetitions.Optional, -1)),
	}
}

func manyRecords(n int) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = map[string]any{"a": int64(i)}
	}
	return list
}
