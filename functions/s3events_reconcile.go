package functions

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// A filer that is killed loses the last minute of its log, while the objects stay.
// What was lost is what a listing has and the log has not. To look at little, and
// to publish nothing twice if it can be known:
//   - What was told before the place from which to look is known to be published,
//     so only what was written or touched since matters. relaySlack is how much
//     later than its stamp an event may stand in the log.
//   - S3's own times tell what was written long before, and touched since. They are
//     those of a gateway, in whole seconds, taken before the filer stamps, hence
//     relaySkew.
//   - What this process has published lately it knows, whatever the log lost.
//
// Left is what was written shortly before the log was lost, published by a process
// that is gone, and then touched, as by a pin. It is published a second time, with
// another sequencer.
const (
	relaySlack = time.Second
	relaySkew  = 2 * time.Minute
	// relayBatch is how many objects of a listing are held against the log at a
	// time. The log is read from the same place for each batch.
	relayBatch = 50_000
)

// reconcile publishes what was written after a place of the log that the log does
// not tell of.
func (r *relay) reconcile(ctx context.Context, from int64) error {
	start := r.now()
	found := map[uint64]seaweed.ObjectEvent{}
	listed, lost := 0, r.sum.Found
	err := r.source.Written(ctx, r.scope, func(e seaweed.ObjectEvent) error {
		listed++
		if e.Sequencer <= from-int64(relaySlack) || e.Modified.Add(relaySkew).UnixNano() < from || r.recent.has(e.Write) {
			return nil
		}
		found[e.Write] = e
		if len(found) < relayBatch {
			return nil
		}
		return r.recover(ctx, found, from)
	})
	if err == nil {
		err = r.recover(ctx, found, from)
	}
	if err != nil {
		return err
	}
	lost = r.sum.Found - lost
	r.metrics.listed(r.now().Sub(start))
	if lost > 0 {
		r.deps.Logger.Warn("the filer has lost events, and the listing found their objects", "objects", r.scope, "found", lost, "listed", listed)
	}
	return nil
}

// recover publishes those of the objects found that the log does not tell of, and
// empties the map.
func (r *relay) recover(ctx context.Context, found map[uint64]seaweed.ObjectEvent, from int64) error {
	if len(found) == 0 {
		return nil
	}
	from -= int64(relaySlack)
	err := r.source.Subscribe(ctx, r.scope, from, false, func(s seaweed.Step) error {
		for _, e := range s.Events {
			if e.Kind != seaweed.Touched || e.Was <= from { // else its write may be lost
				delete(found, e.Write)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	lost := make([]seaweed.ObjectEvent, 0, len(found))
	for _, e := range found {
		lost = append(lost, e)
	}
	clear(found)
	slices.SortFunc(lost, func(a, b seaweed.ObjectEvent) int { return cmp.Compare(a.Sequencer, b.Sequencer) })
	for _, e := range lost {
		if err := r.out.add(ctx, e); err != nil {
			return err
		}
	}
	if err := r.out.flush(ctx); err != nil {
		return err
	}
	r.count(lost)
	r.sum.Found += len(lost)
	r.metrics.recovered(len(lost))
	return nil
}

// recentWrites remembers the last writes that were published: between recentMost
// and twice as many.
type recentWrites struct{ now, before map[uint64]struct{} }

const recentMost = 1 << 16

func (w *recentWrites) add(write uint64) {
	if write == 0 { // of a removal
		return
	}
	if len(w.now) >= recentMost {
		w.now, w.before = nil, w.now
	}
	if w.now == nil {
		w.now = map[uint64]struct{}{}
	}
	w.now[write] = struct{}{}
}

func (w *recentWrites) has(write uint64) bool {
	_, now := w.now[write]
	_, before := w.before[write]
	return now || before
}
