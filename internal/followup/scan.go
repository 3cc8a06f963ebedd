package followup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// errOver ends reading where no more looks are begun.
var errOver = errors.New("no more looks in this round")

// fault notes what is wrong with a segment. The others are looked at all the same.
func (r *round) fault(id topic.SegmentID, err error) {
	r.faults = append(r.faults, fmt.Errorf("segment %s: %w", id, err))
}

// segment opens a segment once.
func (r *round) segment(ctx context.Context, id topic.SegmentID) (*segment.Segment, error) {
	if s := r.segments[id]; s != nil {
		return s, nil
	}
	s, err := r.topic.Segment(ctx, id)
	if err == nil {
		r.segments[id] = s
	}
	return s, err
}

// again looks at the open references that are due, a chunk at a time.
func (r *round) again(ctx context.Context) {
	now := r.Now()
	due := slices.DeleteFunc(slices.Clone(r.state.Open), func(o Open) bool { return o.Due.After(now) })
	var trimmed []Open
	for len(due) > 0 && !r.looks.over() {
		n := 1
		for n < len(due) && due[n].Segment == due[0].Segment && due[n].Chunk == due[0].Chunk {
			n++
		}
		lost, err := r.chunkAgain(ctx, due[:n])
		if err != nil && ctx.Err() == nil {
			r.fault(due[0].Segment, err)
		}
		trimmed = append(trimmed, lost...)
		due = due[n:]
	}
	r.report.Trimmed += len(trimmed)
	r.state.settle(trimmed, nil, nil)
}

// chunkAgain looks at open references of one chunk, and returns those whose records
// are not there any more.
func (r *round) chunkAgain(ctx context.Context, open []Open) (trimmed []Open, err error) {
	var c segment.Chunk
	s, err := r.segment(ctx, open[0].Segment)
	if err == nil {
		c, err = s.ChunkAt(ctx, open[0].Chunk)
	}
	if errors.Is(err, filer.ErrNotFound) {
		return r.itemsAgain(ctx, s, open)
	}
	if err != nil {
		return nil, err
	}
	offset := c.Base
	for rec, err := range s.Records(ctx, c) {
		if errors.Is(err, filer.ErrNotFound) {
			if _, err := s.ChunkAt(ctx, c.Entry.N); errors.Is(err, filer.ErrNotFound) {
				more, err := r.itemsAgain(ctx, s, open) // trimmed just now
				return append(trimmed, more...), err
			}
		}
		if err != nil {
			return nil, err
		}
		for len(open) > 0 && open[0].Offset < offset {
			trimmed, open = append(trimmed, open[0]), open[1:] // no such reference
		}
		if len(open) == 0 {
			return trimmed, nil
		}
		if open[0].Offset == offset && rec.Pending {
			if !r.looks.begin(open[0], pendingOf(c.Source, rec), false) {
				return trimmed, nil
			}
			open = open[1:]
		}
		offset++
	}
	return append(trimmed, open...), nil
}

// itemsAgain is chunkAgain for records whose chunk is gone: they are in the data files
// of their segment, or nowhere. s is nil if there is no such segment; should the topic
// be gone, nothing of this can be saved.
func (r *round) itemsAgain(ctx context.Context, s *segment.Segment, open []Open) (trimmed []Open, err error) {
	for left := len(open) + 1; s != nil && len(open) > 0 && len(open) < left; {
		left = len(open)
		for item, err := range s.Items(ctx, open[0].Offset) {
			if err != nil {
				if trimmed, open, err = passed(trimmed, open, err); err != nil {
					return nil, err
				}
				break // to go on behind what is gone
			}
			for len(open) > 0 && open[0].Offset < item.Offset {
				trimmed, open = append(trimmed, open[0]), open[1:]
			}
			if len(open) == 0 {
				return trimmed, nil
			}
			if open[0].Offset != item.Offset {
				continue
			}
			if !item.Pending {
				trimmed, open = append(trimmed, open[0]), open[1:] // no such reference
				continue
			}
			if !r.looks.begin(open[0], pendingOf(item.Source, item.Record), false) {
				return trimmed, nil
			}
			open = open[1:]
		}
	}
	return append(trimmed, open...), nil
}

// passed sorts out the open references whose records are gone, by the error that told
// so. Any other error is given back.
func passed(trimmed, open []Open, err error) ([]Open, []Open, error) {
	var gap *segment.TrimmedError
	if !errors.As(err, &gap) {
		return trimmed, open, err
	}
	n := 0
	for n < len(open) && open[n].Offset < gap.Next {
		n++
	}
	if n == 0 {
		return trimmed, open, err
	}
	return append(trimmed, open[:n]...), open[n:], nil
}

// scan looks through what has come since, by attributes, and begins a look at each
// pending reference that it finds.
func (r *round) scan(ctx context.Context) {
	if len(r.state.Open) >= r.MaxOpen {
		r.report.Full = true
		return
	}
	for i := range r.state.Segments {
		if r.looks.over() {
			return
		}
		w := &r.state.Segments[i]
		err := r.through(ctx, w)
		switch {
		case errors.Is(err, errOver):
			return
		case err != nil && ctx.Err() == nil:
			r.fault(w.Segment, err)
		}
	}
}

// through looks through one segment from its watermark on. Where it was trimmed
// meanwhile it begins again, at the new head.
func (r *round) through(ctx context.Context, w *Watermark) error {
	s, err := r.segment(ctx, w.Segment)
	if err != nil {
		return err
	}
	for failed := (Watermark{}); ; {
		err := r.chunks(ctx, s, w)
		trimmed := errors.Is(err, commitlog.ErrVoid) || errors.Is(err, filer.ErrNotFound)
		if !trimmed || *w == failed {
			return err
		}
		failed = *w
	}
}

func (r *round) chunks(ctx context.Context, s *segment.Segment, w *Watermark) error {
	for c, err := range s.Chunks(ctx, w.Chunk) {
		if err != nil {
			return err
		}
		if c.Base > w.Offset {
			if err := r.compacted(ctx, s, c, w); err != nil {
				return err
			}
		}
		if c.Sealed {
			r.ended[w.Segment] = true
			return nil
		}
		if len(c.Pending) > 0 {
			if err := r.chunk(ctx, s, c, w); err != nil {
				return err
			}
		}
		w.Chunk, w.Offset = c.Entry.N+1, c.End()
		r.passed++
	}
	return nil
}

// compacted looks through records whose chunks were trimmed before anybody looked: those
// from the watermark on that come before a chunk, in the data files of the segment. If
// there are none, nobody has them any more.
func (r *round) compacted(ctx context.Context, s *segment.Segment, to segment.Chunk, w *Watermark) error {
	for before := ^w.Offset; w.Offset < to.Base && w.Offset != before; {
		before = w.Offset
		for item, err := range s.Items(ctx, w.Offset) {
			var gap *segment.TrimmedError
			if errors.As(err, &gap) && gap.Next > w.Offset {
				w.Offset = gap.Next
				break
			}
			if err != nil {
				return err
			}
			if item.Offset >= to.Base {
				return nil
			}
			if item.Pending {
				if !r.looks.room(len(r.state.Open)) {
					r.report.Full = true
					return errOver
				}
				at := Open{Segment: s.ID, Chunk: w.Chunk, Offset: item.Offset}
				if !r.looks.begin(at, pendingOf(item.Source, item.Record), true) {
					return errOver
				}
			}
			w.Offset = item.Offset + 1
			if w.Offset == to.Base {
				return nil
			}
		}
	}
	return nil
}

// chunk begins a look at each pending reference of a chunk, from the watermark on,
// which it moves.
func (r *round) chunk(ctx context.Context, s *segment.Segment, c segment.Chunk, w *Watermark) error {
	offset := c.Base
	for rec, err := range s.Records(ctx, c) {
		if err != nil {
			return err
		}
		at := Open{Segment: s.ID, Chunk: c.Entry.N, Offset: offset}
		offset++
		if at.Offset < w.Offset || !rec.Pending {
			continue
		}
		if !r.looks.room(len(r.state.Open)) {
			r.report.Full = true
			return errOver
		}
		if !r.looks.begin(at, pendingOf(c.Source, rec), true) {
			return errOver
		}
		w.Chunk, w.Offset = at.Chunk, at.Offset+1
	}
	return nil
}
