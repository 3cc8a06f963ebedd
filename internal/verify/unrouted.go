package verify

import (
	"context"
	"errors"
	"math"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
)

// recordsOf gives the records of a source in a segment of another topic, which is read
// as anybody reads it. What is damaged in a chunk is passed by.
func recordsOf(ctx context.Context, seg *segment.Segment, source string, take func(*record.Record)) error {
	ours := func(item *segment.Item) {
		if item.Source == source {
			take(&item.Record)
		}
	}
	next := uint64(0)
	for c, err := range seg.Chunks(ctx, 0) {
		if err == nil && c.Base > next {
			err = compactedOf(ctx, seg, offsets{next, c.Base}, ours)
		}
		if err == nil && c.Source == source {
			err = recordsIn(ctx, seg, c, take)
		}
		if errors.Is(err, commitlog.ErrVoid) || errors.Is(err, filer.ErrNotFound) {
			// It goes while it is read: a reader finds the rest wherever that is.
			err = compactedOf(ctx, seg, offsets{next, math.MaxUint64}, ours)
			return ifUnknown(err)
		}
		if ifUnknown(err) != nil {
			return err
		}
		next = c.End()
	}
	return nil
}

func recordsIn(ctx context.Context, seg *segment.Segment, c segment.Chunk, take func(*record.Record)) error {
	for r, err := range seg.Records(ctx, c) {
		if err != nil {
			return err
		}
		take(&r)
	}
	return nil
}

// compactedOf gives the records of some offsets whose chunks are gone: those that are in
// data files.
func compactedOf(ctx context.Context, seg *segment.Segment, at offsets, take func(*segment.Item)) error {
	for before := ^at.from; at.from < at.to && at.from != before; {
		before = at.from
		for item, err := range seg.Items(ctx, at.from) {
			var gap *segment.TrimmedError
			if errors.As(err, &gap) && gap.Next > at.from {
				at.from = gap.Next // to go on behind it
				break
			}
			if err != nil {
				return err
			}
			if item.Offset >= at.to {
				return nil
			}
			take(&item)
			at.from = item.Offset + 1
		}
	}
	return nil
}
