package ingest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/spillway-mq/spillway/internal/segment"
)

// setback is what is known of a lane that went back.
type setback struct {
	reason  string
	agreed  uint64               // the last message above the checkpoint, below the first loss, that is there and committed
	times   map[uint64]time.Time // of positions that the lane does not show
	highest uint64               // the last one that was ever committed
	newest  uint64               // the last one that a segment has taken in since the loss
}

// diagnose compares the lane with the checkpoint and with the position of every
// segment of every topic.
func (r Repair) diagnose(ctx context.Context, l *JetStream, state State, c segment.Checkpoint) (setback, error) {
	b := setback{times: map[uint64]time.Time{}, highest: c.Sequence}
	var gone *LaneBackError
	err := checkWitness(ctx, l, r.ID, state, c)
	if errors.As(err, &gone) {
		b.reason = gone.Reason
	} else if err != nil {
		return b, err
	}
	source := r.ID.Source(state.Incarnation)
	lost := uint64(math.MaxUint64) // the first number that is known to be another message now
	var shown []taken              // what the lane shows
	for p, err := range positionsAbove(ctx, r.Store, source, c.Sequence) {
		if err != nil {
			return b, err
		}
		b.highest = max(b.highest, p.At.Sequence)
		at, err := l.TimeOf(ctx, p.At.Sequence)
		switch {
		case err == nil && at.UnixMicro() == p.Time.UnixMicro() && gone == nil:
			shown = append(shown, p)
			continue
		case err != nil && !errors.Is(err, ErrNoMessage):
			return b, err
		}
		b.times[p.At.Sequence] = p.Time
		if b.reason == "" {
			b.reason = fmt.Sprintf("message %d was committed, and the lane shows another one or none", p.At.Sequence)
		}
		if gone == nil {
			agreed, first, err := agreement(ctx, l, p, c.Sequence)
			if err != nil {
				return b, err
			}
			b.agreed, lost = max(b.agreed, agreed), min(lost, first)
		}
	}
	if b.reason == "" {
		return b, fmt.Errorf("lane %s: %w", r.ID, ErrNotBack)
	}
	err = b.divide(ctx, shown, c.Sequence, lost)
	return b, err
}

// divide sorts what is committed and in the lane by whether it was there before
// the loss.
func (b *setback) divide(ctx context.Context, shown []taken, above, lost uint64) error {
	for _, p := range shown {
		if p.At.Sequence < lost {
			b.agreed = max(b.agreed, p.At.Sequence)
			continue
		}
		b.newest = max(b.newest, p.At.Sequence)
		times, err := p.timesAbove(ctx, above)
		if err != nil {
			return err
		}
		for sequence := range times {
			if sequence < lost {
				b.agreed = max(b.agreed, sequence)
			}
		}
	}
	return nil
}

// agreement is the last message above a sequence number whose records a segment
// has and that the lane still shows, 0 if there is none, and the first one that
// it does not show. A lane loses its end, so it shows all up to some message and
// none above.
func agreement(ctx context.Context, l *JetStream, p taken, above uint64) (agreed, lost uint64, err error) {
	times, err := p.timesAbove(ctx, above)
	if err != nil {
		return 0, 0, err
	}
	sequences := slices.Sorted(maps.Keys(times))
	var failed error
	n := sort.Search(len(sequences), func(i int) bool {
		at, err := l.TimeOf(ctx, sequences[i])
		if err != nil && !errors.Is(err, ErrNoMessage) {
			failed = errors.Join(failed, err)
		}
		return err != nil || at.UnixMicro() != times[sequences[i]].UnixMicro()
	})
	lost = p.At.Sequence
	if n < len(sequences) {
		lost = sequences[n]
	}
	if n > 0 {
		agreed = sequences[n-1]
	}
	return agreed, lost, failed
}

// taken is how far a segment has taken a source in.
type taken struct {
	segment.SourcePosition
	segment *segment.Segment
}

// timesAbove are the messages above a sequence number of which the segment has
// records, with their times.
func (p taken) timesAbove(ctx context.Context, above uint64) (map[uint64]time.Time, error) {
	times := map[uint64]time.Time{}
	next := uint64(0)
	for c, err := range p.segment.Chunks(ctx, 0) {
		if err == nil && c.Base > next {
			err = p.compacted(ctx, next, c.Base, func(item *segment.Item) {
				if item.Source == p.Source && item.Position.Sequence > above {
					times[item.Position.Sequence] = item.Time
				}
			})
		}
		if err != nil {
			return nil, err
		}
		next = c.End()
		if c.Source != p.Source || c.PositionOf(p.Source).At.Sequence <= above {
			continue
		}
		for rec, err := range p.segment.Records(ctx, c) {
			if err != nil {
				return nil, err
			}
			if rec.Position.Sequence > above {
				times[rec.Position.Sequence] = rec.Time
			}
		}
	}
	return times, nil
}

// compacted gives the records of some offsets whose chunks are gone: those that are in
// data files.
func (p taken) compacted(ctx context.Context, from, to uint64, take func(*segment.Item)) error {
	for before := ^from; from < to && from != before; {
		before = from
		for item, err := range p.segment.Items(ctx, from) {
			var gap *segment.TrimmedError
			if errors.As(err, &gap) && gap.Next > from {
				from = gap.Next // to go on behind it
				break
			}
			if err != nil {
				return err
			}
			if item.Offset >= to {
				return nil
			}
			take(&item)
			from = item.Offset + 1
		}
	}
	return nil
}

// positionsAbove yields how far the segments of all topics have taken a source
// in, where that is above a sequence number.
func positionsAbove(ctx context.Context, store *segment.Store, source string, above uint64) iter.Seq2[taken, error] {
	return func(yield func(taken, error) bool) {
		defs, err := store.Topics(ctx)
		if err != nil {
			yield(taken{}, err)
			return
		}
		for _, d := range defs {
			positions, err := positionsOf(ctx, store, d.Name, source)
			if err != nil {
				yield(taken{}, err)
				return
			}
			for _, p := range positions {
				if p.At.Sequence > above && !yield(p, nil) {
					return
				}
			}
		}
	}
}

func positionsOf(ctx context.Context, store *segment.Store, topic, source string) (list []taken, err error) {
	t, err := store.Topic(ctx, topic)
	if errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	segments, err := t.Segments(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		tail, err := s.Tail(ctx)
		if err != nil {
			return nil, err
		}
		list = append(list, taken{tail.PositionOf(source), s})
	}
	return list, nil
}
