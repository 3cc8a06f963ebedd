package rows

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	hamba "github.com/hamba/avro/v2/ocf"
)

// writeAvro writes a file with a library that shares no code with ours.
func writeAvro(t testing.TB, schema, codec string, values ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := hamba.NewEncoder(schema, &b, hamba.WithCodec(hamba.CodecName(codec)), hamba.WithBlockLength(max(3, len(values)/100)))
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := w.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// avroFile makes a file of blocks as they are.
func avroFile(schema, codec string, blocks ...string) []byte {
	text := func(s string) string { return string(binary.AppendVarint(nil, int64(len(s)))) + s }
	b := []byte("Obj\x01\x04" + text("avro.schema") + text(schema) + text("avro.codec") + text(codec) + "\x00")
	const sync = "0123456789abcdef"
	b = append(b, sync...)
	for _, block := range blocks {
		b = append(append(b, block...), sync...)
	}
	return b
}

func avroBlock(rows int64, data string) string {
	return string(binary.AppendVarint(binary.AppendVarint(nil, rows), int64(len(data)))) + data
}

const quakeSchema = `{"type":"record","name":"q","fields":[
 {"name":"id","type":"long"},{"name":"place","type":["null","string"]},{"name":"mag","type":"double"},
 {"name":"tags","type":{"type":"array","items":"string"}}]}`

func quakes(n int) (values []any, want []string) {
	for i := range n {
		v := map[string]any{"id": int64(i) << 40, "place": nil, "mag": float64(i) / 8, "tags": []any{}}
		text := fmt.Sprintf(`{"id":%d,"place":null,"mag":%v,"tags":[]}`, int64(i)<<40, float64(i)/8)
		if i%2 == 1 {
			v["place"], v["tags"] = fmt.Sprint("at ", i), []any{"a", "b"}
			text = fmt.Sprintf(`{"id":%d,"place":"at %d","mag":%v,"tags":["a","b"]}`, int64(i)<<40, i, float64(i)/8)
		}
		values, want = append(values, v), append(want, text)
	}
	return values, want
}

// TestAvroCodecs reads each codec from each row on.
func TestAvroCodecs(t *testing.T) {
	values, want := quakes(20)
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		b := writeAvro(t, quakeSchema, codec, values...)
		for from := range 22 {
			got, err := readRows(t, newFile(b), Options{Format: Avro, From: uint64(from)})
			if err != nil {
				t.Fatalf("%s from %d: %v", codec, from, err)
			}
			if d := cmp.Diff(want[min(from, 20):], got, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("%s from %d: %s", codec, from, d)
			}
		}
	}
}

func TestAvroValues(t *testing.T) {
	day := time.Date(2001, 9, 9, 1, 46, 40, 123456789, time.UTC)
	for name, c := range map[string]struct {
		typ   string
		value any
		want  string
	}{
		"null":             {`"null"`, nil, `null`},
		"boolean":          {`"boolean"`, true, `true`},
		"int":              {`"int"`, -7, `-7`},
		"long":             {`"long"`, int64(1)<<53 + 1, `9007199254740993`},
		"float":            {`"float"`, float32(0.1), `0.1`},
		"double":           {`"double"`, 1e-9, `1e-09`},
		"string":           {`"string"`, "a\"é\n", `"a\"é\n"`},
		"bytes":            {`"bytes"`, []byte("\xff\x00"), `{"base64":"/wA="}`},
		"bytes of text":    {`"bytes"`, []byte("abc"), `"abc"`},
		"enum":             {`{"type":"enum","name":"e","symbols":["A","B"]}`, "B", `"B"`},
		"fixed":            {`{"type":"fixed","name":"f","size":2}`, [2]byte{0xff, 1}, `{"base64":"/wE="}`},
		"map":              {`{"type":"map","values":["null","int"]}`, map[string]any{"k\"": 5}, `{"k\"":5}`},
		"union":            {`["null","string","long"]`, map[string]any{"long": int64(4)}, `4`},
		"date":             {`{"type":"int","logicalType":"date"}`, day, `"2001-09-09"`},
		"time-millis":      {`{"type":"int","logicalType":"time-millis"}`, 61001 * time.Millisecond, `"00:01:01.001"`},
		"time-micros":      {`{"type":"long","logicalType":"time-micros"}`, 61001001 * time.Microsecond, `"00:01:01.001001"`},
		"timestamp-millis": {`{"type":"long","logicalType":"timestamp-millis"}`, day, `"2001-09-09T01:46:40.123Z"`},
		"timestamp-micros": {`{"type":"long","logicalType":"timestamp-micros"}`, day, `"2001-09-09T01:46:40.123456Z"`},
		"local":            {`{"type":"long","logicalType":"local-timestamp-micros"}`, day.UnixMicro(), `"2001-09-09T01:46:40.123456Z"`},
		"decimal":          {`{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`, big.NewRat(-1234, 100), `"-12.34"`},
		"uuid":             {`{"type":"string","logicalType":"uuid"}`, "00112233-4455-6677-8899-aabbccddeeff", `"00112233-4455-6677-8899-aabbccddeeff"`},
		"record": {
			`{"type":"record","name":"n.in","fields":[{"name":"a","type":{"type":"fixed","name":"x","size":1}},{"name":"b","type":"n.x"}]}`,
			map[string]any{"a": [1]byte{'1'}, "b": [1]byte{'2'}}, `{"a":"1","b":"2"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := writeAvro(t, `{"type":"record","name":"r","fields":[{"name":"v","type":`+c.typ+`}]}`, "null", map[string]any{"v": c.value})
			got, err := readRows(t, newFile(b), Options{Format: Avro})
			if want := []string{`{"v":` + c.want + `}`}; err != nil || !cmp.Equal(got, want) {
				t.Errorf("got %s, %v, not %s", got, err, want)
			}
		})
	}
}

// TestAvroRoots checks that each row is an object, whatever the schema.
func TestAvroRoots(t *testing.T) {
	for name, c := range map[string]struct{ schema, data, want string }{
		"a string":            {`"string"`, "\x04ab", `{"value":"ab"}`},
		"a map":               {`{"type":"map","values":"int"}`, "\x02\x02k\x02\x00", `{"k":1}`},
		"nothing":             {`"null"`, "", `{"value":null}`},
		"a record of a union": {`["null",{"type":"record","name":"r","fields":[{"name":"a","type":"int"}]}]`, "\x02\x04", `{"a":2}`},
		"null of a union":     {`["null","int"]`, "\x00", `{"value":null}`},
		"a record in itself":  {`{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}`, "\x02\x02\x00", `{"next":{"next":{"next":null}}}`},
		"nanoseconds": {
			`{"type":"long","logicalType":"timestamp-nanos"}`, string(binary.AppendVarint(nil, 1000000000123456789)),
			`{"value":"2001-09-09T01:46:40.123456789Z"}`,
		},
		"an array with a block's size": {`{"type":"array","items":"int"}`, "\x03\x04\x02\x04\x02\x06\x00", `{"value":[1,2,3]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readRows(t, newFile(avroFile(c.schema, "null", avroBlock(1, c.data))), Options{Format: Avro})
			if err != nil || len(got) != 1 || got[0] != c.want {
				t.Errorf("got %s, %v, not %s", got, err, c.want)
			}
		})
	}
}

const selfSchema = `{"type":"record","name":"r","fields":[{"name":"next","type":["null","r"]}]}`

// TestAvroHostile has what is wrong with files, and how many rows come before.
func TestAvroHostile(t *testing.T) {
	values, _ := quakes(9)
	sound := writeAvro(t, quakeSchema, "deflate", values...)
	ints := func(blocks ...string) []byte { return avroFile(`"int"`, "null", blocks...) }
	wrongSync := ints(avroBlock(1, "\x02"), avroBlock(1, "\x02"))
	wrongSync[len(wrongSync)-1] = 'X'
	for name, c := range map[string]struct {
		file []byte
		rows int
		says string
	}{
		"empty":                      {nil, 0, "does not begin as an Avro"},
		"another kind":               {[]byte(`{"a":1}`), 0, "does not begin as an Avro"},
		"cut in the header":          {sound[:100], 0, "cut off"},
		"cut in a block":             {sound[:len(sound)-20], 6, "cut off"},
		"no schema":                  {append([]byte("Obj\x01\x00"), make([]byte, 16)...), 0, "schema"},
		"a header of 1 GB":           {[]byte("Obj\x01\x02\x80\x80\x80\x80\x08"), 0, "more than 4194304 bytes"},
		"a bad schema":               {avroFile(`{"type":"sheep"}`, "null"), 0, "schema"},
		"another codec":              {avroFile(`"int"`, "bzip2"), 0, `"bzip2"`},
		"a block of 1 GB":            {ints("\x02\x80\x80\x80\x80\x08"), 0, "1073741824 bytes"},
		"a block of fewer than none": {ints("\x02\x01"), 0, "in -1 bytes"},
		"a wrong marker":             {wrongSync, 1, "sync marker"},
		"rows of no bytes":           {avroFile(`"null"`, "null", avroBlock(1<<40, "")), 0, "1099511627776 rows in 0 bytes"},
		"fewer rows than it says":    {ints(avroBlock(2, "\x02")), 1, "cut off or too long"},
		"more rows than it says":     {ints(avroBlock(1, "\x02\x02")), 0, "after its last row"},
		"no int":                     {ints(avroBlock(1, "\xff\xff\xff\xff\xff\x0f")), 0, "an int of"},
		"a union's wrong branch":     {avroFile(selfSchema, "null", avroBlock(1, "\x04")), 0, "none with the number 2"},
		"a string beyond the block":  {avroFile(`"string"`, "null", avroBlock(1, "\x08a")), 0, "a value of 4 bytes"},
		"endless in itself":          {avroFile(selfSchema, "null", avroBlock(1, strings.Repeat("\x02", 1<<20))), 0, "10000 deep"},
		"nothing in itself": {
			avroFile(`{"type":"record","name":"r","fields":[{"name":"a","type":"r"}]}`, "null", avroBlock(1, "")), 0, "",
		},
		"snappy bomb": {avroFile(`"int"`, "snappy", avroBlock(1, "\xff\xff\xff\xff\x0f0000")), 0, "cannot be unpacked"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, err := readRows(t, newFile(c.file), Options{Format: Avro})
			fileError(t, err, c.says)
			if len(rows) != c.rows {
				t.Errorf("%d rows before, not %d", len(rows), c.rows)
			}
		})
	}
}

// TestAvroRejected checks that rows that are too long or nested too deep are passed
// over.
func TestAvroRejected(t *testing.T) {
	deep := strings.Repeat("\x02", 200) + "\x00"
	got, err := readRows(t, newFile(avroFile(selfSchema, "null", avroBlock(2, deep+"\x00"))), Options{Format: Avro})
	if want := []string{"rejected: values are nested more than 128 deep", `{"next":null}`}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %s, %v", got, err)
	}
	long := string(binary.AppendVarint(nil, 5000)) + strings.Repeat("x", 5000)
	got, err = readRows(t, newFile(avroFile(`"string"`, "null", avroBlock(3, "\x02a"+long+"\x02b"))), Options{Format: Avro, MaxRow: 1000})
	if want := []string{`{"value":"a"}`, "rejected: the row is longer than 1000 bytes as JSON", `{"value":"b"}`}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("got %s, %v", got, err)
	}
	// A list of nothing, 65,536 times in each of its blocks: bounded in time too.
	nulls := strings.Repeat(string(binary.AppendVarint(nil, maxEmptyRows)), 5000) + "\x00"
	got, err = readRows(t, newFile(avroFile(`{"type":"array","items":"null"}`, "null", avroBlock(1, nulls))), Options{Format: Avro})
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "rejected: the row is longer") {
		t.Errorf("got %.100s, %v", got, err)
	}
}

// TestAvroMemory reads blocks as large as they may be.
func TestAvroMemory(t *testing.T) {
	text := strings.Repeat("x", 1<<20)
	row := string(binary.AppendVarint(nil, int64(len(text)))) + text
	block := avroBlock(31, strings.Repeat(row, 31))
	s := &sparse{blocks: map[int64][]byte{}}
	if _, err := s.Write(avroFile(`"string"`, "null", block, block, block)); err != nil {
		t.Fatal(err)
	}
	s.keep()
	rows, good, _, err := measured(t, s, Options{Format: Avro})
	if rows != 93 || good != 93 || err != nil {
		t.Errorf("%d rows, %d good, %v", rows, good, err)
	}
}

func TestAvroDamaged(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	values, _ := quakes(30)
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		sound := writeAvro(t, quakeSchema, codec, values...)
		for range 500 {
			b := bytes.Clone(sound)
			for range 1 + rng.IntN(4) {
				b[rng.IntN(len(b))] = byte(rng.Uint32())
			}
			checkHostile(t, b, Avro)
		}
	}
}

// TestAvroFileFails checks that a File that fails is told from a file that is bad.
func TestAvroFileFails(t *testing.T) {
	values, _ := quakes(9)
	b := writeAvro(t, quakeSchema, "null", values...)
	gone := errors.New("gone")
	_, err := readRows(t, &failing{fileOf: newFile(b), after: 1, err: gone}, Options{Format: Avro})
	var bad *FileError
	if !errors.Is(err, gone) || errors.As(err, &bad) {
		t.Errorf("got %v", err)
	}
}

func FuzzAvro(f *testing.F) {
	values, _ := quakes(5)
	for _, codec := range []string{"null", "deflate", "snappy", "zstandard"} {
		f.Add(writeAvro(f, quakeSchema, codec, values...))
	}
	f.Add(avroFile(selfSchema, "null", avroBlock(1, "\x02\x02\x00")))
	f.Fuzz(func(t *testing.T, b []byte) { checkHostile(t, b, Avro) })
}
