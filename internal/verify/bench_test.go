package verify

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// BenchmarkTopic verifies 3 million records of 100 bytes in 8 segments, the case
// in which most runs of rows are one row long.
func BenchmarkTopic(b *testing.B) {
	const messages, rows, perFlush = 30_000, 100, 1_000
	store := segment.NewStore(memfs.New().Client("bench", nil), "test")
	def := topic.Definition{Name: "big", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}
	t, err := store.CreateTopic(b.Context(), def, 8, began)
	if err != nil {
		b.Fatal(err)
	}
	segments, err := t.Segments(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	if err := store.CreateCheckpoint(b.Context(), sourceA); err != nil {
		b.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for first := uint64(1); first <= messages; first += perFlush {
		sets := make([]record.Set, len(segments))
		for seq := first; seq < first+perFlush; seq++ {
			for i := range uint32(rows) {
				key, value := binary.LittleEndian.AppendUint64(nil, rnd.Uint64()), make([]byte, 80)
				slot := topic.SlotOf(key)
				r := record.Record{Time: began, Position: topic.Position{Sequence: seq, Row: i}, Key: key, Value: value, ID: &record.ID{Producer: "p", Sequence: seq}}
				if err := sets[int(slot)*len(segments)/topic.Slots].Append(&r, slot); err != nil {
					b.Fatal(err)
				}
			}
		}
		for i, s := range segments {
			_, err := s.Append(b.Context(), segment.Input{Source: sourceA, Set: &sets[i],
				Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
				Holds:      func(context.Context, segment.SourcePosition) error { return nil }})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	file := store.CheckpointFile(sourceA)
	c, version, err := file.Load(b.Context())
	if err == nil {
		_, err = file.Save(b.Context(), c.Advance(messages, began, nil), version)
	}
	if err != nil {
		b.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for b.Loop() {
		r, err := Topic(b.Context(), store, nil, "big")
		if err != nil || !r.OK || r.Records != messages*rows {
			b.Fatalf("%+v, %v", r, err)
		}
	}
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapSys)/(1<<20), "heap-MiB")
	b.ReportMetric(float64(before.HeapAlloc)/(1<<20), "files-MiB")
}
