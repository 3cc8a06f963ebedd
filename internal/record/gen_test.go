package record

import (
	"bytes"
	"io"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// t0 is the append time of the tests' records.
var t0 = time.Date(2026, 3, 4, 5, 6, 7, 890123000, time.UTC)

// genBytes draws nil, empty and other byte strings, some of them texts or JSON.
func genBytes(max int) *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.Just([]byte(nil)),
		rapid.Just([]byte{}),
		rapid.SliceOfN(rapid.Byte(), 0, max),
		rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
		rapid.SampledFrom([][]byte{
			[]byte(`{"a":[1,2,{"b":null}]}`), []byte("[1,\n 2]"), []byte(`{"base64":"AAEC"}`), []byte(`{"\u0062ase64":1}`),
			[]byte(`"text"`), []byte("{"), []byte("\xff\xfe"), []byte("a\u2028b\x00\x7f"),
			bytes.Repeat([]byte("0123456789abcdef"), 200),
		}),
	)
}

func genText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"content-type", "trace", "é", "\x00"}))
}

func genTime() *rapid.Generator[time.Time] {
	return rapid.Map(rapid.Int64Range(minMicros+1, maxMicros), func(n int64) time.Time { return time.UnixMicro(n).UTC() })
}

func genHeaders() *rapid.Generator[[]Header] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Header {
		return Header{genText().Draw(t, "name"), append([]byte{}, genBytes(20).Draw(t, "value")...)}
	}), 0, 5)
}

func genRef() *rapid.Generator[*Ref] {
	return rapid.Custom(func(t *rapid.T) *Ref {
		f := &Ref{
			URL: genText().Draw(t, "url"), Size: rapid.Int64Range(0, math.MaxInt64).Draw(t, "size"),
			ETag: genText().Draw(t, "etag"), Version: genText().Draw(t, "version"), ContentType: genText().Draw(t, "type"),
		}
		if rapid.Bool().Draw(t, "digest") {
			f.SHA256 = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sha256")
		}
		if rapid.Bool().Draw(t, "counted") {
			n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "records")
			f.Records = &n
		}
		return f
	})
}

// genMessage draws what a producer sends.
func genMessage() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := Record{Key: genBytes(20).Draw(t, "key"), Headers: genHeaders().Draw(t, "headers"), Value: genBytes(300).Draw(t, "value")}
		if rapid.Bool().Draw(t, "event") {
			r.EventTime = genTime().Draw(t, "event time")
		}
		if rapid.IntRange(0, 3).Draw(t, "ref?") == 0 {
			r.Ref = genRef().Draw(t, "ref")
		}
		return r
	})
}

func genID() *rapid.Generator[*ID] {
	return rapid.Custom(func(t *rapid.T) *ID {
		if rapid.Bool().Draw(t, "no id") {
			return nil
		}
		return &ID{genText().Draw(t, "producer"), rapid.Uint64Range(0, math.MaxInt64).Draw(t, "number")}
	})
}

// genRecord draws what a segment keeps.
func genRecord() *rapid.Generator[Record] {
	return rapid.Custom(func(t *rapid.T) Record {
		r := genMessage().Draw(t, "message")
		r.Time = genTime().Draw(t, "time")
		r.Position = topic.Position{
			Sequence: rapid.Uint64Range(0, math.MaxInt64).Draw(t, "sequence"), Row: rapid.Uint32Range(0, math.MaxInt32).Draw(t, "row"),
		}
		r.ID = genID().Draw(t, "id")
		if rapid.IntRange(0, 3).Draw(t, "rejected?") == 0 {
			r.Rejected = "refused: " + genText().Draw(t, "reason")
		}
		return r
	})
}

func genCodec() *rapid.Generator[string] { return rapid.SampledFrom([]string{CodecNull, CodecZstd}) }

// diff compares records: nil and empty differ for keys and values, not for lists
// of headers.
func diff(want, got []Record) string {
	if len(want) == 0 && len(got) == 0 {
		return ""
	}
	sameBytes := func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }
	return cmp.Diff(want, got, cmp.Comparer(sameBytes), cmp.Comparer(func(a, b []Header) bool {
		return slices.EqualFunc(a, b, func(a, b Header) bool { return a.Name == b.Name && sameBytes(a.Value, b.Value) })
	}))
}

func slotOf(p topic.Position, key []byte) topic.Slot {
	if key == nil {
		return topic.SpreadSlot("lane.test.0.x", p)
	}
	return topic.SlotOf(key)
}

type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// batchOf encodes a batch of msgs.
func batchOf(t tb, codec string, msgs ...Record) []byte {
	t.Helper()
	var data []byte
	var err error
	for i := range msgs {
		if data, err = AppendMessage(data, &msgs[i]); err != nil {
			t.Fatal(err)
		}
	}
	b, err := EncodeBatch(nil, codec, len(msgs), data)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// setOf encodes a set of recs.
func setOf(t tb, recs ...Record) *Set {
	t.Helper()
	var s Set
	for i := range recs {
		if err := s.Append(&recs[i], slotOf(recs[i].Position, recs[i].Key)); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

func chunkOf(t tb, s *Set, codec string) []byte {
	t.Helper()
	b, err := EncodeChunk(nil, s, codec)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readChunk reads all of a chunk file.
func readChunk(file []byte) ([]Record, error) {
	rd, err := NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return drain(rd)
}

func drain(rd *Reader) ([]Record, error) {
	var recs []Record
	for {
		r, err := rd.Next()
		if err == io.EOF { //nolint:errorlint // the contract is io.EOF itself
			return recs, nil
		}
		if err != nil {
			return recs, err
		}
		recs = append(recs, r)
	}
}

var _ tb = (*testing.T)(nil)
