package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/segment"
)

// output is one data file that is being written.
type output struct {
	ctx   context.Context // of the rewriting that it is a part of
	store filer.Store
	file  *filer.FileWriter
	rows  *parquet.Writer
	sum   sum
	stats parquet.Stats
	entry filer.Entry
}

func (w *rewriter) newOutput(ctx context.Context) (*output, error) {
	d := w.topic.Definition
	how := filer.Storage{Replication: d.Replication, Fsync: d.Fsync} // as the chunks that it replaces (rule 7)
	o := &output{ctx: ctx, store: w.Store.Filer, file: filer.NewFileWriterAs(ctx, w.Store.Filer, w.DataDir(), how)}
	rows, err := parquet.NewWriter(o.file, parquet.WriterOptions{Segment: w.ID})
	if err != nil {
		o.file.Abort()
		return nil, err
	}
	o.rows, o.sum = rows, newSum()
	return o, nil
}

func (o *output) write(row *parquet.Row) error {
	o.sum.add(row)
	return o.rows.Write(row)
}

func (o *output) size() int64 { return o.rows.Size() }

// finish makes the file. One that is there already, with the same name, has the same
// bytes: somebody else was first, or an earlier run.
func (o *output) finish(s *segment.Segment) (f segment.DataFile, err error) {
	if o.stats, err = o.rows.Close(); err != nil {
		o.abort()
		return f, err
	}
	digest := o.file.Sum()
	name := segment.DataFileName(o.stats.First, o.stats.Last, digest)
	if o.entry, _, err = o.file.Finish(s.DataPath(name), nil); err != nil {
		return f, err
	}
	return segment.DataFile{
		Name: name, Size: o.entry.Size, Digest: segment.DataFileDigest(digest),
		First: o.stats.First, Last: o.stats.Last, Records: o.stats.Records, Rows: o.stats.Rows,
		From: o.stats.From, To: o.stats.To,
	}, nil
}

// abort discards what was uploaded.
func (o *output) abort() {
	o.rows.Abort() // which writes to the file until then
	o.file.Abort()
}

// FileError says that a data file, read back after it was written, does not hold what
// was written. Nothing names it, and the chunks stay. It matches filer.ErrCorrupt.
type FileError struct {
	Path   string
	Reason string
}

func (e *FileError) Error() string {
	return fmt.Sprintf("data file %s does not hold what was written: %s", e.Path, e.Reason)
}

// Is makes it match filer.ErrCorrupt.
func (e *FileError) Is(target error) bool { return target == filer.ErrCorrupt }

// readBack reads the file, and compares its rows with those that were written: what a
// manifest names is what came back from the filer.
func (o *output) readBack() error {
	bad := func(err error) error {
		if unreadable(err) || errors.Is(err, parquet.ErrFormat) {
			return &FileError{o.entry.Path, err.Error()}
		}
		return fmt.Errorf("read back %s: %w", o.entry.Path, err)
	}
	r, err := parquet.Open(filer.NewReaderAt(o.ctx, o.store, o.entry), o.entry.Size)
	if err != nil {
		return bad(err)
	}
	got, rows := newSum(), uint64(0)
	for row, err := range r.Rows(o.ctx, parquet.Filter{}) {
		if err != nil {
			return bad(err)
		}
		got.add(row)
		rows++
	}
	if rows != o.stats.Rows {
		return &FileError{o.entry.Path, fmt.Sprintf("%d rows were written, and %d are in it", o.stats.Rows, rows)}
	}
	if got.value() != o.sum.value() {
		return &FileError{o.entry.Path, fmt.Sprintf("its %d rows are other ones", rows)}
	}
	return nil
}
