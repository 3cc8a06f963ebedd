package repair

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// LostError says why a chunk cannot be mended.
type LostError struct{ Reason string }

func (e *LostError) Error() string { return e.Reason }

func lost(format string, a ...any) error { return &LostError{fmt.Sprintf(format, a...)} }

// FromLane mends the damaged chunks of a segment from the lanes that they came from.
// Chunks that cannot be mended are in the report, with the reason. What an operator
// gave up before, and is mended now, is given up no more. Calling it again, or several
// times at once, is fine. The error says that it could not be found out, or done.
func (r *Repairer) FromLane(ctx context.Context, name string, id topic.SegmentID, dryRun bool) (Report, error) {
	s, t, report, err := r.open(ctx, name, id)
	if err != nil {
		return report, err
	}
	report.DryRun = dryRun
	if _, err := r.damaged(ctx, t, s, &report); err != nil {
		return report, err
	}
	var mended []segment.DroppedRange
	for i := range report.Damaged {
		d := &report.Damaged[i]
		err := r.mend(ctx, s, t, d, dryRun)
		var why *LostError
		switch {
		case errors.As(err, &why):
			d.Outcome, d.Why = Lost, why.Reason
		case errors.Is(err, filer.ErrNotFound):
			d.Outcome, d.Why = Lost, "it was trimmed meanwhile"
		case err != nil:
			return report, fmt.Errorf("chunk %s: %w", d.Path, err)
		case dryRun:
			d.Outcome = Mendable
		default:
			d.Outcome = Mended
			mended = append(mended, segment.DroppedRange{First: d.First, Last: d.Last})
			r.logger(report).Warn("a damaged chunk was mended from its lane", "chunk", d.Path, "was", d.Reason, "by", r.By)
		}
	}
	if report.Compacted || len(mended) == 0 {
		return report, nil
	}
	report.Dropped, err = r.change(ctx, t, id, func(list []segment.DroppedRange) []segment.DroppedRange { return without(list, mended) })
	return report, err
}

// mend makes the bytes of a chunk again, and puts them in the place of those that are
// there.
func (r *Repairer) mend(ctx context.Context, s *segment.Segment, t *segment.Topic, d *Damage, dryRun bool) error {
	set, err := r.again(ctx, s, t, d)
	if err != nil {
		return err
	}
	data, err := r.encode(set, d.chunk)
	if err != nil || dryRun {
		return err
	}
	n := newBytes{d.chunk, data, filer.Storage{Replication: t.Replication, Fsync: t.Fsync}}
	return r.replace(ctx, n, func(ctx context.Context) (string, error) {
		c, err := s.ChunkAt(ctx, d.Chunk)
		if err != nil {
			return "", err
		}
		return r.wrong(ctx, s, c)
	})
}

// again collects the records of a chunk from its lane: the last so many of the segment's
// range up to the chunk's position that no ancestor has.
func (r *Repairer) again(ctx context.Context, s *segment.Segment, t *segment.Topic, d *Damage) (*record.Set, error) {
	c := d.chunk
	switch {
	case c.Entry.ID == "":
		return nil, lost("its entry in the log cannot be read, and entries are not made again")
	case !strings.HasPrefix(c.Source, "lane."):
		return nil, lost("its records are of the backfill %s, and came through no lane", c.Source)
	case t.Name == topic.Unrouted:
		return nil, lost("which messages came to topic %q depended on what topics there were", t.Name)
	case r.Lane == nil:
		return nil, lost("no lane can be read here")
	}
	end := c.PositionOf(c.Source).At
	before := d.prev.PositionOf(c.Source).At.Max(c.From)
	taken := &record.Set{}
	for set, err := range r.Lane(ctx, c.Source, t.Definition, end.Sequence) {
		if err != nil {
			return nil, err
		}
		for _, rec := range set.Recs {
			if !rec.Pos.After(before) || rec.Pos.After(end) || !s.Range.Contains(rec.Slot) || !rec.Pos.After(s.FloorOf(c.Source, rec.Slot)) {
				continue
			}
			if err := taken.Copy(set, rec); err != nil {
				return nil, err
			}
		}
		if taken, err = last(taken, c.Count, 2*c.Count+record.MaxBatchRows); err != nil {
			return nil, err
		}
	}
	taken, err := last(taken, c.Count, c.Count)
	if err == nil && uint64(len(taken.Recs)) < c.Count {
		err = lost("its lane still holds %d of its %d records; the others have been trimmed, or were taken in by other rules", len(taken.Recs), c.Count)
	}
	return taken, err
}

// last leaves the last so many records of a set that has more than most.
func last(set *record.Set, count, most uint64) (*record.Set, error) {
	if uint64(len(set.Recs)) <= most {
		return set, nil
	}
	short := &record.Set{}
	for _, rec := range set.Recs[uint64(len(set.Recs))-count:] {
		if err := short.Copy(set, rec); err != nil {
			return nil, err
		}
	}
	return short, nil
}

// encode gives the bytes of a chunk, if they are those that its attributes tell of.
func (r *Repairer) encode(set *record.Set, c segment.Chunk) ([]byte, error) {
	for _, codec := range [...]string{r.Store.Codec, record.CodecZstd, record.CodecNull} {
		data, err := record.EncodeChunk(nil, set, codec)
		if err != nil {
			return nil, err
		}
		if fmt.Sprintf("xxh64:%016x", xxhash.Sum64(data)) == c.Digest {
			return data, nil
		}
	}
	refs := uint64(0)
	for i := range set.Recs {
		if set.Recs[i].HasRef {
			refs++
		}
	}
	if refs != c.Refs {
		return nil, lost("%d of its references were refused for what their objects were then, of which the lane does not tell", int64(refs)-int64(c.Refs))
	}
	return nil, lost("the lane's messages make other bytes than it had")
}
