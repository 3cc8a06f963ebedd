package segment

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// BenchmarkItems reads a segment of 200,000 records of some 200 bytes: its chunks, and
// the data files that take their place.
func BenchmarkItems(b *testing.B) {
	const chunks, each = 20, 10_000
	store := NewStore(memfs.New().Client("c", nil), "test")
	top, err := store.CreateTopic(b.Context(), orders, 1, noon)
	if err != nil {
		b.Fatal(err)
	}
	segs, err := top.Segments(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	in := Input{Source: "a", Checkpoint: noCheckpoint, Holds: holds}
	for c := range uint64(chunks) {
		in.Set = &record.Set{}
		for seq := c*each + 1; seq <= (c+1)*each; seq++ {
			r := record.Record{
				Time: noon.Add(time.Duration(seq) * time.Millisecond), Position: topic.Position{Sequence: seq}, Key: fmt.Appendf(nil, "k%d", seq%1000),
				Value: fmt.Appendf(nil, `{"number":%d,"text":"%0150d"}`, seq, seq*7919),
			}
			if err := in.Set.Append(&r, 1); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := segs[0].Append(b.Context(), in); err != nil {
			b.Fatal(err)
		}
	}
	seal, err := segs[0].Seal(b.Context(), noon)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("chunks", func(b *testing.B) { benchItems(b, segs[0], chunks*each) })
	m, err := packer{perFile: chunks * each}.pack(b.Context(), segs[0])
	if err == nil {
		_, err = segs[0].CreateManifest(b.Context(), m)
	}
	if err = errors.Join(err, segs[0].Trim(b.Context(), seal.Entry.N)); err != nil {
		b.Fatal(err)
	}
	b.Run("files", func(b *testing.B) { benchItems(b, segs[0], chunks*each) })
}

func benchItems(b *testing.B, s *Segment, want int) {
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range s.Items(b.Context(), 0) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != want {
			b.Fatalf("%d records", n)
		}
	}
	b.ReportMetric(float64(want)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
