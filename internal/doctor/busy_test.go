package doctor

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// trimmedMeanwhile is a lane whose worker commits message 8, and trims up to it,
// just after the checkpoint was read.
type trimmedMeanwhile struct {
	t     *testing.T
	store *segment.Store
	asked int
}

func (b *trimmedMeanwhile) TimeOf(ctx context.Context, _ lane.ID, sequence uint64) (time.Time, error) {
	if b.asked++; b.asked == 1 {
		file := b.store.CheckpointFile(defaults.Source("now"))
		c, version, err := file.Load(ctx)
		if err == nil {
			_, err = file.Save(ctx, c.Advance(8, noon, nil), version)
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	if sequence < 8 {
		return time.Time{}, ErrNoMessage
	}
	return noon, nil
}

// TestBusyLaneIsNoLaneThatWentBack: the advice for a lane that went back is to
// stop its workers and reset it, so it must not be given because one is at work.
func TestBusyLaneIsNoLaneThatWentBack(t *testing.T) {
	_, _, _, setup := healthy(t)
	busy := &trimmedMeanwhile{t: t, store: setup.Store}
	if f := laneState(t.Context(), busy, setup.Store, fit(6)); f.Status != OK || busy.asked != 2 {
		t.Errorf("asked %d times: %+v", busy.asked, f)
	}
}
