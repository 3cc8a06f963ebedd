package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	hamba "github.com/hamba/avro/v2/ocf"
	"github.com/twmb/avro"
	"github.com/twmb/avro/ocf"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// What Avro libraries decode our records into.
type (
	avroMessage struct {
		EventTS *time.Time   `avro:"event_ts"`
		Key     *[]byte      `avro:"key"`
		Headers []avroHeader `avro:"headers"`
		Value   *[]byte      `avro:"value"`
		Ref     *avroRef     `avro:"ref"`
	}
	avroRecord struct {
		TS       time.Time    `avro:"ts"`
		Sequence int64        `avro:"sequence"`
		Row      int32        `avro:"row"`
		ID       *avroID      `avro:"id"`
		Rejected *string      `avro:"rejected"`
		EventTS  *time.Time   `avro:"event_ts"`
		Key      *[]byte      `avro:"key"`
		Headers  []avroHeader `avro:"headers"`
		Value    *[]byte      `avro:"value"`
		Ref      *avroRef     `avro:"ref"`
	}
	avroID struct {
		Producer string `avro:"producer"`
		Sequence int64  `avro:"sequence"`
	}
	avroHeader struct {
		Name  string `avro:"name"`
		Value []byte `avro:"value"`
	}
	avroRef struct {
		URL         string  `avro:"url"`
		Size        int64   `avro:"size"`
		ETag        string  `avro:"etag"`
		Version     string  `avro:"version"`
		ContentType string  `avro:"content_type"`
		SHA256      *[]byte `avro:"sha256"`
		Records     *int64  `avro:"records"`
	}
)

func (m avroMessage) record() Record {
	r := Record{Key: deref(m.Key), Value: deref(m.Value)}
	if m.EventTS != nil {
		r.EventTime = m.EventTS.UTC()
	}
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, Header{h.Name, append([]byte{}, h.Value...)})
	}
	if f := m.Ref; f != nil {
		r.Ref = &Ref{f.URL, f.Size, f.ETag, f.Version, f.ContentType, deref(f.SHA256), f.Records}
	}
	return r
}

func (a avroRecord) record() Record {
	r := avroMessage{a.EventTS, a.Key, a.Headers, a.Value, a.Ref}.record()
	r.Time, r.Position = a.TS.UTC(), topic.Position{Sequence: uint64(a.Sequence), Row: uint32(a.Row)}
	if a.ID != nil {
		r.ID = &ID{a.ID.Producer, uint64(a.ID.Sequence)}
	}
	if a.Rejected != nil {
		r.Rejected = *a.Rejected
	}
	return r
}

// deref keeps null and empty apart.
func deref(b *[]byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, *b...)
}

// readTwmb reads a chunk file with twmb/avro by the schema in the file.
func readTwmb(file []byte) (recs []Record, err error) {
	rd, err := ocf.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rd.Close()) }()
	for {
		var a avroRecord
		if err := rd.Decode(&a); errors.Is(err, io.EOF) {
			return recs, nil
		} else if err != nil {
			return nil, err
		}
		recs = append(recs, a.record())
	}
}

// readHamba reads a chunk file with hamba/avro by the schema in the file.
func readHamba(file []byte) (recs []Record, err error) {
	rd, err := hamba.NewDecoder(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rd.Close()) }()
	for rd.HasNext() {
		var a avroRecord
		if err := rd.Decode(&a); err != nil {
			return nil, err
		}
		recs = append(recs, a.record())
	}
	return recs, rd.Error()
}

var messageCodec = avro.MustParse(MessageSchema())

// decodeTwmb decodes the data of a batch with twmb/avro.
func decodeTwmb(data []byte) ([]Record, error) {
	var recs []Record
	for len(data) > 0 {
		var m avroMessage
		rest, err := messageCodec.Decode(data, &m)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(recs), err)
		}
		recs, data = append(recs, m.record()), rest
	}
	return recs, nil
}

// Two Avro libraries, of which one shares no code with the other, read from our
// chunks what we do.
func TestStockReadersAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(genRecord(), 0, 20).Draw(t, "records")
		file := chunkOf(t, setOf(t, recs...), genCodec().Draw(t, "codec"))
		for name, read := range map[string]func([]byte) ([]Record, error){"ours": readChunk, "twmb": readTwmb, "hamba": readHamba} {
			got, err := read(file)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if d := diff(recs, got); d != "" {
				t.Fatalf("%s (-want +got):\n%s", name, d)
			}
		}
	})
}

// A chunk of many blocks, a large record among them, read by everybody.
func TestManyBlocks(t *testing.T) {
	var recs []Record
	for i := range 3000 {
		recs = append(recs, plain(i, bytes.Repeat([]byte{byte(i), byte(i >> 8)}, 600)))
	}
	recs[1500].Value = bytes.Repeat([]byte("large "), 150_000)
	for _, codec := range []string{CodecNull, CodecZstd} {
		file := chunkOf(t, setOf(t, recs...), codec)
		for name, read := range map[string]func([]byte) ([]Record, error){"ours": readChunk, "twmb": readTwmb, "hamba": readHamba} {
			got, err := read(file)
			if err != nil || len(got) != len(recs) {
				t.Fatalf("%s, %s: %d records, %v", codec, name, len(got), err)
			}
			for i := range recs {
				if !bytes.Equal(got[i].Value, recs[i].Value) || got[i].Position != recs[i].Position {
					t.Fatalf("%s, %s: record %d differs", codec, name, i)
				}
			}
		}
	}
}

// plain is a record with a key and a value.
func plain(i int, value []byte) Record {
	return Record{
		Time: t0, Position: topic.Position{Sequence: uint64(i/100 + 1), Row: uint32(i % 100)},
		Key: fmt.Appendf(nil, "key-%d", i%17), Value: value,
	}
}

// A file that twmb/avro wrote with our schema is one of ours: its blocks, order
// of metadata and compression differ.
func TestReadsWhatALibraryWrote(t *testing.T) {
	var file bytes.Buffer
	w, err := ocf.NewWriter(&file, avro.MustParse(Schema()), ocf.WithCodec(ocf.MustZstdCodec(nil, nil)),
		ocf.WithBlockCount(2), ocf.WithMetadata(map[string][]byte{"who": []byte("a library")}))
	if err != nil {
		t.Fatal(err)
	}
	key, value := []byte("k"), []byte("v")
	for i := range 5 {
		if err := w.Encode(&avroRecord{TS: t0, Sequence: 1, Row: int32(i), Key: &key, Value: &value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := readChunk(file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := make([]Record, 5)
	for i := range want {
		want[i] = Record{Time: t0, Position: topic.Position{Sequence: 1, Row: uint32(i)}, Key: key, Value: value}
	}
	if d := diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
