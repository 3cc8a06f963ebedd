package record

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/spillway-mq/spillway/internal/topic"
)

func fuzzRecords() []Record {
	n := int64(3)
	return []Record{
		plain(0, []byte(`{"a":1}`)),
		{Time: t0, Position: topic.Position{Sequence: 1, Row: 1}},
		{
			Time: t0, Position: topic.Position{Sequence: 1, Row: 2}, ID: &ID{"producer", 9}, EventTime: t0, Key: []byte{},
			Headers: []Header{{"a", []byte("1")}, {"a", []byte{}}}, Value: []byte{},
			Ref: &Ref{URL: "s3://b/k", Size: 9, ETag: "e", Version: "v", ContentType: "c", SHA256: make([]byte, 32), Records: &n},
		},
		{Time: t0, Position: topic.Position{Sequence: 2}, Rejected: "refused", Value: []byte("\xff")},
	}
}

var fuzzMeta = Meta{Time: t0, Sequence: 5, ID: &ID{"p", 6}}

// FuzzBatch: both decoders take the same batches, and read from them what an
// Avro library reads; what they refuse leaves no trace.
func FuzzBatch(f *testing.F) {
	for _, packed := range []bool{false, true} {
		codec := map[bool]string{false: CodecNull, true: CodecZstd}[packed]
		f.Add(packed, batchOf(f, codec, fuzzRecords()...))
		f.Add(packed, batchOf(f, codec, plain(1, nil)))
	}
	for _, c := range hostileBatches {
		if len(c.payload) < 1<<16 {
			f.Add(false, c.payload)
		}
	}
	for _, c := range hostileZstd {
		if len(c.payload) < 1<<16 {
			f.Add(true, c.payload)
		}
	}
	f.Fuzz(func(t *testing.T, packed bool, payload []byte) {
		codec := CodecNull
		if packed {
			codec = CodecZstd
		}
		s := setOf(t, plain(0, nil))
		before := len(s.Data)
		rows, err := s.AppendBatch(fuzzMeta, codec, payload, slotOf)
		recs, err2 := DecodeBatch(fuzzMeta, codec, payload)
		if err != nil {
			if !errors.Is(err, ErrFormat) || err2 == nil || err.Error() != err2.Error() {
				t.Fatalf("AppendBatch: %v; DecodeBatch: %v", err, err2)
			}
			if len(s.Data) != before || len(s.Recs) != 1 {
				t.Fatal("a refused batch left a trace")
			}
			return
		}
		if err2 != nil || rows != len(recs) || rows != len(s.Recs)-1 {
			t.Fatalf("AppendBatch: %d rows; DecodeBatch: %d, %v", rows, len(recs), err2)
		}
		_, data, err := openBatch(new([]byte), codec, payload)
		if err != nil {
			t.Fatal(err)
		}
		compareWithLibrary(t, data, recs)
		s.Recs = s.Recs[1:]
		for i, r := range s.Recs {
			if r.HasRef != (recs[i].Ref != nil) || r.Pending {
				t.Fatalf("record %d is %+v, of %+v", i, r, recs[i])
			}
		}
		reread(t, s, recs)
		reread(t, setOf(t, recs...), recs)
	})
}

func compareWithLibrary(t *testing.T, data []byte, recs []Record) {
	t.Helper()
	theirs, err := decodeTwmb(data)
	if err != nil {
		t.Fatalf("an Avro library refuses it: %v", err)
	}
	if len(theirs) != len(recs) {
		t.Fatalf("an Avro library reads %d records, we %d", len(theirs), len(recs))
	}
	for i := range theirs {
		theirs[i].Time, theirs[i].Position, theirs[i].ID = recs[i].Time, recs[i].Position, recs[i].ID
	}
	if d := diff(theirs, recs); d != "" {
		t.Fatalf("(-library +ours):\n%s", d)
	}
}

// reread checks that chunks of s hold recs.
func reread(t *testing.T, s *Set, recs []Record) {
	t.Helper()
	for _, codec := range []string{CodecNull, CodecZstd} {
		got, err := readChunk(chunkOf(t, s, codec))
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(recs, got); d != "" {
			t.Fatalf("%s (-want +got):\n%s", codec, d)
		}
	}
}

// FuzzChunk puts any data into the block of a chunk file: what we take, an Avro
// library reads the same, and it can be encoded again.
func FuzzChunk(f *testing.F) {
	for _, recs := range [][]Record{fuzzRecords(), {plain(1, []byte("v"))}} {
		f.Add(len(recs), setOf(f, recs...).Data)
	}
	f.Add(1, []byte(goodRecord))
	f.Add(2, []byte(goodRecord))
	f.Add(1<<60, []byte(goodRecord))
	f.Fuzz(func(t *testing.T, count int, data []byte) {
		p := goodParts(CodecNull)
		p.blocks = string(avroBytes(count, counted(string(data)), p.sync))
		recs, err := readChunk(p.file())
		if err != nil {
			if !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			return
		}
		theirs, err := readTwmb(p.file())
		if err != nil {
			t.Fatalf("an Avro library refuses it: %v", err)
		}
		if d := diff(theirs, recs); d != "" {
			t.Fatalf("(-library +ours):\n%s", d)
		}
		reread(t, setOf(t, recs...), recs)
	})
}

// FuzzReader gives the reader any file, in pieces of one byte and whole: it
// never panics, and gives the same records and the same typed error.
func FuzzReader(f *testing.F) {
	for _, codec := range []string{CodecNull, CodecZstd} {
		file := chunkOf(f, setOf(f, fuzzRecords()...), codec)
		f.Add(file)
		f.Add(file[:len(file)-1])
		f.Add(chunkOf(f, &Set{}, codec))
		p := goodParts(codec)
		f.Add(p.file())
	}
	f.Add([]byte("Obj\x01\x00"))
	f.Fuzz(func(t *testing.T, file []byte) {
		whole, err := readChunk(file)
		var schema *SchemaError
		if err != nil && !errors.Is(err, ErrFormat) && !errors.As(err, &schema) {
			t.Fatalf("untyped: %v", err)
		}
		got, err2 := readEach(iotest.OneByteReader(bytes.NewReader(file)))
		if (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("whole: %v; in pieces: %v", err, err2)
		}
		if d := diff(whole, got); d != "" {
			t.Fatalf("(-whole +pieces):\n%s", d)
		}
	})
}

// readEach reads a chunk file with Read.
func readEach(r io.Reader) ([]Record, error) {
	rd, err := NewReader(r)
	if err != nil {
		return nil, err
	}
	var recs []Record
	var rec Record
	for {
		err := rd.Read(&rec)
		if err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		recs = append(recs, rec.Clone())
	}
}
