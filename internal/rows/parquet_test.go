package rows

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	required = parquet.Repetitions.Required
	optional = parquet.Repetitions.Optional
	repeated = parquet.Repetitions.Repeated
)

// leaf is a field with a logical type; length is of values of a fixed length.
func leaf(name string, rep parquet.Repetition, l schema.LogicalType, p parquet.Type, length int) schema.Node {
	return schema.Must(schema.NewPrimitiveNodeLogical(name, rep, l, p, length, -1))
}

func group(name string, rep parquet.Repetition, fields ...schema.Node) schema.Node {
	return schema.Must(schema.NewGroupNode(name, rep, fields, -1))
}

func listOf(name string, rep parquet.Repetition, element schema.Node) schema.Node {
	return schema.Must(schema.NewGroupNodeLogical(name, rep, schema.FieldList{element}, schema.NewListLogicalType(), -1))
}

// TestParquetValues reads a column of each type.
func TestParquetValues(t *testing.T) {
	none := schema.NoLogicalType{}
	int96 := func(nanos int64, day uint32) parquet.Int96 {
		v := parquet.NewInt96([3]uint32{0, 0, day})
		v.SetNanoSeconds(nanos)
		return v
	}
	fixed := func(values ...string) []parquet.FixedLenByteArray {
		b := make([]parquet.FixedLenByteArray, len(values))
		for i, v := range values {
			b[i] = parquet.FixedLenByteArray(v)
		}
		return b
	}
	interval := schema.Must(schema.NewPrimitiveNodeConverted("v", required, parquet.Types.FixedLenByteArray, schema.ConvertedTypes.Interval, 12, 0, 0, -1))
	for name, c := range map[string]struct {
		node   schema.Node
		values any
		want   []string
	}{
		"bool":   {leaf("v", required, none, parquet.Types.Boolean, 0), []bool{true, false}, []string{"true", "false"}},
		"int32":  {leaf("v", required, none, parquet.Types.Int32, 0), []int32{math.MinInt32, 7}, []string{"-2147483648", "7"}},
		"uint32": {leaf("v", required, schema.NewIntLogicalType(32, false), parquet.Types.Int32, 0), []int32{-1}, []string{"4294967295"}},
		"int64":  {leaf("v", required, none, parquet.Types.Int64, 0), []int64{math.MinInt64, 1<<53 + 1}, []string{"-9223372036854775808", "9007199254740993"}},
		"uint64": {leaf("v", required, schema.NewIntLogicalType(64, false), parquet.Types.Int64, 0), []int64{-1}, []string{"18446744073709551615"}},
		"float": {
			leaf("v", required, none, parquet.Types.Float, 0),
			[]float32{0.1, 1e-9, float32(math.Inf(-1)), float32(math.NaN())}, []string{"0.1", "1e-09", `"-Infinity"`, `"NaN"`},
		},
		"double": {
			leaf("v", required, none, parquet.Types.Double, 0),
			[]float64{0.1, 1e21, 123456789, math.Inf(1)}, []string{"0.1", "1e+21", "123456789", `"Infinity"`},
		},
		"float16": {
			leaf("v", required, schema.Float16LogicalType{}, parquet.Types.FixedLenByteArray, 2),
			fixed("\x00\x3c", "\x00\xc0", "\x01\x00", "\x00\x7c"), []string{"1", "-2", "5.9604645e-08", `"Infinity"`},
		},
		"string": {
			leaf("v", required, schema.StringLogicalType{}, parquet.Types.ByteArray, 0),
			texts("a\"\n\x01é", "", "\xff"), []string{`"a\"\n\u0001é"`, `""`, `{"base64":"/w=="}`},
		},
		"bytes": {leaf("v", required, none, parquet.Types.ByteArray, 0), texts("text", "\x00\xfe"), []string{`"text"`, `{"base64":"AP4="}`}},
		"uuid": {
			leaf("v", required, schema.UUIDLogicalType{}, parquet.Types.FixedLenByteArray, 16),
			fixed("\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff"), []string{`"00112233-4455-6677-8899-aabbccddeeff"`},
		},
		"decimal of 32 bits": {
			leaf("v", required, schema.NewDecimalLogicalType(9, 2), parquet.Types.Int32, 0),
			[]int32{-1, 0, 12345, -100}, []string{`"-0.01"`, `"0.00"`, `"123.45"`, `"-1.00"`},
		},
		"decimal of 64 bits": {leaf("v", required, schema.NewDecimalLogicalType(18, 0), parquet.Types.Int64, 0), []int64{-42}, []string{`"-42"`}},
		"decimal of bytes": {
			leaf("v", required, schema.NewDecimalLogicalType(38, 10), parquet.Types.FixedLenByteArray, 16),
			fixed(strings.Repeat("\xff", 16), "\x00"+strings.Repeat("\xff", 15)), []string{`"-0.0000000001"`, `"132922799578491587290380706.0280344575"`},
		},
		"date": {
			leaf("v", required, schema.DateLogicalType{}, parquet.Types.Int32, 0),
			[]int32{0, -1, math.MaxInt32}, []string{`"1970-01-01"`, `"1969-12-31"`, "2147483647"},
		},
		"time ms": {
			leaf("v", required, schema.NewTimeLogicalType(true, schema.TimeUnitMillis), parquet.Types.Int32, 0),
			[]int32{3723004, -1}, []string{`"01:02:03.004"`, "-1"},
		},
		"time ns": {
			leaf("v", required, schema.NewTimeLogicalType(true, schema.TimeUnitNanos), parquet.Types.Int64, 0),
			[]int64{86399_999999999, 86400_000000000}, []string{`"23:59:59.999999999"`, "86400000000000"},
		},
		"timestamp ms": {
			leaf("v", required, schema.NewTimestampLogicalType(true, schema.TimeUnitMillis), parquet.Types.Int64, 0),
			[]int64{-1, 1e12, math.MaxInt64}, []string{`"1969-12-31T23:59:59.999Z"`, `"2001-09-09T01:46:40.000Z"`, "9223372036854775807"},
		},
		"timestamp us, local": {
			leaf("v", required, schema.NewTimestampLogicalType(false, schema.TimeUnitMicros), parquet.Types.Int64, 0),
			[]int64{978307260000001}, []string{`"2001-01-01T00:01:00.000001Z"`},
		},
		"timestamp ns": {
			leaf("v", required, schema.NewTimestampLogicalType(true, schema.TimeUnitNanos), parquet.Types.Int64, 0),
			[]int64{math.MinInt64}, []string{`"1677-09-21T00:12:43.145224192Z"`},
		},
		"int96": {
			leaf("v", required, none, parquet.Types.Int96, 0),
			[]parquet.Int96{int96(1, 2440588), int96(86399_999999999, 2451911), int96(-1, 0)},
			[]string{`"1970-01-01T00:00:00.000000001Z"`, `"2001-01-01T23:59:59.999999999Z"`, `{"base64":"//////////8AAAAA"}`},
		},
		"interval": {interval, fixed("\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00"), []string{`{"months":1,"days":2,"millis":3}`}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			writeParquet(t, &b, schema.FieldList{c.node}, [][]columnData{{{values: c.values}}})
			got, err := readRows(t, newFile(b.Bytes()), Options{Format: Parquet})
			if err != nil {
				t.Fatal(err)
			}
			for i := range c.want {
				c.want[i] = `{"v":` + c.want[i] + `}`
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
			for _, v := range got {
				if !json.Valid([]byte(v)) {
					t.Errorf("no JSON: %s", v)
				}
			}
		})
	}
}

// TestParquetNesting reads groups, lists and maps in the standard and in the older
// forms, with the levels as the format's specification has them.
func TestParquetNesting(t *testing.T) {
	number := func(name string, rep parquet.Repetition) schema.Node { return schema.NewInt32Node(name, rep, -1) }
	pair := func(key schema.Node) schema.Node {
		return schema.Must(schema.NewGroupNodeLogical("v", optional, schema.FieldList{
			group("key_value", repeated, key, number("value", optional)),
		}, schema.MapLogicalType{}, -1))
	}
	for name, c := range map[string]struct {
		node schema.Node
		data []columnData
		want []string
	}{
		"optional": {number("v", optional), []columnData{{[]int32{1}, []int16{0, 1}, nil}}, []string{"null", "1"}},
		"group": {
			group("v", optional, number("a", optional), number("b", required)),
			[]columnData{{[]int32{1}, []int16{0, 1, 2}, nil}, {[]int32{5, 6}, []int16{0, 1, 1}, nil}},
			[]string{"null", `{"a":null,"b":5}`, `{"a":1,"b":6}`},
		},
		"list": {
			listOf("v", optional, group("list", repeated, number("element", optional))),
			[]columnData{{[]int32{1, 2}, []int16{0, 1, 3, 2, 3}, []int16{0, 0, 0, 1, 1}}},
			[]string{"null", "[]", "[1,null,2]"},
		},
		"list of lists": {
			listOf("v", optional, group("list", repeated, listOf("element", optional, group("list", repeated, number("element", optional))))),
			[]columnData{{[]int32{1, 2, 3}, []int16{5, 5, 5, 2, 3, 4}, []int16{0, 2, 1, 1, 1, 0}}},
			[]string{"[[1,2],[3],null,[]]", "[[null]]"},
		},
		"list of repeated values": {
			listOf("v", optional, number("element", repeated)),
			[]columnData{{[]int32{1, 2}, []int16{1, 2, 2}, []int16{0, 0, 1}}}, []string{"[]", "[1,2]"},
		},
		"list of repeated groups of two": {
			listOf("v", optional, group("element", repeated, number("a", required), number("b", optional))),
			[]columnData{{[]int32{1, 2}, []int16{2, 2, 0}, []int16{0, 1, 0}}, {[]int32{7}, []int16{3, 2, 0}, []int16{0, 1, 0}}},
			[]string{`[{"a":1,"b":7},{"a":2,"b":null}]`, "null"},
		},
		"list of groups called array": {
			listOf("v", optional, group("array", repeated, number("a", required))),
			[]columnData{{[]int32{1}, []int16{2}, []int16{0}}}, []string{`[{"a":1}]`},
		},
		"list of groups called as the list": {
			listOf("v", optional, group("v_tuple", repeated, number("a", required))),
			[]columnData{{[]int32{1}, []int16{2}, []int16{0}}}, []string{`[{"a":1}]`},
		},
		"repeated value": {number("v", repeated), []columnData{{[]int32{1, 2}, []int16{0, 1, 1}, []int16{0, 0, 1}}}, []string{"[]", "[1,2]"}},
		"repeated group": {
			group("v", repeated, number("a", repeated)),
			[]columnData{{[]int32{1, 2}, []int16{2, 2, 1, 0}, []int16{0, 2, 1, 0}}}, []string{`[{"a":[1,2]},{"a":[]}]`, "[]"},
		},
		"map": {
			pair(schema.NewByteArrayNode("key", required, -1)),
			[]columnData{
				{texts("a", "\xff"), []int16{0, 1, 2, 2}, []int16{0, 0, 0, 1}},
				{[]int32{1}, []int16{0, 1, 3, 2}, []int16{0, 0, 0, 1}},
			},
			[]string{"null", "{}", `{"a":1,"{\"base64\":\"/w==\"}":null}`},
		},
		"map of numbers": {
			pair(number("key", required)),
			[]columnData{{[]int32{7}, []int16{2}, []int16{0}}, {[]int32{1}, []int16{3}, []int16{0}}}, []string{`{"7":1}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for version, props := range map[string][]parquet.WriterProperty{
				"v1": {parquet.WithVersion(parquet.V1_0)},
				"v2": {parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithCompression(compress.Codecs.Snappy)},
			} {
				var b bytes.Buffer
				writeParquet(t, &b, schema.FieldList{c.node}, [][]columnData{c.data, c.data}, props...)
				got, err := readRows(t, newFile(b.Bytes()), Options{Format: Parquet})
				if err != nil {
					t.Fatal(err)
				}
				var want []string
				for range 2 {
					for _, w := range c.want {
						want = append(want, `{"v":`+w+`}`)
					}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s: %s", version, d)
				}
			}
		})
	}
}

// TestParquetFrom reads on from each row of a file of several row groups and pages.
func TestParquetFrom(t *testing.T) {
	var groups [][]columnData
	for g := range int32(3) {
		var numbers columnData
		var lists columnData
		v, l := []int32{}, []int32{}
		for i := range int32(40) {
			v = append(v, 100*g+i)
			for k := range i % 4 {
				l = append(l, k)
				lists.rep = append(lists.rep, int16(min(k, 1)))
				lists.def = append(lists.def, 1)
			}
			if i%4 == 0 {
				lists.rep, lists.def = append(lists.rep, 0), append(lists.def, 0)
			}
		}
		numbers.values, lists.values = v, l
		groups = append(groups, []columnData{numbers, lists})
	}
	var b bytes.Buffer
	writeParquet(t, &b, schema.FieldList{schema.NewInt32Node("n", required, -1), schema.NewInt32Node("l", repeated, -1)},
		groups, parquet.WithDataPageSize(64), parquet.WithBatchSize(8))
	all, err := readRows(t, newFile(b.Bytes()), Options{Format: Parquet})
	if err != nil || len(all) != 120 {
		t.Fatalf("%d rows, %v", len(all), err)
	}
	if want := `{"n":203,"l":[0,1,2]}`; all[83] != want {
		t.Errorf("row 83 is %s, not %s", all[83], want)
	}
	for from := range 122 {
		got, err := readRows(t, newFile(b.Bytes()), Options{Format: Parquet, From: uint64(from)})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(all[min(from, 120):], got, cmpopts.EquateEmpty()); d != "" {
			t.Fatalf("from %d: %s", from, d)
		}
	}
}
