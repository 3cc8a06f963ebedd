package compactor

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
)

// rewriter makes the data files of one segment. One goroutine reads and decodes chunks,
// one encodes rows, and one reads back what is written; uploads run beside. None of
// them is more than a few chunks or row groups ahead of the next.
type rewriter struct {
	*part
	*visit
	drop  []segment.DroppedRange
	out   *output // nil: no file is open
	files []segment.DataFile
	check errgroup.Group // reads back, one file at a time
	row   parquet.Row
	moved atomic.Uint64 // grows with each row that is written

	base, next    uint64 // offsets: the first, and the one to come
	records, rows uint64
	bytes         uint64
	first, last   time.Time
}

// stallAfter is after how long without a record read or written a rewriting is given up,
// and put off: faults of the filer are tried again without end, and while it has no room
// for new files, chunks can be deleted that make some.
const stallAfter = 5 * time.Minute

// watched is rewrite, given up where it stands still.
func (w *rewriter) watched(ctx context.Context) (m segment.Manifest, err error) {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	stalled := false
	g.Go(func() error {
		tick := time.NewTicker(stallAfter)
		defer tick.Stop()
		for last := uint64(0); ; {
			select {
			case <-inner.Done():
				return nil
			case <-tick.C:
			}
			now := w.moved.Load()
			if now == last {
				stalled = true
				cancel()
				return nil
			}
			last = now
		}
	})
	m, err = w.rewrite(inner)
	cancel()
	_ = g.Wait() // always nil
	if stalled && err != nil && ctx.Err() == nil {
		err = fmt.Errorf("nothing could be read or written for %s, it is put off: %w", stallAfter, err)
	}
	return m, err
}

// rewrite makes the files, and returns the manifest that names them, which is not
// created. Files that are made and then not named are left to the sweep.
//
// *damage: the segment cannot be read. *postponedError: batch references cannot. Other
// errors are of the filer.
func (w *rewriter) rewrite(ctx context.Context) (m segment.Manifest, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	r := &reader{Segment: w.Segment, dir: w.dir, seal: w.seal, drop: w.drop}
	w.check.SetLimit(1)
	err = w.write(ctx, r.read(ctx, &g))
	if err == nil {
		err = w.finish()
	}
	if err != nil {
		cancel()
		w.abort()
		_ = w.check.Wait() // it was called off
	} else {
		err = w.check.Wait()
	}
	cancel()
	_ = g.Wait() // always nil: errors came with what was read
	return w.manifest(), err
}

// write writes the records of all chunks.
func (w *rewriter) write(ctx context.Context, feeds <-chan feed) error {
	for f := range feeds {
		if f.err != nil {
			return f.err
		}
		w.enter(f)
		for b := range f.batches {
			if b.err != nil {
				return b.err
			}
			for _, it := range b.items {
				if err := w.item(ctx, f.Chunk, it); err != nil {
					return err
				}
			}
			w.tell()
		}
		if f.Sealed {
			return w.leave(f.Chunk)
		}
	}
	return ctx.Err() // what else ends the feeds early
}

// enter takes note of a chunk.
func (w *rewriter) enter(f feed) {
	w.base = f.base
	if f.Count == 0 {
		return
	}
	w.bytes += f.Bytes
	if w.first.IsZero() {
		w.first = f.First
	}
	w.last = f.Last
}

// leave checks at the seal that all was written that is not given up.
func (w *rewriter) leave(seal segment.Chunk) error {
	want := seal.Base - w.base
	for _, d := range w.dropped(seal.Base) {
		want -= d.Last - d.First + 1
	}
	if w.records != want {
		return fmt.Errorf("segment %s: %d records were written, and it holds %d", w.ID, w.records, want)
	}
	return nil
}

// dropped is what is given up of the records from the first to the seal.
func (w *rewriter) dropped(end uint64) (list []segment.DroppedRange) {
	for _, d := range w.drop {
		d.First, d.Last = max(d.First, w.base), min(d.Last, end-1)
		if end > 0 && d.First <= d.Last {
			list = append(list, d)
		}
	}
	return list
}

// item writes a record, or the rows of a batch. A file ends where records are left out.
func (w *rewriter) item(ctx context.Context, c segment.Chunk, it item) error {
	if it.offset != w.next {
		if err := w.finish(); err != nil {
			return err
		}
	}
	w.next = it.offset + 1
	w.records++
	w.row = parquet.Row{Segment: w.ID, Offset: it.offset, Source: c.Source, Batch: parquet.NoBatch, Record: it.Record}
	b, is, err := ref.BatchOf(&w.row.Record)
	switch {
	case !is, err == nil && b.Expand: // its rows are records by themselves
		return w.put(ctx)
	case err != nil:
		w.row.Error = clip(err.Error())
		return w.put(ctx)
	}
	return w.batch(ctx, b)
}

// put writes the row.
func (w *rewriter) put(ctx context.Context) error {
	if w.out == nil {
		var err error
		if w.out, err = w.newOutput(ctx); err != nil {
			return err
		}
	}
	if err := w.out.write(&w.row); err != nil {
		return err
	}
	w.rows++
	w.moved.Add(1)
	if w.out.size() >= w.FileBytes {
		return w.finish()
	}
	return nil
}

// finish ends the file that is open, and has it read back.
func (w *rewriter) finish() error {
	if w.out == nil {
		return nil
	}
	out := w.out
	w.out = nil
	f, err := out.finish(w.Segment)
	if err != nil {
		return err
	}
	w.files = append(w.files, f)
	w.check.Go(out.readBack)
	return nil
}

func (w *rewriter) abort() {
	if w.out != nil {
		w.out.abort()
		w.out = nil
	}
}

// tell says how far it is.
func (w *rewriter) tell() {
	if w.visit.Progress == nil {
		return
	}
	p := w.progress
	p.Segment, p.Records, p.Rows, p.Bytes = w.ID, p.Records+w.records, p.Rows+w.rows, p.Bytes+w.bytes
	w.visit.Progress(p)
}

func (w *rewriter) manifest() segment.Manifest {
	return segment.Manifest{
		Segment: w.ID, Base: w.base, End: w.seal.Base, Seal: w.seal.Entry.N,
		Records: w.records, Rows: w.rows, Bytes: w.bytes, First: w.first, Last: w.last,
		Created: w.Now().UTC().Truncate(time.Millisecond), Files: w.files, Dropped: w.dropped(w.seal.Base),
	}
}
