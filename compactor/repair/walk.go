package repair

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const entryExt = ".avro"

// walk is a segment's log while it is read entry by entry: whatever is missing, the rest
// is looked at.
type walk struct {
	*Repairer
	segment *segment.Segment
	log     *commitlog.Log
	report  *Report

	prev segment.Chunk // the zero Chunk: it is not known
	at   uint64        // offset that the next chunk begins with
	gap  *Damage       // entries that cannot be read, before the next one that can
}

// damaged reads all chunks of a segment and lists those that cannot be read. It returns
// the last entry that there is.
func (r *Repairer) damaged(ctx context.Context, t *segment.Topic, s *segment.Segment, report *Report) (last segment.Chunk, err error) {
	log := commitlog.New(r.Store.Filer, segmentDir(t, s.ID), entryExt)
	w := &walk{Repairer: r, segment: s, log: log, report: report}
	n, _, err := log.Head(ctx)
	if err != nil {
		return last, err
	}
	end, err := w.end(ctx)
	if err != nil {
		return last, err
	}
	for n < end {
		if n, err = w.entry(ctx, n); err != nil {
			return last, err
		}
	}
	if w.gap != nil {
		return last, fmt.Errorf("the last entry of segment %s cannot be read: %s", s.ID, w.gap.Reason)
	}
	return w.prev, nil
}

func segmentDir(t *segment.Topic, id topic.SegmentID) string {
	return path.Join(t.Dir(), "segments", string(id))
}

// end is the number after the last entry, by the names of the files: a search ends where
// an entry is missing.
func (w *walk) end(ctx context.Context) (end uint64, err error) {
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = w.Store.Filer.List(ctx, w.log.Dir(), after, 0)
			return err
		})
		if err != nil || len(page) == 0 {
			return end, err
		}
		for _, e := range page {
			digits, ok := strings.CutSuffix(e.Name(), entryExt)
			if n, err := strconv.ParseUint(digits, 10, 64); ok && err == nil && len(digits) == 16 {
				end = n + 1
			}
		}
		after = page[len(page)-1].Name()
	}
}

// entry looks at one entry, and returns the number of the next.
func (w *walk) entry(ctx context.Context, n uint64) (next uint64, err error) {
	c, err := w.segment.ChunkAt(ctx, n)
	switch {
	case err == nil:
	case errors.Is(err, filer.ErrNotFound), errors.Is(err, filer.ErrCorrupt):
		head, _, err2 := w.log.Head(ctx)
		if err2 != nil || head > n {
			w.gap, w.prev = nil, segment.Chunk{}
			return head, err2
		}
		if w.gap == nil {
			w.gap = &Damage{Chunk: n, Path: w.log.Path(n), First: w.at, Reason: err.Error()}
		}
		return n + 1, nil
	default:
		return 0, err
	}
	if w.gap != nil {
		if w.gap.Last = c.Base - 1; c.Base > w.gap.First {
			w.report.Damaged = append(w.report.Damaged, *w.gap)
		}
		w.gap, w.prev = nil, segment.Chunk{}
	}
	if !c.Sealed {
		if err := w.chunk(ctx, c); err != nil {
			return 0, err
		}
	}
	w.prev, w.at = c, c.End()
	w.prev.Entry.Content = nil
	return n + 1, nil
}

func (w *walk) chunk(ctx context.Context, c segment.Chunk) error {
	w.report.Chunks++
	reason, err := w.wrong(ctx, w.segment, c)
	if err != nil || reason == "" {
		return err
	}
	w.report.Damaged = append(w.report.Damaged, Damage{
		Chunk: c.Entry.N, Path: c.Entry.Path, First: c.Base, Last: c.End() - 1, Source: c.Source, Reason: reason, chunk: c, prev: w.prev,
	})
	return nil
}
