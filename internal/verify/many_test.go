package verify

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/memfs"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// manySegments makes a topic of 500 live segments by splits, with some flushes
// before and after them.
func manySegments(ctx context.Context, store *segment.Store) error {
	w := &editWorld{store: store, roll: func(n int, what string) int {
		if what == "messages" {
			return n - 1
		}
		return 0
	}}
	def := topic.Definition{Name: "edited", Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default"}
	var err error
	if w.topic, err = store.CreateTopic(ctx, def, 1, began); err != nil {
		return err
	}
	for _, source := range []string{sourceA, sourceB} {
		if err := store.CreateCheckpoint(ctx, source); err != nil {
			return err
		}
	}
	for _, ways := range []int{10, 50} {
		for live := true; live; {
			l, err := w.topic.Edit(ctx, w.now(), func(l topic.Layout) (topic.Edit, error) {
				widest := 0
				for i, s := range l.Live {
					if s.Size() > l.Live[widest].Size() {
						widest = i
					}
				}
				return l.SplitWays(l.Live[widest].ID, ways)
			})
			if err != nil {
				return err
			}
			for _, source := range []string{sourceA, sourceB} {
				if err := w.flush(ctx, source); err != nil {
					return err
				}
			}
			live = ways == 50 && len(l.Live) < 500
		}
	}
	return nil
}

// BenchmarkManySegments verifies a topic of 500 live segments whose filer answers
// each call after half a millisecond.
func BenchmarkManySegments(b *testing.B) {
	fs := memfs.New()
	if err := manySegments(b.Context(), segment.NewStore(fs.Client("bench", nil), "test")); err != nil {
		b.Fatal(err)
	}
	for name, delay := range map[string]time.Duration{"in memory": 0, "half a millisecond": 500 * time.Microsecond} {
		b.Run(name, func(b *testing.B) {
			store := segment.NewStore(fs.Client("bench", func(memfs.Op) memfs.Fault { return memfs.Fault{Delay: delay} }), "test")
			for b.Loop() {
				r, err := Topic(b.Context(), store, nil, "edited")
				if err != nil || !r.OK || r.Segments < 500 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
		})
	}
}
