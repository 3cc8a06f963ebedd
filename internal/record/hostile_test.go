package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spillway-mq/spillway/internal/topic"
)

// avroBytes puts Avro data together: ints as longs, strings as they are.
func avroBytes(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = binary.AppendVarint(b, int64(p))
		case string:
			b = append(b, p...)
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

// counted is p with its length before it, as Avro strings and bytes are.
func counted(p string) []byte { return avroBytes(len(p), p) }

// frame is a batch payload that claims rows and holds data.
func frame(rows int, data ...any) []byte {
	return avroBytes(rows, counted(string(avroBytes(data...))))
}

// null is the smallest message: it holds nothing.
const null = "\x00\x00\x00\x00\x00"

// rleBomb is a zstandard frame that unpacks to blocks × 128 KiB of zeros. With a
// size it declares that size.
func rleBomb(blocks int, size uint64) string {
	var b []byte
	if size == 0 {
		b = append(b, "\x28\xb5\x2f\xfd\x00\x40"...) // window of 256 KiB, no size
	} else {
		b = append(b, "\x28\xb5\x2f\xfd\xc0\x40"...)
		b = binary.LittleEndian.AppendUint64(b, size)
	}
	for i := range blocks {
		h := uint32(128<<10)<<3 | 1<<1
		if i == blocks-1 {
			h |= 1
		}
		b = append(b, byte(h), byte(h>>8), byte(h>>16), 0)
	}
	return string(b)
}

func headersOf(parts ...any) []byte { return avroBytes("\x00\x00", avroBytes(parts...), "\x00\x00") }

func refOf(parts ...any) []byte { return avroBytes("\x00\x00\x00\x00\x02", avroBytes(parts...)) }

var hostileBatches = map[string]struct {
	payload []byte
	want    string
}{
	"empty":                       {nil, "ends within a number"},
	"count only":                  {avroBytes(1), "batch data: the data ends"},
	"no rows":                     {frame(0), "0 is not within"},
	"negative rows":               {frame(-1, null), "-1 is not within"},
	"2^60 rows":                   {frame(1<<60, null), "is not within 1 to 65536"},
	"more rows than fit":          {frame(2, null), "2 rows cannot be in 5 bytes"},
	"a row too few":               {frame(1, null, null), "5 bytes follow the last of 1 rows"},
	"a row too many":              {frame(2, "\x00\x00\x00\x02", 1, "x", "\x00\x00\x00\x00"), "row 1"},
	"trailing byte":               {frame(1, null, "\x00"), "1 bytes follow"},
	"data shorter than said":      {avroBytes(1, 9, null), "runs past the end"},
	"data longer than said":       {avroBytes(1, 5, null, "x"), "1 bytes follow it"},
	"negative size":               {avroBytes(1, -5, null), "-5 is negative"},
	"size of 2^60":                {avroBytes(1, 1<<60, null), "runs past the end"},
	"overlong number":             {avroBytes("\x82\x00", counted(null)), "longer than it need be"},
	"number of 11 bytes":          {[]byte(strings.Repeat("\x80", 10) + "\x01"), "over 64 bits"},
	"number of 65 bits":           {[]byte(strings.Repeat("\xff", 9) + "\x02"), "over 64 bits"},
	"key of negative length":      {frame(1, "\x00\x02", -1, null), "row 0: key: the length -1 is negative"},
	"key of minimal length":       {frame(1, "\x00\x02", math.MinInt64, null), "row 0: key: the length -9223372036854775808 is negative"},
	"key past the end":            {frame(1, "\x00\x02", 99, null), "row 0: key: the length 99 runs past"},
	"value of 2^62":               {frame(1, "\x00\x00\x00\x02", 1<<62, null), "row 0: value: the length 4611686018427387904 runs past"},
	"third union branch":          {frame(1, "\x00\x04\x00\x00\x00"), "row 0: key: the union has no branch 2"},
	"negative union branch":       {frame(1, "\x00\x01\x00\x00\x00"), "no branch -1"},
	"overlong union branch":       {frame(1, "\x82\x00\x02\x00\x00\x00\x00"), "longer than it need be"},
	"event time out of range":     {frame(1, "\x02", 1<<60, "\x00\x00\x00\x00"), "not within the years"},
	"event time of none":          {frame(1, "\x02", minMicros, "\x00\x00\x00\x00"), "stands for none"},
	"2^60 headers":                {frame(1, headersOf(1<<60)), "headers: there are more than 1024"},
	"2^63 headers":                {frame(1, headersOf(math.MinInt64, 0)), "headers: there are more than 1024"},
	"too many headers":            {frame(1, headersOf(1025, strings.Repeat(null, 1000))), "more than 1024"},
	"too many headers in blocks":  {frame(1, headersOf(strings.Repeat(string(avroBytes(1, 0, 0)), 1025), 0)), "more than 1024"},
	"header block of wrong size":  {frame(1, headersOf(-1, 3, 0, 0, 0)), "a block tells a wrong size"},
	"header block past the end":   {frame(1, headersOf(-1, 99, 0, 0, 0)), "99 bytes runs past"},
	"header block negative size":  {frame(1, headersOf(-1, -2, 0, 0, 0)), "-2 is negative"},
	"header name not UTF-8":       {frame(1, headersOf(1, counted("\xff"), 0, 0)), "header name: it is not valid UTF-8"},
	"header name too long":        {frame(1, headersOf(1, counted(strings.Repeat("x", MaxText+1)), 0, 0)), "header name: it has 65537 bytes"},
	"headers without an end":      {frame(1, "\x00\x00", 1, 0, 0), "row 0"},
	"ref cut off":                 {frame(1, refOf(counted("s3://b/k"))), "ref size"},
	"ref of negative size":        {frame(1, refOf(0, -1, 0, 0, 0, 0, 0)), "ref size: -1 is negative"},
	"ref url not UTF-8":           {frame(1, refOf(counted("\xc3"), 0, 0, 0, 0, 0, 0)), "ref url: it is not valid UTF-8"},
	"ref digest of 31 bytes":      {frame(1, refOf(0, 0, 0, 0, 0, "\x02", counted(strings.Repeat("x", 31)), 0)), "it has 31 bytes, not 32"},
	"ref of negative records":     {frame(1, refOf(0, 0, 0, 0, 0, 0, "\x02", -7)), "ref records: -7 is negative"},
	"over the limit, not packed":  {frame(1, "\x00\x00\x00\x02", counted(strings.Repeat("x", MaxBatchBytes)), "\x00"), "at most 8388608 are allowed"},
	"a text where a batch should": {[]byte("hello, this is no batch at all"), "batch data: the length -51 is negative"},
}

var hostileZstd = map[string]struct {
	payload []byte
	want    string
}{
	"nothing packed":        {frame(1), "1 rows cannot be in 0 bytes"},
	"not packed":            {frame(1, null), "zstandard"},
	"10 GiB":                {frame(1, rleBomb(80<<10, 0)), "unpacks to more than the 8388608 bytes"},
	"10 GiB, and says so":   {frame(1, rleBomb(80<<10, 10<<30)), "unpacks to more than the 8388608 bytes"},
	"says less than it is":  {frame(1, rleBomb(80<<10, 1<<20)), "zstandard"},
	"says 2^63":             {frame(1, rleBomb(1, 1<<63)), "unpacks to more than"},
	"a little over":         {frame(1, rleBomb(65, 0)), "unpacks to more than"},
	"many frames":           {frame(1, strings.Repeat(rleBomb(64, 0), 500)), "unpacks to more than"},
	"window of 2 TiB":       {frame(1, "\x28\xb5\x2f\xfd\x00\xf8\x01\x00\x00"), "unpacks to more than"},
	"cut off":               {frame(1, rleBomb(2, 0)[:12]), "zstandard"},
	"needs a dictionary":    {frame(1, "\x28\xb5\x2f\xfd\x01\x40\x07\x01\x00\x00"), "zstandard"},
	"zeros of the allowed":  {frame(MaxBatchRows, rleBomb(64, 0)), "bytes follow the last of 65536 rows"},
	"skippable frames only": {frame(1, strings.Repeat("\x50\x2a\x4d\x18\x00\x00\x00\x00", 1000)), "cannot be in 0 bytes"},
}

func TestHostileBatches(t *testing.T) {
	for name, c := range hostileBatches {
		t.Run(name, func(t *testing.T) { refuse(t, CodecNull, c.payload, c.want, nil) })
	}
	for name, c := range hostileZstd {
		t.Run("zstandard/"+name, func(t *testing.T) { refuse(t, CodecZstd, c.payload, c.want, nil) })
	}
	t.Run("codec", func(t *testing.T) {
		for _, codec := range []string{"", "snappy", "ZSTANDARD", strings.Repeat("x", 1000)} {
			var e *CodecError
			refuse(t, codec, frame(1, null), "is not known", &e)
			if e == nil || e.Codec != codec {
				t.Errorf("codec %q: %v", codec, e)
			}
		}
	})
}

// refuse checks that both decoders refuse the payload for the same reason, the
// set is left alone, and little memory is taken. With codecError it also finds
// that.
func refuse(t *testing.T, codec string, payload []byte, want string, codecError **CodecError) {
	t.Helper()
	first := plain(0, []byte("already there"))
	s := setOf(t, first)
	before := bytes.Clone(s.Data)
	taken := allocated(func() {
		rows, err := s.AppendBatch(Meta{Time: t0, Sequence: 2}, codec, payload, slotOf)
		if !errors.Is(err, ErrFormat) || rows != 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("AppendBatch = %d, %v; want 0 and %q", rows, err, want)
		}
	})
	if limit := uint64(64 << 20); taken > limit {
		t.Errorf("it took %d bytes of memory", taken)
	}
	if len(s.Recs) != 1 || !bytes.Equal(s.Data, before) {
		t.Error("the set is not as it was")
	}
	recs, err := DecodeBatch(Meta{Time: t0, Sequence: 2}, codec, payload)
	if !errors.Is(err, ErrFormat) || recs != nil || !strings.Contains(err.Error(), want) {
		t.Errorf("DecodeBatch = %v, want %q", err, want)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v matches an EOF", err)
	}
	if codecError != nil {
		errors.As(err, codecError)
	}
}

func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// What is unusual, but right.
func TestUnusualBatches(t *testing.T) {
	max := strings.Repeat("v", 1<<20)
	for name, c := range map[string]struct {
		payload []byte
		want    Record
	}{
		"headers in blocks with sizes": {
			frame(1, headersOf(-1, 2, 0, 0, 1, counted("a"), counted("b"), 0)),
			Record{Headers: []Header{{"", []byte{}}, {"a", []byte("b")}}},
		},
		"value over MaxInline": {frame(1, "\x00\x00\x00\x02", counted(max), "\x00"), Record{Value: []byte(max)}},
		"empty is not null":    {frame(1, "\x00\x02\x00\x00\x02\x00\x00"), Record{Key: []byte{}, Value: []byte{}}},
		"key not UTF-8":        {frame(1, "\x00\x02", counted("\xff\xfe"), "\x00\x00\x00"), Record{Key: []byte("\xff\xfe")}},
		"all the headers": {
			frame(1, headersOf(1024, strings.Repeat(string(avroBytes(counted("n"), 0)), 1024), 0)),
			Record{Headers: repeated(Header{"n", []byte{}}, 1024)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.want.Time, c.want.Position = t0, topic.Position{Sequence: 2}
			var s Set
			if _, err := s.AppendBatch(Meta{Time: t0, Sequence: 2}, CodecNull, c.payload, slotOf); err != nil {
				t.Fatal(err)
			}
			for reader, read := range map[string]func([]byte) ([]Record, error){"ours": readChunk, "twmb": readTwmb, "hamba": readHamba} {
				got, err := read(chunkOf(t, &s, CodecZstd))
				if err != nil {
					t.Fatalf("%s: %v", reader, err)
				}
				if d := diff([]Record{c.want}, got); d != "" {
					t.Errorf("%s (-want +got):\n%s", reader, d)
				}
			}
		})
	}
}

func repeated[T any](v T, n int) []T {
	list := make([]T, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// chunkParts is a chunk file with the null codec in parts that tests change.
type chunkParts struct{ magic, meta, sync, blocks string }

func (p chunkParts) file() []byte { return avroBytes(p.magic, p.meta, p.sync, p.blocks) }

func goodParts(codec string) chunkParts {
	const sync = "0123456789abcdef"
	return chunkParts{magic, metaOf(codec, Schema()), sync, string(avroBytes(1, counted(goodRecord), sync))}
}

func metaOf(codec, schema string) string {
	return string(avroBytes(2, counted("avro.codec"), counted(codec), counted("avro.schema"), counted(schema), 0))
}

const goodRecord = "\x00\x02\x00\x00\x00" + null

func TestHostileChunks(t *testing.T) {
	const sync = "0123456789abcdef"
	block := func(count int, data string) string { return string(avroBytes(count, counted(data), sync)) }
	for name, c := range map[string]struct {
		change func(p *chunkParts)
		want   string
	}{
		"empty file":              {func(p *chunkParts) { *p = chunkParts{} }, "ends within it"},
		"not Avro":                {func(p *chunkParts) { p.magic = "PAR1" }, "not an Avro file"},
		"another version of Avro": {func(p *chunkParts) { p.magic = "Obj\x02" }, "not an Avro file"},
		"no metadata":             {func(p *chunkParts) { p.meta = "\x00" }, "avro.schema is missing"},
		"2^60 metadata":           {func(p *chunkParts) { p.meta = string(avroBytes(1 << 60)) }, "header"},
		"metadata past the end":   {func(p *chunkParts) { p.meta = string(avroBytes(1, 1<<60)) }, "too large"},
		"metadata without end": {func(p *chunkParts) {
			p.meta = string(avroBytes(1<<40, strings.Repeat("\x00", 1<<20)))
		}, "too large"},
		"metadata blocks without end": {func(p *chunkParts) {
			p.meta = strings.Repeat(string(avroBytes(math.MinInt64, 0, 0, 0)), 1<<17)
		}, "too large"},
		"codec deflate":       {func(p *chunkParts) { p.meta = metaOf("deflate", Schema()) }, `codec "deflate" is not known`},
		"no sync marker":      {func(p *chunkParts) { p.sync, p.blocks = "0123", "" }, "ends within it"},
		"wrong sync marker":   {func(p *chunkParts) { p.sync = "fedcba9876543210" }, "block 1: the sync marker is not there"},
		"no records":          {func(p *chunkParts) { p.blocks = block(0, "") }, "0 records cannot be"},
		"negative records":    {func(p *chunkParts) { p.blocks = block(-1, goodRecord) }, "-1 records cannot be"},
		"2^60 records":        {func(p *chunkParts) { p.blocks = block(1<<60, goodRecord) }, "1152921504606846976 records cannot be"},
		"a record too few":    {func(p *chunkParts) { p.blocks = block(1, goodRecord+goodRecord) }, "10 bytes follow its last record"},
		"negative size":       {func(p *chunkParts) { p.blocks = string(avroBytes(1, -1)) }, "size of -1 bytes"},
		"17 MiB":              {func(p *chunkParts) { p.blocks = string(avroBytes(1, 17<<20)) }, "size of 17825792 bytes"},
		"bytes that are none": {func(p *chunkParts) { p.blocks = string(avroBytes(1, 16<<20, "few")) }, "ends within it"},
		"overlong count":      {func(p *chunkParts) { p.blocks = "\x82\x00" + p.blocks[1:] }, "longer than it need be"},
		"endless count":       {func(p *chunkParts) { p.blocks = strings.Repeat("\xff", 20) }, "over 64 bits"},
		"second block":        {func(p *chunkParts) { p.blocks += "\x02" }, "block 2: the file ends within it"},
		"ts out of range": {func(p *chunkParts) {
			p.blocks = block(1, string(avroBytes(1<<60))+goodRecord[1:])
		}, "block 1: record 0: ts: the time"},
		"negative sequence": {func(p *chunkParts) { p.blocks = block(1, "\x00\x01"+goodRecord[2:]) }, "sequence: -1 is negative"},
		"negative row":      {func(p *chunkParts) { p.blocks = block(1, "\x00\x00\x01"+goodRecord[3:]) }, "row: -1 is negative"},
		"row of 2^31":       {func(p *chunkParts) { p.blocks = block(1, "\x00\x00"+string(avroBytes(1<<31))+goodRecord[3:]) }, "not a row number"},
		"empty reason":      {func(p *chunkParts) { p.blocks = block(1, goodRecord[:4]+"\x02\x00"+null) }, "the reason is empty"},
		"producer not UTF-8": {func(p *chunkParts) {
			p.blocks = block(1, "\x00\x02\x00\x02"+string(counted("\xff"))+"\x00\x00"+null)
		}, "id: it is not valid UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			p := goodParts(CodecNull)
			c.change(&p)
			refuseChunk(t, p.file(), c.want)
		})
	}
	p := goodParts(CodecNull)
	if recs, err := readChunk(p.file()); err != nil || len(recs) != 1 {
		t.Fatalf("the file that the cases change is bad itself: %v", err)
	}
	for name, c := range hostileZstd {
		t.Run("zstandard/"+name, func(t *testing.T) {
			if name == "zeros of the allowed" || name == "a little over" {
				return // within the larger limit of chunks, and refused as records
			}
			p := goodParts(CodecZstd)
			p.blocks = string(c.payload) + sync
			want := strings.ReplaceAll(c.want, "8388608", "16777216")
			refuseChunk(t, p.file(), strings.ReplaceAll(want, "rows", "records"))
		})
	}
}

func refuseChunk(t *testing.T, file []byte, want string) {
	t.Helper()
	var err error
	if taken := allocated(func() { _, err = readChunk(file) }); taken > 64<<20 {
		t.Errorf("it took %d bytes of memory", taken)
	}
	if !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%v matches an EOF", err)
	}
}

func TestChunkOfAnotherSchema(t *testing.T) {
	p := goodParts(CodecNull)
	p.meta = metaOf(CodecNull, MessageSchema())
	var e *SchemaError
	if _, err := readChunk(p.file()); !errors.As(err, &e) || e.Name != "spillway.Message" || errors.Is(err, ErrFormat) {
		t.Errorf("got %v", err)
	}
}

// Cut off anywhere but between blocks, and with any bit flipped, a file gives a
// typed error or, where the flip does not show, records.
func TestTruncatedAndFlipped(t *testing.T) {
	recs := []Record{plain(1, []byte("one")), plain(2, []byte(`{"two":2}`)), plain(3, nil)}
	recs[1].ID, recs[2].Rejected = &ID{"p", 7}, "no"
	for _, codec := range []string{CodecNull, CodecZstd} {
		file := chunkOf(t, setOf(t, recs...), codec)
		headerEnd := len(appendHeader(nil, codec, make([]byte, syncSize)))
		for n := range file {
			got, err := readChunk(file[:n])
			if n == headerEnd && err == nil && len(got) == 0 {
				continue // a whole file without records
			}
			if !errors.Is(err, ErrFormat) {
				t.Fatalf("%s, cut at %d of %d: %d records, %v", codec, n, len(file), len(got), err)
			}
		}
		for bit := 0; bit < len(file)*8; bit++ {
			if bit/8 > 40 && bit/8 < headerEnd-40 {
				bit += 60 // within the text of the schema
			}
			bad := bytes.Clone(file)
			bad[bit/8] ^= 1 << (bit % 8)
			got, err := readChunk(bad)
			var schema *SchemaError
			if err != nil && !errors.Is(err, ErrFormat) && !errors.As(err, &schema) {
				t.Fatalf("%s, bit %d: %v", codec, bit, err)
			}
			if err == nil && codec == CodecZstd && diff(recs, got) != "" {
				t.Fatalf("the flip of bit %d went unnoticed", bit)
			}
		}
	}
}

// A stream that fails is no corrupt file, whatever it calls its failure.
func TestStreamErrorsPassThrough(t *testing.T) {
	file := chunkOf(t, setOf(t, plain(1, []byte("one"))), CodecZstd)
	for _, broken := range []error{errors.New("connection reset"), io.ErrUnexpectedEOF, io.ErrNoProgress} {
		for n := range file {
			rd, err := NewReader(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken)))
			if err == nil {
				_, err = drain(rd)
			}
			if !errors.Is(err, broken) || errors.Is(err, ErrFormat) {
				t.Fatalf("%v at %d: got %v", broken, n, err)
			}
		}
	}
}
