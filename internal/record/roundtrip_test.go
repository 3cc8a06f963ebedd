package record

import (
	"bytes"
	"io"
	"math"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// records → messages → batch → set → chunk → Reader gives the records.
func TestBatchRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := rapid.SliceOfN(genMessage(), 1, 20).Draw(t, "messages")
		m := Meta{Time: genTime().Draw(t, "time"), Sequence: rapid.Uint64Range(1, math.MaxInt64).Draw(t, "sequence"), ID: genID().Draw(t, "id")}
		codec := genCodec().Draw(t, "codec")
		batch := batchOf(t, codec, msgs...)
		want := slices.Clone(msgs)
		for i := range want {
			want[i].Time, want[i].Position, want[i].ID = m.Time, topic.Position{Sequence: m.Sequence, Row: uint32(i)}, m.ID
		}

		decoded, err := DecodeBatch(m, codec, batch)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, decoded); d != "" {
			t.Fatalf("DecodeBatch (-want +got):\n%s", d)
		}

		var s Set
		var slots []topic.Slot
		rows, err := s.AppendBatch(m, codec, batch, func(p topic.Position, key []byte) topic.Slot {
			if w := want[p.Row]; p != w.Position || !bytes.Equal(key, w.Key) || (key == nil) != (w.Key == nil) {
				t.Fatalf("slotOf(%s, %q), want (%s, %q)", p, key, w.Position, w.Key)
			}
			slots = append(slots, slotOf(p, key))
			return slotOf(p, key)
		})
		if err != nil || rows != len(msgs) {
			t.Fatalf("AppendBatch = %d, %v", rows, err)
		}
		if !slices.Equal(s.Data, setOf(t, want...).Data) {
			t.Fatal("AppendBatch and Append encode differently")
		}
		checkRecs(t, &s, want, slots)
		got, err := readChunk(chunkOf(t, &s, genCodec().Draw(t, "chunk codec")))
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got); d != "" {
			t.Fatalf("chunk (-want +got):\n%s", d)
		}
	})
}

func checkRecs(t tb, s *Set, want []Record, slots []topic.Slot) {
	t.Helper()
	if len(s.Recs) != len(want) {
		t.Fatalf("the set has %d records, want %d", len(s.Recs), len(want))
	}
	off := uint32(0)
	for i, r := range s.Recs {
		if r.Off != off || r.Slot != slots[i] || r.Pos != want[i].Position || r.Time != want[i].Time.UnixMicro() {
			t.Fatalf("record %d is %+v", i, r)
		}
		off += r.Len
	}
	if int(off) != len(s.Data) {
		t.Fatalf("the records take %d of %d bytes", off, len(s.Data))
	}
}

// Sets of any records, cut and reordered by their owner, become chunks of just
// those, and equal sets equal bytes.
func TestChunkRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(genRecord(), 0, 30).Draw(t, "records")
		codec := genCodec().Draw(t, "codec")
		s := setOf(t, recs...)
		order := rapid.Permutation(indices(len(recs))).Draw(t, "order")[:rapid.IntRange(0, len(recs)).Draw(t, "kept")]
		if rapid.Bool().Draw(t, "sorted") {
			slices.Sort(order)
		}
		var want []Record
		view, copied := Set{Data: s.Data}, Set{}
		for _, i := range order {
			want = append(want, recs[i])
			view.Recs = append(view.Recs, s.Recs[i])
			if err := copied.Copy(s, s.Recs[i]); err != nil {
				t.Fatal(err)
			}
		}
		listed, err := view.Records()
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, listed); d != "" {
			t.Fatalf("Records (-want +got):\n%s", d)
		}
		file := chunkOf(t, &view, codec)
		if !bytes.Equal(file, chunkOf(t, &copied, codec)) {
			t.Fatal("equal sets give different files")
		}
		got, err := readChunk(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(want, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

func indices(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// Read gives what Next gives, over any way of cutting the stream, and what Next
// gave stays as it was.
func TestReadAndNextAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		recs := rapid.SliceOfN(genRecord(), 1, 30).Draw(t, "records")
		file := chunkOf(t, setOf(t, recs...), genCodec().Draw(t, "codec"))
		rd, err := NewReader(iotest.HalfReader(bytes.NewReader(file)))
		if err != nil {
			t.Fatal(err)
		}
		var got []Record
		var r Record
		for i := range recs {
			if i%2 == 0 {
				next, err := rd.Next()
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, next)
				continue
			}
			if err := rd.Read(&r); err != nil {
				t.Fatal(err)
			}
			got = append(got, r.Clone())
		}
		for range 2 {
			if err := rd.Read(&r); err != io.EOF { //nolint:errorlint // the contract is io.EOF itself
				t.Fatalf("after the last record: %v", err)
			}
		}
		if d := diff(recs, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}
