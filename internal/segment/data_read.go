package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
)

// DataFileError says which data file of a segment cannot be read: it is missing
// (filer.ErrNotFound), or not what its manifest says (filer.ErrCorrupt).
type DataFileError struct {
	Path string
	Err  error
}

func (e *DataFileError) Error() string { return fmt.Sprintf("data file %s: %v", e.Path, e.Err) }

func (e *DataFileError) Unwrap() error { return e.Err }

// files yields what there is from the reader's offset on in the data files of the
// segment's manifest, to their end. found: there is a manifest, and it has the offset.
func (at *reading) files(ctx context.Context, yield func(Item, error) bool) (found, stopped bool, err error) {
	known := at.manifest != nil
	if !known {
		m, err := at.Manifest(ctx)
		if errors.Is(err, filer.ErrNotFound) {
			return false, false, nil
		}
		if err != nil {
			return false, false, err
		}
		at.manifest = &m
	}
	if at.earliest {
		at.offset = max(at.offset, at.manifest.Base)
	}
	if at.offset >= at.manifest.End {
		return false, false, nil
	}
	for at.offset < at.manifest.End {
		stopped, err = at.file(ctx, yield)
		if known && errors.Is(err, filer.ErrNotFound) {
			at.manifest = nil // it may be gone with its files
			return at.files(ctx, yield)
		}
		if stopped || err != nil {
			return true, stopped, err
		}
	}
	return true, false, nil
}

// file yields what there is from the reader's offset on in the data file that has it.
func (at *reading) file(ctx context.Context, yield func(Item, error) bool) (stopped bool, err error) {
	m := at.manifest
	if at.offset < m.Base {
		return false, &TrimmedError{Segment: at.ID, At: at.offset, Next: m.Base}
	}
	if d, ok := m.droppedAt(at.offset); ok {
		return false, &TrimmedError{Segment: at.ID, At: at.offset, Next: d.Last + 1, Reason: d.Reason}
	}
	f, _ := m.FileAt(at.offset) // what is not dropped is in one
	filter := parquet.Filter{From: at.offset}
	if at.only != nil {
		filter.Key, filter.HasKey = at.only.key, true
	}
	for row, err := range at.DataRows(ctx, f, filter) {
		if err != nil {
			return false, err
		}
		if row.Offset < at.offset || row.Offset > at.offset && at.only == nil || row.Offset > f.Last {
			return false, at.badFile(f, "it has the offset %d where %d comes next", row.Offset, at.offset)
		}
		at.offset, at.earliest = row.Offset+1, false
		if !yield(Item{at.ID, row.Offset, row.Source, row.Clone()}, nil) {
			return true, nil
		}
	}
	if at.offset <= f.Last && at.only == nil {
		return false, at.badFile(f, "it has no records from offset %d on", at.offset)
	}
	at.offset, at.earliest = f.Last+1, false
	return false, nil
}

// DataRows yields the records of a data file of the segment that a filter takes, of a
// batch the one that refers to it, as [parquet.Reader.Records] does: a row is valid
// until the next. The first error ends it. Those about the file are a *DataFileError;
// others are the filer's and may pass.
func (s *Segment) DataRows(ctx context.Context, f DataFile, filter parquet.Filter) iter.Seq2[*parquet.Row, error] {
	return func(yield func(*parquet.Row, error) bool) {
		r, err := s.openFile(ctx, f)
		if err != nil {
			yield(nil, s.fileError(f, err))
			return
		}
		for row, err := range r.Records(ctx, filter) {
			switch {
			case err != nil:
				err = s.fileError(f, err)
			case row.Segment != s.ID:
				err = s.badFile(f, "it has a record of the segment %.100q", row.Segment)
			}
			if !yield(row, err) || err != nil {
				return
			}
		}
	}
}

func (s *Segment) openFile(ctx context.Context, f DataFile) (*parquet.Reader, error) {
	var e filer.Entry
	err := filer.Retry(ctx, func(ctx context.Context) (err error) {
		e, err = s.topic.store.Filer.Lookup(ctx, s.DataPath(f.Name))
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case e.IsDir || e.Size != f.Size:
		return nil, fmt.Errorf("%w: it has %d bytes, the manifest says %d", filer.ErrCorrupt, e.Size, f.Size)
	case e.Attrs[filer.AttrDigest] != f.Digest:
		return nil, fmt.Errorf("%w: it says that its digest is %.100q, the manifest says %s", filer.ErrCorrupt, e.Attrs[filer.AttrDigest], f.Digest)
	}
	return parquet.Open(filer.NewReaderAt(ctx, s.topic.store.Filer, e), e.Size)
}

func (s *Segment) badFile(f DataFile, format string, a ...any) error {
	return &DataFileError{s.DataPath(f.Name), fmt.Errorf("%w: %s", filer.ErrCorrupt, fmt.Sprintf(format, a...))}
}

// fileError tells errors about a file from those that may pass.
func (s *Segment) fileError(f DataFile, err error) error {
	switch {
	case errors.Is(err, filer.ErrNotFound), errors.Is(err, filer.ErrCorrupt):
		return &DataFileError{s.DataPath(f.Name), err}
	case errors.Is(err, parquet.ErrFormat):
		return &DataFileError{s.DataPath(f.Name), fmt.Errorf("%w: %w", filer.ErrCorrupt, err)}
	}
	return fmt.Errorf("read data file %s: %w", s.DataPath(f.Name), err)
}

// sinceFiles is the offset of the first record in the segment's data files that was
// appended at or after a time, and whether there is none. What was dropped is passed.
func (s *Segment) sinceFiles(ctx context.Context, m *Manifest, since time.Time) (offset uint64, over bool, err error) {
	for _, f := range m.Files {
		if f.To.Before(since) {
			continue
		}
		if !f.From.Before(since) {
			return f.First, false, nil
		}
		for row, err := range s.DataRows(ctx, f, parquet.Filter{Since: since, NoValues: true}) {
			if err != nil {
				return 0, false, err
			}
			return row.Offset, false, nil
		}
	}
	return m.End, true, nil
}
