package inspect

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Place is where a record lies in a topic's files.
type Place struct {
	Topic   string
	Segment topic.SegmentID
	Range   topic.Range
	Offset  uint64
	Chunk   segment.Chunk // zero if it is gone, and the record in a data file
	Index   uint64        // of the record in the chunk
	File    string        // path of the file that it is in
	record.Record
}

// Rows is a stretch of a message's rows.
type Rows struct{ From, To topic.Position }

// OneRow is a single row.
func OneRow(p topic.Position) Rows { return Rows{p, p} }

// AllRows is a whole message.
func AllRows(seq uint64) Rows { return Rows{topic.Position{Sequence: seq}, topic.Whole(seq)} }

func (r Rows) contain(p topic.Position) bool { return !r.From.After(p) && !p.After(r.To) }

// Found is what [Topic.Find] found.
type Found struct {
	Places []Place // by position
	// Trimmed are segments of which the chunk with rows may have been trimmed, or its
	// records given up.
	Trimmed []topic.SegmentID
}

// Find looks for rows of a source's message. Positions in chunk attributes are
// cumulative, so in each segment that the topic has had it halves the chunks
// down to the one or two that can hold them, and reads only those. Where chunks are
// gone because the segment is compacted, it looks into the data files.
// segment.ErrNoTopic and segment.ErrDeleting: it was deleted meanwhile.
func (t *Topic) Find(ctx context.Context, source string, rows Rows) (Found, error) {
	l, err := t.Lineage(ctx)
	if err != nil {
		return Found{}, t.gone(ctx, err)
	}
	found := make([]Found, len(l.Members))
	g, looking := errgroup.WithContext(ctx)
	g.SetLimit(lookParallel)
	for i, m := range l.Members {
		g.Go(func() error {
			return whileTrimmed(func() (err error) {
				found[i], err = t.findIn(looking, m.ID, source, rows)
				return err
			})
		})
	}
	if err := g.Wait(); err != nil {
		return Found{}, t.gone(ctx, err)
	}
	var all Found
	for _, f := range found {
		all.Places = append(all.Places, f.Places...)
		all.Trimmed = append(all.Trimmed, f.Trimmed...)
	}
	slices.SortFunc(all.Places, func(a, b Place) int { return a.Position.Compare(b.Position) })
	return all, nil
}

// findIn looks in one segment.
func (t *Topic) findIn(ctx context.Context, id topic.SegmentID, source string, rows Rows) (f Found, err error) {
	s, err := t.near.Segment(ctx, id)
	if err != nil {
		return f, err
	}
	tail, err := s.Tail(ctx)
	if err != nil || rows.From.After(tail.PositionOf(source).At) {
		return f, err // the segment has not got that far, or never heard of the source
	}
	head, err := chunkAt(ctx, s, 0)
	if err != nil {
		return f, err
	}
	reached := func(p topic.Position) func(segment.Chunk) bool {
		return func(c segment.Chunk) bool { return !p.After(c.PositionOf(source).At) }
	}
	first, _, err := firstWhere(ctx, s, head.Entry.N, tail.Entry.N, reached(rows.From))
	if err != nil {
		return f, err
	}
	last := first
	if rows.From != rows.To {
		var ok bool
		if last, ok, err = firstWhere(ctx, s, first.Entry.N, tail.Entry.N, reached(rows.To)); err == nil && !ok {
			last = tail
		}
		if err != nil {
			return f, err
		}
	}
	if f.Places, err = t.readRows(ctx, s, source, rows, span{first, last}); err != nil {
		return t.findElsewhere(ctx, s, wanted{source, rows, tail.End()}, err)
	}
	// Chunks may have gone since they were looked at.
	if head, err = chunkAt(ctx, s, 0); err != nil {
		return f, err
	}
	switch {
	case head.Entry.N > first.Entry.N:
		f.Places = slices.DeleteFunc(f.Places, func(p Place) bool { return p.Offset < head.Base })
	case head.Entry.N < first.Entry.N || head.Entry.N == 0 || len(f.Places) > 0 && f.Places[0].Index > 0:
		return f, nil
	}
	err = t.findGone(ctx, s, wanted{source, rows, head.Base}, &f)
	return f, err
}

// readRows reads the chunks of a source in a span.
func (t *Topic) readRows(ctx context.Context, s *segment.Segment, source string, rows Rows, sp span) (places []Place, err error) {
	for c, err := range s.Chunks(ctx, sp.head.Entry.N) {
		if err != nil {
			return nil, err
		}
		if c.Source == source {
			index := uint64(0)
			for r, err := range s.Records(ctx, c) {
				if err != nil {
					return nil, err
				}
				if rows.contain(r.Position) {
					places = append(places, Place{t.Name, s.ID, s.Range, c.Base + index, c, index, c.Entry.Path, r.Clone()})
				}
				index++
			}
		}
		if c.Entry.N >= sp.tail.Entry.N {
			break
		}
	}
	return places, nil
}
