package ingest

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestTimesAbove: which messages a segment has taken in is known from its chunks, and
// from its data files once it is compacted.
func TestTimesAbove(t *testing.T) {
	const source = "lane.default.0.aaaaaaaa"
	store := segment.NewStore(memfs.New().Client("c", nil), "test")
	top, err := store.CreateTopic(t.Context(), topic.Definition{Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}, 1, decodeTime)
	if err != nil {
		t.Fatal(err)
	}
	segs, err := top.Segments(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for n := range uint64(8) {
		from := source
		if n%3 == 2 {
			from = "backfill.x.0"
		}
		set := &record.Set{}
		for row := range uint32(2) {
			r := record.Record{Time: decodeTime.Add(time.Duration(n) * time.Second), Position: topic.Position{Sequence: n + 1, Row: row}, Value: fmt.Append(nil, n)}
			if err := set.Append(&r, 1); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := segs[0].Append(t.Context(), segment.Input{
			Source: from, Set: set,
			Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
			Holds:      func(context.Context, segment.SourcePosition) error { return nil },
		}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := top.Edit(t.Context(), decodeTime, func(l topic.Layout) (topic.Edit, error) { return l.Roll(l.Live[0].ID) }); err != nil {
		t.Fatal(err)
	}
	times := func() map[uint64]time.Time {
		t.Helper()
		got, err := taken{segment.SourcePosition{Source: source}, segs[0]}.timesAbove(t.Context(), 2)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	before := times()
	if len(before) != 4 || before[1] != (time.Time{}) {
		t.Fatalf("%v", before)
	}
	for n, at := range before {
		before[n] = at.UTC()
	}
	if r, err := compactor.New(compactor.Options{Store: store, Holder: "test"}).Topic(t.Context(), t.Context(), "t"); err != nil || r.Trimmed != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	after := times()
	for n, at := range after {
		after[n] = at.UTC()
	}
	if !maps.Equal(after, before) {
		t.Errorf("%v, before %v", after, before)
	}
}
