package segment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
)

// reading is how far one segment has been read.
type reading struct {
	*Segment
	offset uint64 // of the next record
	chunk  uint64 // number of the next chunk; 0: to be found
	// earliest: it is read from the first record that there is. Records that
	// were trimmed before the reader came are not missed.
	earliest bool
	done     bool
	only     *onlyKey // nil: all
	// manifest is that of the segment while its data files are read, and nil before
	// and after.
	manifest *Manifest
}

// onlyKey is the key of the records that are wanted; nil: those without one.
type onlyKey struct{ key []byte }

func (o *onlyKey) takes(key []byte) bool {
	return o == nil || bytes.Equal(o.key, key) && (o.key == nil) == (key == nil)
}

// Items yields every record of the segment from an offset to its present end,
// wherever it is now: in chunks, or in data files, also if that changes meanwhile.
// The first error ends it.
//
// *TrimmedError: the record of that offset is nowhere, and there are others later.
// *ChunkError, *DataFileError: a file is damaged, or missing. ErrNoTopic,
// ErrDeleting: the topic was deleted.
func (s *Segment) Items(ctx context.Context, from uint64) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		at := &reading{Segment: s, offset: from}
		if _, err := at.read(ctx, yield); err != nil {
			yield(Item{}, s.topic.gone(ctx, err))
		}
	}
}

// read yields the rest of the segment. What is not to be found, or damaged, is
// looked for again: as a chunk, then in the files of the manifest at the same
// offset, then from the head on (rule 31).
func (at *reading) read(ctx context.Context, yield func(Item, error) bool) (stopped bool, err error) {
	for seen := uint64(math.MaxUint64); ; {
		var missed error
		if at.manifest == nil || at.offset >= at.manifest.End {
			if stopped, missed = at.chunks(ctx, yield); stopped || missed == nil || !elsewhere(missed) {
				return stopped, missed
			}
		}
		found, stopped, err := at.files(ctx, yield)
		switch {
		case stopped || err != nil:
			return stopped, err
		case found: // and read to the end: the seal must say so too
			at.chunk = at.manifest.Seal
			continue
		case missed == nil: // the manifest that was known is gone
			continue
		}
		if seen, err = at.again(ctx, missed, seen); err != nil {
			return false, err
		}
	}
}

// elsewhere tells whether what a chunk should have given may be in a data file.
func elsewhere(err error) bool {
	_, trimmed := errors.AsType[*TrimmedError](err)
	return trimmed || errors.Is(err, commitlog.ErrVoid) || errors.Is(err, commitlog.ErrWentBack) ||
		errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrCorrupt)
}

// again prepares to look at the log again from its head, if that can help. seen is
// the head when that was done last.
func (at *reading) again(ctx context.Context, missed error, seen uint64) (uint64, error) {
	if trimmed, ok := errors.AsType[*TrimmedError](missed); ok {
		if !at.earliest {
			return seen, missed
		}
		at.offset, at.chunk = trimmed.Next, 0
		return seen, nil
	}
	if !errors.Is(missed, commitlog.ErrVoid) && !errors.Is(missed, filer.ErrNotFound) {
		return seen, missed
	}
	head, _, err := at.log.Head(ctx)
	if err != nil || head == seen {
		return seen, errors.Join(err, missed)
	}
	at.chunk = 0
	return head, nil
}

func (at *reading) chunks(ctx context.Context, yield func(Item, error) bool) (stopped bool, err error) {
	next := at.chunk
	jump := next == 0 // the first chunk need not continue one that was read
	if jump {
		if next, err = at.find(ctx); err != nil {
			return false, err
		}
	}
	for c, err := range at.Chunks(ctx, next) {
		if err != nil {
			return false, err
		}
		if err := at.arrive(c, jump && c.Entry.N > 0 || c.Entry.N > next); err != nil {
			return false, err
		}
		if c.End() > at.offset {
			if stopped, err := at.records(ctx, c, yield); stopped || err != nil {
				return stopped, err
			}
		}
		at.offset, at.chunk, at.done = max(at.offset, c.End()), c.Entry.N+1, c.Sealed
		at.earliest, jump, next = false, false, at.chunk
		if at.done {
			at.manifest = nil
		}
	}
	return false, nil
}

// find is the number of the last chunk that begins at or below what is wanted.
func (at *reading) find(ctx context.Context) (uint64, error) {
	if at.offset == 0 {
		return 0, nil
	}
	_, _, n, err := at.search(ctx, func(c Chunk) bool { return c.Base > at.offset })
	return max(n, 1) - 1, err
}

// arrive checks that a chunk continues what was read, or that what lies between
// was trimmed.
func (at *reading) arrive(c Chunk, jump bool) error {
	switch {
	case c.Base > at.offset && jump:
		return &TrimmedError{Segment: at.ID, At: at.offset, Next: c.Base}
	case c.Base > at.offset || c.Sealed && c.Base < at.offset:
		return &ChunkError{c.Entry.Path, fmt.Sprintf("it starts at offset %d, but the reader stands at %d", c.Base, at.offset)}
	}
	return nil
}

func (at *reading) records(ctx context.Context, c Chunk, yield func(Item, error) bool) (stopped bool, err error) {
	offset := c.Base
	for rec, err := range at.Records(ctx, c) {
		if err != nil {
			return false, err
		}
		skip := offset < at.offset || !at.only.takes(rec.Key)
		item := Item{at.ID, offset, c.Source, rec}
		offset++
		if skip {
			continue
		}
		at.offset = offset
		if !yield(item, nil) {
			return true, nil
		}
	}
	return false, nil
}
