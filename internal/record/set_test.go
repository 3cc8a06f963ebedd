package record

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

func TestWhatCannotBeEncoded(t *testing.T) {
	long := strings.Repeat("x", MaxText+1)
	minus := int64(-1)
	for name, c := range map[string]struct {
		r           Record
		field, want string
	}{
		"header name not UTF-8":   {Record{Headers: []Header{{"ok", nil}, {"\xff", nil}}}, "header name", "not valid UTF-8"},
		"header name too long":    {Record{Headers: []Header{{long, nil}}}, "header name", "65537 bytes"},
		"too many headers":        {Record{Headers: make([]Header, MaxHeaders+1)}, "headers", "1025"},
		"event time in year 0":    {Record{EventTime: time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC)}, "event time", "year 0"},
		"event time in 10000":     {Record{EventTime: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "event time", "year 10000"},
		"event time of none":      {Record{EventTime: time.Time{}.Add(time.Nanosecond)}, "event time", "stands for none"},
		"ref url not UTF-8":       {Record{Ref: &Ref{URL: "\xff"}}, "ref url", "not valid UTF-8"},
		"ref etag too long":       {Record{Ref: &Ref{ETag: long}}, "ref etag", "65537 bytes"},
		"ref version not UTF-8":   {Record{Ref: &Ref{Version: "\xff"}}, "ref version", "not valid UTF-8"},
		"ref type not UTF-8":      {Record{Ref: &Ref{ContentType: "\xff"}}, "ref content type", "not valid UTF-8"},
		"ref of negative size":    {Record{Ref: &Ref{Size: -1}}, "ref size", "-1 is negative"},
		"ref of negative records": {Record{Ref: &Ref{Records: &minus}}, "ref records", "-1 is negative"},
		"ref with a short digest": {Record{Ref: &Ref{SHA256: []byte{1}}}, "ref sha256", "1 bytes, not 32"},
	} {
		t.Run(name, func(t *testing.T) {
			before := []byte("before")
			got, err := AppendMessage(before, &c.r)
			wantInvalid(t, err, c.field, c.want)
			if string(got) != "before" {
				t.Errorf("dst is %q afterwards", got)
			}
			wantUnappended(t, c.r, c.field, c.want)
		})
	}
	for name, c := range map[string]struct {
		r           Record
		field, want string
	}{
		"time in 10000":      {Record{Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}, "time", "year 10000"},
		"sequence of 2^63":   {Record{Position: topic.Position{Sequence: 1 << 63}}, "sequence", "too large"},
		"a whole message":    {Record{Position: topic.Whole(1)}, "row", "too large"},
		"number of 2^63":     {Record{ID: &ID{"p", 1 << 63}}, "id sequence", "too large"},
		"producer not UTF-8": {Record{ID: &ID{"\xff", 1}}, "id producer", "not valid UTF-8"},
		"too large":          {Record{Value: make([]byte, MaxRecord)}, "record", "at most 12582912"},
	} {
		t.Run(name, func(t *testing.T) { wantUnappended(t, c.r, c.field, c.want) })
	}
}

func wantInvalid(t *testing.T, err error, field, want string) {
	t.Helper()
	var e *InvalidError
	if !errors.As(err, &e) || e.Field != field || !strings.Contains(e.Reason, want) || errors.Is(err, ErrFormat) {
		t.Errorf("got %v, want an InvalidError for %q with %q", err, field, want)
	}
}

func wantUnappended(t *testing.T, r Record, field, want string) {
	t.Helper()
	s := setOf(t, plain(1, nil))
	before := bytes.Clone(s.Data)
	wantInvalid(t, s.Append(&r, 0), field, want)
	if !bytes.Equal(s.Data, before) || len(s.Recs) != 1 {
		t.Error("the set is not as it was")
	}
}

func TestBatchUnderABadMeta(t *testing.T) {
	batch := batchOf(t, CodecNull, plain(0, nil))
	for field, m := range map[string]Meta{
		"time":        {Time: time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)},
		"sequence":    {Sequence: math.MaxUint64},
		"id producer": {ID: &ID{Producer: "\xff"}},
	} {
		var s Set
		_, err := s.AppendBatch(m, CodecNull, batch, slotOf)
		wantInvalid(t, err, field, "")
		_, err = DecodeBatch(m, CodecNull, batch)
		wantInvalid(t, err, field, "")
	}
}

func TestEncodeBatchChecksItsFrame(t *testing.T) {
	for name, c := range map[string]struct {
		codec string
		rows  int
		size  int
		want  string
	}{
		"no rows":        {CodecNull, 0, 0, "0 rows"},
		"too many rows":  {CodecZstd, MaxBatchRows + 1, 10, "65537 rows"},
		"too many bytes": {CodecZstd, 1, MaxBatchBytes + 1, "8388609 bytes"},
		"codec":          {"lz4", 1, 5, `"lz4" is not known`},
	} {
		got, err := EncodeBatch([]byte("before"), c.codec, c.rows, make([]byte, c.size))
		if err == nil || !strings.Contains(err.Error(), c.want) || string(got) != "before" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestReasonsAreMadeEncodable(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                               "plain",
		"bad \xff\xfe byte":                   "bad \uFFFD byte",
		strings.Repeat("x", MaxText+5):        strings.Repeat("x", MaxText),
		"x" + strings.Repeat("é", MaxText):    "x" + strings.Repeat("é", MaxText/2-1),
		strings.Repeat("x", MaxText-1) + "é!": strings.Repeat("x", MaxText-1),
	} {
		got, err := readChunk(chunkOf(t, setOf(t, Record{Time: t0, Rejected: in}), CodecNull))
		if err != nil {
			t.Fatal(err)
		}
		if got[0].Rejected != want || !utf8.ValidString(got[0].Rejected) {
			t.Errorf("%.40q became %.40q (%d bytes)", in, got[0].Rejected, len(got[0].Rejected))
		}
	}
}

// A message that was refused is kept, whatever its headers are.
func TestRejectedRecordsAreMended(t *testing.T) {
	bad := Record{Time: t0, Rejected: "no", Value: []byte("v"), Headers: repeated(Header{"\xffname", []byte("x")}, 3*MaxHeaders)}
	bad.Headers[1].Name = strings.Repeat("é", MaxText)
	want := bad
	want.Headers = repeated(Header{"\uFFFDname", []byte("x")}, MaxHeaders)
	want.Headers[1].Name = strings.Repeat("é", MaxText/2)
	got, err := setOf(t, bad).Records()
	if err != nil {
		t.Fatal(err)
	}
	if d := diff([]Record{want}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if bad.Headers[0].Name != "\xffname" {
		t.Error("the caller's record was changed")
	}
}

func TestRecordsOfACorruptSet(t *testing.T) {
	good := setOf(t, plain(1, []byte("v")))
	for name, s := range map[string]*Set{
		"cut":     {Data: good.Data, Recs: []Rec{{Len: good.Recs[0].Len - 1}}},
		"longer":  {Data: append(bytes.Clone(good.Data), 0), Recs: []Rec{{Len: good.Recs[0].Len + 1}}},
		"outside": {Data: good.Data, Recs: []Rec{{Off: 1, Len: good.Recs[0].Len}}},
	} {
		if recs, err := s.Records(); err == nil || recs != nil {
			t.Errorf("%s: %v, %v", name, recs, err)
		}
	}
}

// Times are floored to microseconds, also before 1970.
func TestTimesAreFloored(t *testing.T) {
	r := Record{
		Time:      time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.FixedZone("x", 3600)),
		EventTime: time.Date(2026, 1, 2, 3, 4, 5, 6_999, time.UTC),
	}
	got, err := readChunk(chunkOf(t, setOf(t, r), CodecNull))
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{{Time: time.Date(1969, 12, 31, 22, 59, 59, 999_999_000, time.UTC), EventTime: time.Date(2026, 1, 2, 3, 4, 5, 6_000, time.UTC)}}
	if d := diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestCopyChecksWhereTheRecordLies(t *testing.T) {
	from := setOf(t, plain(1, nil))
	for _, rec := range []Rec{{Off: 1, Len: from.Recs[0].Len}, {Off: math.MaxUint32, Len: math.MaxUint32}} {
		var s Set
		if err := s.Copy(from, rec); err == nil || len(s.Recs) != 0 {
			t.Errorf("Copy of %+v: %v", rec, err)
		}
		if _, err := EncodeChunk(nil, &Set{Data: from.Data, Recs: []Rec{rec}}, CodecNull); err == nil {
			t.Errorf("EncodeChunk took %+v", rec)
		}
	}
}

// A set's offsets reach 4 GiB. The test's set has that length without the
// memory: nobody touches its pages.
func TestSetsAreBounded(t *testing.T) {
	full := reserve(t, math.MaxUint32-20)
	s := &Set{Data: full}
	r := plain(1, []byte("more than twenty bytes of value"))
	if err := s.Copy(setOf(t, r), setOf(t, r).Recs[0]); !errors.Is(err, ErrSetFull) {
		t.Errorf("Copy: %v", err)
	}
	if _, err := s.AppendBatch(Meta{Time: t0}, CodecNull, batchOf(t, CodecNull, r), slotOf); !errors.Is(err, ErrSetFull) {
		t.Errorf("AppendBatch: %v", err)
	}
	if err := s.Append(&r, 0); !errors.Is(err, ErrSetFull) {
		t.Errorf("Append: %v", err)
	}
	if len(s.Data) != len(full) || len(s.Recs) != 0 {
		t.Error("the set is not as it was")
	}
}

func TestResetKeepsMemory(t *testing.T) {
	s := setOf(t, plain(1, make([]byte, 1000)))
	room := cap(s.Data)
	s.Reset()
	if len(s.Data) != 0 || len(s.Recs) != 0 || cap(s.Data) != room {
		t.Errorf("after Reset: %d bytes, %d records, room %d of %d", len(s.Data), len(s.Recs), cap(s.Data), room)
	}
}

func TestCloneSharesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRecord().Draw(t, "record")
		file := chunkOf(t, setOf(t, r), CodecNull)
		rd, err := NewReader(bytes.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		var shared Record
		if err := rd.Read(&shared); err != nil {
			t.Fatal(err)
		}
		c := shared.Clone()
		clear(rd.cur.data)
		clear(shared.Headers)
		if shared.ID != nil {
			shared.ID.Sequence++
		}
		if shared.Ref != nil {
			shared.Ref.Size++
			if shared.Ref.Records != nil {
				*shared.Ref.Records = -1
			}
		}
		if d := diff([]Record{r}, []Record{c}); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

// What Next gave does not change when the reader goes on.
func TestNextOwnsItsBytes(t *testing.T) {
	var recs []Record
	for i := range 2000 {
		recs = append(recs, plain(i, bytes.Repeat([]byte{byte(i)}, 300)))
	}
	for _, codec := range []string{CodecNull, CodecZstd} {
		got, err := readChunk(chunkOf(t, setOf(t, recs...), codec))
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(recs, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", codec, d)
		}
	}
}

// Files are the same whatever the shared encoder did before, and whoever else
// uses it now.
func TestChunksAreDeterministicWhenConcurrent(t *testing.T) {
	sets := []*Set{textSet(t, 3000, 1), textSet(t, 4000, 2), textSet(t, 10, 3)}
	var want [][]byte
	for _, s := range sets {
		want = append(want, chunkOf(t, s, CodecZstd))
	}
	var g errgroup.Group
	for i := range 4 * runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for k := range 6 {
				n := (i + k) % len(sets)
				got, err := EncodeChunk(nil, sets[n], CodecZstd)
				if err != nil {
					return err
				}
				if !bytes.Equal(got, want[n]) {
					return errors.New("the same set gave other bytes")
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// The shared encoder and decoder belong to no bubble: they work in one, and
// after it.
func TestCodecsWorkInBubbles(t *testing.T) {
	s := textSet(t, 3000, 1)
	use := func(t *testing.T) {
		for _, codec := range []string{CodecNull, CodecZstd} {
			if recs, err := readChunk(chunkOf(t, s, codec)); err != nil || len(recs) != len(s.Recs) {
				t.Errorf("%s: %d records, %v", codec, len(recs), err)
			}
			if _, err := new(Set).AppendBatch(Meta{Time: t0}, codec, batchOf(t, codec, plain(1, []byte("x"))), slotOf); err != nil {
				t.Error(err)
			}
		}
	}
	synctest.Test(t, use)
	use(t)
	synctest.Test(t, use)
}
