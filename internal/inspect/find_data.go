package inspect

import (
	"context"
	"errors"
	"slices"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// wanted is rows of a source's message among the records of a segment that come before
// an offset.
type wanted struct {
	source string
	rows   Rows
	before uint64
}

// findGone looks for rows whose chunk is gone: in the data files of the segment, if it
// is compacted.
func (t *Topic) findGone(ctx context.Context, s *segment.Segment, w wanted, f *Found) error {
	m, err := s.Manifest(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		f.Trimmed = []topic.SegmentID{s.ID}
		return nil
	}
	if err != nil {
		return err
	}
	var places []Place
	for _, file := range m.Files {
		if file.First >= w.before {
			break
		}
		found, passed, err := t.findInFile(ctx, s, file, w)
		if err != nil {
			return err
		}
		places = append(places, found...)
		if passed {
			break
		}
	}
	if len(places) == 0 && (m.Base > 0 || len(m.Dropped) > 0) {
		f.Trimmed = []topic.SegmentID{s.ID}
	}
	f.Places = slices.Concat(places, f.Places)
	return nil
}

// findElsewhere looks into the data files for rows whose chunk cannot be read.
func (t *Topic) findElsewhere(ctx context.Context, s *segment.Segment, w wanted, cause error) (f Found, err error) {
	if !errors.Is(cause, filer.ErrNotFound) && !errors.Is(cause, filer.ErrCorrupt) {
		return f, cause
	}
	if _, err := s.Manifest(ctx); errors.Is(err, filer.ErrNotFound) {
		return f, cause
	}
	err = t.findGone(ctx, s, w, &f)
	return f, err
}

// findInFile looks for rows in a data file. Values are not read. It ends after the rows,
// and tells if it got so far: within a segment the records of a source are in order.
func (t *Topic) findInFile(ctx context.Context, s *segment.Segment, file segment.DataFile, w wanted) (places []Place, passed bool, err error) {
	filter := parquet.Filter{To: w.before, NoValues: true}
	for row, err := range s.DataRows(ctx, file, filter) {
		switch {
		case err != nil:
			return nil, false, err
		case row.Source != w.source || w.rows.From.After(row.Position):
			continue
		case row.Position.After(w.rows.To):
			return places, true, nil
		}
		places = append(places, Place{
			Topic: t.Name, Segment: s.ID, Range: s.Range, Offset: row.Offset, Index: row.Offset - file.First,
			File: s.DataPath(file.Name), Record: row.Clone(),
		})
	}
	return places, false, nil
}
