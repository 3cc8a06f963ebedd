package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// drawSet is records of a message with some or all fields, and keys of which few
// may have most of the load.
func drawSet(t *rapid.T, source string, seq uint64, rows int) *record.Set {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	keys, hot := 1+rnd.IntN(50), rnd.IntN(100)
	set := &record.Set{}
	for row := range rows {
		r := record.Record{Time: began.Add(time.Duration(seq) * time.Second), Position: topic.Position{Sequence: seq, Row: uint32(row)}}
		r.Key = fmt.Append(nil, "key ", rnd.IntN(1000))
		if rnd.IntN(100) < hot {
			r.Key = fmt.Append(nil, "hot ", min(rnd.IntN(keys), rnd.IntN(keys)))
		}
		slot := topic.SlotOf(r.Key)
		r.Value = bytes.Repeat([]byte{7}, rnd.IntN(1000)>>rnd.IntN(10))
		r.ID = &record.ID{Producer: "p", Sequence: seq}
		for range rnd.IntN(3) {
			r.Headers = append(r.Headers, record.Header{Name: "h", Value: make([]byte, rnd.IntN(200))})
		}
		switch rnd.IntN(8) {
		case 0:
			r.Key, slot = nil, topic.SpreadSlot(source, r.Position)
		case 1:
			r.Value, r.EventTime = nil, began
		case 2:
			r.Rejected, slot = "no", topic.SpreadSlot(source, r.Position)
		case 3:
			n := int64(rnd.Uint32())
			r.Value, r.Ref = nil, &record.Ref{URL: "s3://b/k", Size: n, ETag: "e", Version: "v", ContentType: "c", SHA256: make([]byte, 32), Records: &n}
		case 4:
			r.Value, r.Ref = nil, &record.Ref{URL: "s3://b/k"}
		}
		if err := set.Append(&r, slot); err != nil {
			t.Fatal(err)
		}
	}
	return set
}

// TestSizes: where records end is found as they were written.
func TestSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := drawSet(t, sourceA, 5, rapid.IntRange(1, 600).Draw(t, "rows"))
		codec := rapid.SampledFrom([]string{record.CodecNull, record.CodecZstd}).Draw(t, "codec")
		file, err := record.EncodeChunk(nil, set, codec)
		if err != nil {
			t.Fatal(err)
		}
		s, err := newSizes(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range set.Recs {
			if got, err := s.next(); err != nil || got != uint64(r.Len) {
				t.Fatalf("record %d has %d bytes, %v; want %d", i, got, err, r.Len)
			}
		}
		if n, err := s.next(); err == nil {
			t.Errorf("a record of %d bytes after the last", n)
		}
	})
}

// TestSizesOfForeignHeaders: a batch may bring headers in blocks that tell their
// size.
func TestSizesOfForeignHeaders(t *testing.T) {
	data := []byte{0, 0} // no event time, no key
	data = append(data, 1, 8, 2, 'a', 2, 'b', 4, 2, 'c', 2, 'd', 2, 'e', 2, 'f', 0)
	data = append(data, 2, 2, 'v', 0) // value, no ref
	payload := binary.AppendVarint(binary.AppendVarint(nil, 1), int64(len(data)))
	set := &record.Set{}
	meta := record.Meta{Time: began, Sequence: 5, ID: &record.ID{Producer: "p", Sequence: 9}}
	_, err := set.AppendBatch(meta, record.CodecNull, append(payload, data...), func(topic.Position, []byte) topic.Slot { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	file, err := record.EncodeChunk(nil, set, record.CodecZstd)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSizes(file)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.next(); err != nil || got != uint64(set.Recs[0].Len) {
		t.Errorf("%d bytes, %v; want %d", got, err, set.Recs[0].Len)
	}
}

// FuzzSizes: whatever is in a file, it ends, and no record is larger than a block.
func FuzzSizes(f *testing.F) {
	for _, codec := range []string{record.CodecNull, record.CodecZstd} {
		set := &record.Set{}
		for seq := range uint64(3) {
			r := record.Record{Time: began, Position: topic.Position{Sequence: seq + 1}, Headers: []record.Header{{Name: "a"}}, Value: []byte("v")}
			if err := set.Append(&r, 1); err != nil {
				f.Fatal(err)
			}
		}
		file, err := record.EncodeChunk(nil, set, codec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
		f.Add(file[:len(file)-20])
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		if len(file) < 4 {
			return
		}
		s, err := newSizes(file)
		if err != nil {
			return
		}
		total := uint64(0)
		for n := 0; ; n++ {
			size, err := s.next()
			if err != nil {
				return
			}
			if total += size; size == 0 || size > maxBlock || n > maxBlock {
				t.Fatalf("record %d has %d bytes", n, size)
			}
		}
	})
}

// TestLoadOfRealChunks: what the segment store counts is what is counted here.
func TestLoadOfRealChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ctx := context.Background()
		store := segment.NewStore(memfs.New().Client("test", nil), "test")
		def := topic.Definition{Name: "real", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}
		top, err := store.CreateTopic(ctx, def, rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "segments"), began)
		if err == nil {
			err = store.CreateCheckpoint(ctx, sourceA)
		}
		if err != nil {
			t.Fatal(err)
		}
		l, err := top.Layout(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for seq := range uint64(2) {
			all := drawSet(t, sourceA, seq+1, rapid.SampledFrom([]int{1, 30, 70, 500}).Draw(t, "rows"))
			sets := map[topic.SegmentID]*record.Set{}
			for _, r := range all.Recs {
				id := l.Route(r.Slot)
				if sets[id] == nil {
					sets[id] = &record.Set{}
				}
				if err := sets[id].Copy(all, r); err != nil {
					t.Fatal(err)
				}
			}
			for id, set := range sets {
				s, err := top.Segment(ctx, id)
				if err == nil {
					_, err = s.Append(ctx, segment.Input{Source: sourceA, Set: set,
						Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
						Holds:      func(context.Context, segment.SourcePosition) error { return nil }})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		r, err := Topic(ctx, store, nil, "real")
		if err != nil || r.Records == 0 {
			t.Fatalf("%+v, %v", r, err)
		}
		for _, v := range r.Violations {
			t.Error(v)
		}
	})
}

// FuzzLoad: whatever attributes say of load, it ends in a report.
func FuzzLoad(f *testing.F) {
	f.Add("0=1/10", "40000=1/10", "0")
	f.Add("63=18446744073709551615/18446744073709551615", "65535=18446744073709551615/18446744073709551615", "18446744073709551615")
	f.Add("", strings.Repeat("9=9/9 ", 99), "-1")
	f.Add("0=1/10", "", "")
	f.Fuzz(func(t *testing.T, load, hot, base string) {
		model := newFixture()
		model.segs[1].last().set = map[string]string{"Load": printable(load), "Hot": printable(hot), "Byte-Base": printable(base)}
		model.write(t)
		r, err := Topic(t.Context(), segment.NewStore(model.client, "test"), nil, "flights")
		if err != nil || r.OK {
			t.Errorf("%v, %+v", err, r)
		}
	})
}
