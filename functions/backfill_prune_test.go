package functions

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
)

// TestDamagedCheckpointOfAnother: the checkpoint of one old job is damaged, and those who
// append to a segment that names it among many sources go on.
func TestDamagedCheckpointOfAnother(t *testing.T) {
	inStill(t, func(t *testing.T, s *still) {
		top, err := s.Store.Topic(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		run := func(n int) error {
			source := segment.BackfillSource("edge", n)
			if err := s.Store.CreateCheckpoint(t.Context(), source); err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return ingest.NewBackfill(ingest.BackfillOptions{Source: source, Topic: "t", Incarnation: top.Incarnation, Store: s.Store,
				Objects: &plainObject{rows: 1000}}).Run(ctx, ctx)
		}
		for i := range 5 {
			if err := run(i); err != nil {
				t.Fatal(err)
			}
		}
		path := s.Store.CheckpointFile(segment.BackfillSource("edge", 2)).Path()
		if err := s.Store.Filer.Delete(t.Context(), path, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := filer.Create(t.Context(), s.Store.Filer, path, filer.File{ID: filer.NewID(), Content: []byte("{damaged")}); err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if err := run(5 + i); err != nil {
				t.Fatalf("source %d, which has nothing to do with the damaged checkpoint: %v", 5+i, err)
			}
		}
	})
}
