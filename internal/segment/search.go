package segment

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
)

// search finds the first chunk for which beyond is true; it must be so of all
// that follow, as it is of offsets and times. It returns the segment's tail, the
// number of the first chunk that was looked at, and the chunk's number, one above
// the tail's if there is none. filer.ErrNotFound: the segment was trimmed meanwhile.
func (s *Segment) search(ctx context.Context, beyond func(Chunk) bool) (tail Chunk, head, n uint64, err error) {
	head, _, err = s.log.Head(ctx)
	if err != nil {
		return tail, 0, 0, err
	}
	if tail, err = s.Tail(ctx); err != nil {
		return tail, 0, 0, err
	}
	low, high := head, tail.Entry.Next()
	for low < high {
		mid := low + (high-low)/2
		c, err := s.ChunkAt(ctx, mid)
		if err != nil {
			return tail, 0, 0, err
		}
		if beyond(c) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return tail, head, low, nil
}

// ChunkAt reads the attributes of chunk number n. filer.ErrNotFound: there is none
// any more, or not yet.
func (s *Segment) ChunkAt(ctx context.Context, n uint64) (Chunk, error) {
	e, err := s.log.At(ctx, n)
	if err != nil {
		return Chunk{}, err
	}
	return parseChunk(e)
}

// since is the offset of the first record appended at or after a time, and
// whether the segment ended before it.
func (s *Segment) since(ctx context.Context, since time.Time) (offset uint64, over bool, err error) {
	for {
		offset, over, err = s.trySince(ctx, since)
		if !errors.Is(err, filer.ErrNotFound) && !errors.Is(err, filer.ErrCorrupt) {
			return offset, over, err
		}
		if _, files := errors.AsType[*DataFileError](err); files {
			return offset, over, err
		}
		m, err2 := s.Manifest(ctx)
		if err2 == nil {
			return s.sinceFiles(ctx, &m, since)
		}
		if !errors.Is(err2, filer.ErrNotFound) {
			return 0, false, errors.Join(err2, err)
		}
		// Trimmed meanwhile, or damaged: then a second look ends the same.
		head, _, err2 := s.log.Head(ctx)
		if err2 != nil || head <= s.sought {
			return 0, false, errors.Join(err2, err)
		}
		s.sought = head
	}
}

func (s *Segment) trySince(ctx context.Context, since time.Time) (offset uint64, over bool, err error) {
	tail, head, n, err := s.search(ctx, func(c Chunk) bool { return !c.Last.Before(since) })
	if err != nil || n >= tail.Entry.Next() {
		return tail.End(), tail.Sealed, err
	}
	if n == head && head > 0 {
		// What comes before was trimmed, and may be in data files.
		m, err := s.Manifest(ctx)
		if err == nil {
			return s.sinceFiles(ctx, &m, since)
		}
		if !errors.Is(err, filer.ErrNotFound) {
			return 0, false, err
		}
	}
	c, err := s.ChunkAt(ctx, n)
	if err != nil {
		return 0, false, err
	}
	offset = c.Base
	if !c.First.Before(since) {
		return offset, false, nil
	}
	for r, err := range s.Records(ctx, c) {
		if err != nil {
			return 0, false, err
		}
		if !r.Time.Before(since) {
			break
		}
		offset++
	}
	return offset, false, nil
}
