package compactor

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
)

// place is where in a segment's log something is wrong.
type place struct {
	n           uint64 // number of the entry
	path        string // empty: not known
	first, last uint64 // offsets, as far as they are known
}

// damage says that a segment cannot be read, and where.
type damage struct {
	place
	err error
}

func (d *damage) Error() string { return d.err.Error() }
func (d *damage) Unwrap() error { return d.err }

// item is a record with its offset.
type item struct {
	offset uint64
	record.Record
}

// batch is a few records that follow each other in a chunk.
type batch struct {
	items []item
	err   error // why there are no more; a *damage, or of the context
}

const (
	batchItems = 512
	batchBytes = 1 << 20
	// bigChunk is what a chunk's file must not exceed to be fetched while the one
	// before it is still read: most are far below it, and two of the largest that
	// there can be are too much at once.
	bigChunk = 16 << 20
)

// feed is a chunk, and its records as they are read.
type feed struct {
	segment.Chunk
	base    uint64 // the first offset of the segment
	batches chan batch
	err     error // why there are no more chunks; a *damage, or of the context
}

// reader reads the chunks of a sealed segment, and checks that they are all there, each
// continuing the one before it.
type reader struct {
	*segment.Segment
	dir  string // of the log
	seal segment.Chunk
	drop []segment.DroppedRange

	begun bool
	base  uint64 // the first offset
	next  uint64 // number of the next chunk
	prev  string // ID of the one before; empty: it is not known
	at    uint64 // the offset that the next one begins with
}

// read gives all chunks to feeds, in their order, one ahead of whoever takes them.
// After an error, which is in the last feed or batch, there is nothing more. The caller
// ends the context when it takes no more, and then waits for g.
func (r *reader) read(ctx context.Context, g *errgroup.Group) <-chan feed {
	feeds := make(chan feed)
	g.Go(func() error {
		defer close(feeds)
		if err := r.chunks(ctx, g, feeds); err != nil {
			send(ctx, feeds, feed{err: err})
		}
		return nil
	})
	return feeds
}

// send gives v to whoever takes it, unless the context ends first.
func send[T any](ctx context.Context, to chan<- T, v T) bool {
	select {
	case to <- v:
		return true
	case <-ctx.Done():
		return false
	}
}

// chunks goes through the log up to the seal. Where entries cannot be read whose records
// are given up, it goes on behind them.
func (r *reader) chunks(ctx context.Context, g *errgroup.Group, feeds chan<- feed) error {
	for {
		sealed, err := r.run(ctx, g, feeds)
		if !sealed && unreadable(err) { // somewhere below
			var err2 error
			if sealed, err2 = r.oneByOne(ctx, g, feeds); !errors.Is(err2, filer.ErrNotFound) {
				err = err2 // else the first one says more
			}
		}
		if sealed || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := r.pass(ctx, err); err != nil {
			return err
		}
	}
}

// run goes through the log as far as it can be read.
func (r *reader) run(ctx context.Context, g *errgroup.Group, feeds chan<- feed) (sealed bool, err error) {
	for c, err := range r.Chunks(ctx, r.next) {
		if err == nil {
			err = r.take(ctx, g, feeds, c)
		}
		if err != nil || c.Sealed {
			return err == nil, err
		}
	}
	return false, fmt.Errorf("%w: the log ends with entry %d, before its seal, entry %d", filer.ErrCorrupt, int64(r.next)-1, r.seal.Entry.N)
}

// oneByOne goes on entry by entry, up to the one that cannot be read: a listing fails as
// a whole.
func (r *reader) oneByOne(ctx context.Context, g *errgroup.Group, feeds chan<- feed) (sealed bool, err error) {
	for {
		c, err := r.ChunkAt(ctx, r.next)
		if err == nil {
			err = r.take(ctx, g, feeds, c)
		}
		if err != nil || c.Sealed {
			return err == nil, err
		}
	}
}

// take takes the next chunk.
func (r *reader) take(ctx context.Context, g *errgroup.Group, feeds chan<- feed, c segment.Chunk) error {
	if err := r.follows(c); err != nil {
		return err
	}
	r.begun, r.next, r.prev, r.at = true, c.Entry.N+1, c.Entry.ID, c.End()
	return r.feed(ctx, g, feeds, c)
}

// follows checks that a chunk continues the one before it.
func (r *reader) follows(c segment.Chunk) error {
	bad := func(format string, a ...any) error {
		return &segment.ChunkError{Path: c.Entry.Path, Reason: fmt.Sprintf(format, a...)}
	}
	switch {
	case c.Sealed && c.Count != 0:
		return bad("it is a seal, and its attributes say that it holds %d records", c.Count)
	case !r.begun:
		r.base, r.at, r.next = c.Base, c.Base, c.Entry.N
	case c.Entry.N != r.next:
		return bad("entry %d comes after entry %d", c.Entry.N, int64(r.next)-1)
	case r.prev != "" && c.Entry.Prev() != r.prev:
		return bad("it continues entry %q, but the one before it is %q: the log has forked", c.Entry.Prev(), r.prev)
	case c.Base != r.at:
		return bad("it starts at offset %d, but the chunk before it ends before offset %d", c.Base, r.at)
	}
	return nil
}

// feed begins to read a chunk's records, and gives them away.
func (r *reader) feed(ctx context.Context, g *errgroup.Group, feeds chan<- feed, c segment.Chunk) error {
	f := feed{Chunk: c, base: r.base, batches: make(chan batch, 2)}
	decode := func() error { r.decode(ctx, f); return nil }
	if c.Entry.Size <= bigChunk {
		g.Go(decode)
	}
	if !send(ctx, feeds, f) {
		return ctx.Err()
	}
	if c.Entry.Size > bigChunk {
		g.Go(decode)
	}
	return nil
}

// decode reads the records of a chunk that are not given up.
func (r *reader) decode(ctx context.Context, f feed) {
	defer close(f.batches)
	if f.Count == 0 || r.dropped(f.Base, f.End()) {
		return
	}
	var b batch
	size, offset := 0, f.Base
	for rec, err := range r.Records(ctx, f.Chunk) {
		if err != nil {
			at := place{f.Entry.N, f.Entry.Path, f.Base, f.End() - 1}
			send(ctx, f.batches, batch{err: &damage{at, err}})
			return
		}
		if !r.dropped(offset, offset+1) {
			b.items = append(b.items, item{offset, rec})
			size += len(rec.Value) + len(rec.Key)
		}
		offset++
		if len(b.items) < batchItems && size < batchBytes {
			continue
		}
		if !send(ctx, f.batches, b) {
			return
		}
		b, size = batch{items: make([]item, 0, batchItems)}, 0
	}
	send(ctx, f.batches, b)
}

// dropped tells whether the offsets from first to before end are all given up.
func (r *reader) dropped(first, end uint64) bool {
	for _, d := range r.drop {
		if first >= d.First && first <= d.Last {
			if end-1 <= d.Last {
				return true
			}
			first = d.Last + 1
		}
	}
	return false
}

// pass goes on behind entries that cannot be read, for which err is the reason, if what
// was in them is given up. Else it returns the reason.
func (r *reader) pass(ctx context.Context, err error) error {
	bad := &damage{place{n: r.next, path: entryPath(r.dir, r.next), first: r.at, last: r.seal.Base - 1}, err}
	if !unreadable(err) {
		return err
	}
	if !r.dropped(r.at, r.at+1) {
		return bad
	}
	for n := r.next + 1; n <= r.seal.Entry.N; n++ {
		c, err := r.ChunkAt(ctx, n)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			continue
		}
		bad.last = max(c.Base, r.at+1) - 1
		if c.Base < r.at || c.Base > r.at && !r.dropped(r.at, c.Base) {
			return bad
		}
		r.begun, r.next, r.prev, r.at = true, n, "", c.Base
		return nil
	}
	return bad
}
