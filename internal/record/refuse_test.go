package record

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A flush has up to 400,000 of them.
func TestRecStaysSmall(t *testing.T) {
	if n := unsafe.Sizeof(Rec{}); n != 40 {
		t.Errorf("a Rec has %d bytes, not 40", n)
	}
}

func TestHasRef(t *testing.T) {
	ref := &Ref{URL: "s3://b/k"}
	var s Set
	for _, r := range []Record{{Ref: ref}, {}, {Ref: ref, Rejected: "no"}, {Rejected: "no"}} {
		r.Time = t0
		if err := s.Append(&r, 0); err != nil {
			t.Fatal(err)
		}
	}
	batch := batchOf(t, CodecNull, Record{}, Record{Ref: ref}, Record{Value: []byte("v"), Ref: ref})
	if _, err := s.AppendBatch(fuzzMeta, CodecNull, batch, slotOf); err != nil {
		t.Fatal(err)
	}
	s.Recs[4].Pending, s.Recs[5].Pending = false, true
	var copied Set
	for _, r := range s.Recs {
		if err := copied.Copy(&s, r); err != nil {
			t.Fatal(err)
		}
	}
	want := []bool{true, false, false, false, false, true, true}
	for i, w := range want {
		if a, b := s.Recs[i], copied.Recs[i]; a.HasRef != w || b.HasRef != w || a.Pending != (i == 5) || b.Pending != (i == 5) {
			t.Errorf("record %d: %+v, its copy %+v", i, a, b)
		}
	}
}

// refusing draws a set, and refuses some of its records.
func refusing(t *rapid.T) (s *Set, want []Record) {
	want = rapid.SliceOfN(genRecord(), 1, 8).Draw(t, "records")
	s = setOf(t, want...)
	for range rapid.IntRange(0, 6).Draw(t, "refusals") {
		i := rapid.IntRange(0, len(want)-1).Draw(t, "which")
		reason := "because " + rapid.String().Draw(t, "reason")
		s.Recs[i].Pending = s.Recs[i].HasRef && rapid.Bool().Draw(t, "pending")
		if err := s.Refuse(i, reason); err != nil {
			t.Fatal(err)
		}
		if want[i].Rejected == "" {
			want[i].Rejected = reason
		}
	}
	return s, want
}

// What is refused is the same record with a reason, wherever it is read. The
// bytes that it leaves behind in the set show nowhere.
func TestRefuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, want := refusing(t)
		got, err := s.Records()
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		for i, r := range want {
			one, err := s.Record(i)
			if err != nil {
				t.Fatal(err)
			}
			if d := diff([]Record{r}, []Record{one}); d != "" {
				t.Fatalf("Record(%d) (-want +got):\n%s", i, d)
			}
			rec := s.Recs[i]
			if rec.HasRef != (r.Ref != nil && r.Rejected == "") || rec.Pending && !rec.HasRef ||
				rec.Pos != r.Position || rec.Time != r.Time.UnixMicro() || rec.Slot != slotOf(r.Position, r.Key) {
				t.Fatalf("record %d is %+v", i, rec)
			}
		}
		codec := genCodec().Draw(t, "codec")
		file := chunkOf(t, s, codec)
		if !bytes.Equal(file, chunkOf(t, setOf(t, want...), codec)) {
			t.Fatal("a set of the same records gives another file")
		}
		if got, err = readTwmb(file); err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got); d != "" {
			t.Fatalf("an Avro library reads (-want +got):\n%s", d)
		}
	})
}

func TestRefuseLeavesTheSetOnErrors(t *testing.T) {
	good := setOf(t, Record{Time: t0, Ref: &Ref{URL: "s3://b/k"}})
	good.Recs[0].Pending = true
	n := good.Recs[0].Len
	large := setOf(t, Record{Time: t0, Value: make([]byte, MaxRecord-60)})
	bad := func(data []byte, rec Rec) *Set { return &Set{Data: data, Recs: []Rec{rec}} }
	for name, c := range map[string]struct {
		s      *Set
		reason string
		is     func(error) bool
	}{
		"no reason": {good, "", isInvalid},
		"too large": {large, strings.Repeat("x", 100), isInvalid},
		"full":      {bad(reserve(t, math.MaxUint32-20), Rec{Len: minRecord}), "more than 20 bytes of reason", func(err error) bool { return errors.Is(err, ErrSetFull) }},
		"cut":       {bad(good.Data, Rec{Len: n - 1}), "no", func(err error) bool { return errors.Is(err, ErrFormat) }},
		"longer":    {bad(append(bytes.Clone(good.Data), 0), Rec{Len: n + 1}), "no", func(err error) bool { return errors.Is(err, ErrFormat) }},
		"outside":   {bad(good.Data, Rec{Off: 1, Len: n}), "no", func(err error) bool { return err != nil }},
	} {
		t.Run(name, func(t *testing.T) {
			size, recs := len(c.s.Data), slices.Clone(c.s.Recs)
			err := c.s.Refuse(0, c.reason)
			if !c.is(err) {
				t.Errorf("error %v", err)
			}
			if len(c.s.Data) != size || !slices.Equal(c.s.Recs, recs) {
				t.Errorf("the set is not as it was: %d bytes of %d, %+v", len(c.s.Data), size, c.s.Recs)
			}
		})
	}
}

func isInvalid(err error) bool {
	_, ok := errors.AsType[*InvalidError](err)
	return ok
}

// Reasons come from other people's servers.
func TestRefusalsAreMadeEncodable(t *testing.T) {
	s := setOf(t, plain(1, nil))
	if err := s.Refuse(0, "\xff"+strings.Repeat("é", MaxText)); err != nil {
		t.Fatal(err)
	}
	r, err := s.Record(0)
	if want := "\uFFFD" + strings.Repeat("é", MaxText/2-2); err != nil || r.Rejected != want {
		t.Errorf("%.20q, %d bytes of %d, error %v", r.Rejected, len(r.Rejected), len(want), err)
	}
	before := len(s.Data)
	if err := s.Refuse(0, "again"); err != nil || len(s.Data) != before {
		t.Errorf("refused twice: error %v, %d bytes more", err, len(s.Data)-before)
	}
}

func TestRecordSharesNothing(t *testing.T) {
	want := fuzzRecords()
	s := setOf(t, want...)
	var got []Record
	for i := range want {
		r, err := s.Record(i)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r)
	}
	clear(s.Data)
	if d := diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A batch may encode its messages in ways that we would not: in blocks of headers
// that tell their size, say. A refusal keeps those bytes too.
func FuzzRefuse(f *testing.F) {
	f.Add(false, batchOf(f, CodecNull, fuzzRecords()...), uint16(2), "no such object")
	f.Add(true, batchOf(f, CodecZstd, fuzzRecords()...), uint16(1), "\xff")
	f.Add(false, batchOf(f, CodecNull, plain(1, nil)), uint16(0), "")
	// One header, in a block that tells its size.
	f.Add(false, frame(1, "\x00\x00", -1, 3, "\x02a\x00", 0, "\x00\x00"), uint16(0), "x")
	f.Fuzz(func(t *testing.T, packed bool, payload []byte, which uint16, reason string) {
		codec := map[bool]string{false: CodecNull, true: CodecZstd}[packed]
		s := setOf(t, plain(0, nil))
		if _, err := s.AppendBatch(fuzzMeta, codec, payload, slotOf); err != nil {
			return
		}
		i := 1 + int(which)%(len(s.Recs)-1)
		want, err := s.Records()
		if err != nil {
			t.Fatal(err)
		}
		data, recs := bytes.Clone(s.Data), slices.Clone(s.Recs)
		err = s.Refuse(i, reason)
		if (reason == "") != isInvalid(err) || reason != "" && err != nil {
			t.Fatalf("refused because %q: error %v", reason, err)
		}
		if err == nil {
			wantRefused(t, s, data, recs[i], s.Recs[i], cleanText(reason))
			want[i].Rejected, recs[i] = cleanText(reason), s.Recs[i]
		}
		if !bytes.Equal(s.Data[:len(data)], data) || !slices.Equal(recs, s.Recs) {
			t.Fatal("other records changed")
		}
		reread(t, s, want)
	})
}

// wantRefused compares a refused record of a batch, byte for byte, with what it
// was.
func wantRefused(t *testing.T, s *Set, before []byte, was, is Rec, reason string) {
	t.Helper()
	p, err := fuzzMeta.prefix()
	if err != nil {
		t.Fatal(err)
	}
	old, got := before[was.Off:was.Off+was.Len], s.Data[is.Off:is.Off+is.Len]
	origin := len(p.source) + len(avroBytes(int(was.Pos.Row))) + len(p.verdict) - 1
	want := append(bytes.Clone(old[:origin]), avroBytes(1, counted(reason))...)
	want = append(want, old[origin+1:]...)
	if !bytes.Equal(got, want) {
		t.Fatalf("the record was %x and is %x, want %x", old, got, want)
	}
	if is.HasRef || is.Pending || is.Pos != was.Pos || is.Slot != was.Slot || is.Time != was.Time {
		t.Fatalf("it was %+v and is %+v", was, is)
	}
}
