package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// unreadable tells that something of a segment is not there, or is not what it should
// be: reading it again gives the same, until somebody has mended it.
func unreadable(err error) bool {
	var fork *commitlog.ChainError
	return errors.Is(err, filer.ErrCorrupt) || errors.Is(err, filer.ErrNotFound) ||
		errors.Is(err, commitlog.ErrWentBack) || errors.As(err, &fork)
}

// quarantineOf reads why a segment is in quarantine; zero: it is not. A file that is
// damaged says nothing, and is written again if there is something to say.
func quarantineOf(ctx context.Context, s *segment.Segment) (segment.Quarantine, error) {
	q, err := s.Quarantine(ctx)
	if errors.Is(err, filer.ErrNotFound) || errors.Is(err, filer.ErrCorrupt) {
		return segment.Quarantine{}, nil
	}
	return q, err
}

// dropOf is the ranges that an operator has given up, in order, and each offset once.
func dropOf(q segment.Quarantine) (drop []segment.DroppedRange) {
	drop = slices.Clone(q.Drop)
	slices.SortFunc(drop, func(a, b segment.DroppedRange) int { return cmp.Compare(a.First, b.First) })
	for i := 1; i < len(drop); i++ {
		drop[i].First = max(drop[i].First, drop[i-1].Last+1)
	}
	return slices.DeleteFunc(drop, func(d segment.DroppedRange) bool { return d.First > d.Last })
}

// segmentDir is where a segment's log is.
func segmentDir(t *segment.Topic, id topic.SegmentID) string {
	return path.Join(t.Dir(), "segments", string(id))
}

const entryExt = ".avro"

// entryPath is where an entry of a segment's log is.
func entryPath(dir string, n uint64) string { return path.Join(dir, fmt.Sprintf("%016d", n)+entryExt) }

// entryNumber is the number of the entry that has a file name, if one has.
func entryNumber(name string) (n uint64, ok bool) {
	digits, ok := strings.CutSuffix(name, entryExt)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && len(digits) == 16
}

// cheap tells whether it can be seen without a new try that a segment in quarantine has
// been mended.
func (p *part) cheap() bool {
	return len(p.quarantine.Drop) == 0 && !strings.HasPrefix(p.quarantine.Path, p.DataDir()+"/")
}

// mended tells whether what was wrong with a segment in quarantine may be right again,
// without reading more than that. Where an operator gives something up, or a data file
// is to blame, only a new try tells.
func (v *visit) mended(ctx context.Context, p *part) bool {
	q := p.quarantine
	if !p.cheap() {
		return true
	}
	c, err := p.ChunkAt(ctx, q.Chunk)
	if err != nil {
		return false
	}
	if before, err := p.ChunkAt(ctx, max(q.Chunk, 1)-1); q.Chunk > 0 && err == nil &&
		(before.Entry.ID != c.Entry.Prev() || before.End() != c.Base) {
		return false
	}
	for _, err := range p.Records(ctx, c) {
		if err != nil {
			return false
		}
	}
	return true
}

// quarantine leaves a segment alone, and says why, once.
func (v *visit) quarantine(ctx context.Context, p *part, at place, cause error) {
	v.report.Quarantined++
	q := segment.Quarantine{
		Chunk: at.n, Path: cmp.Or(at.path, pathOf(cause), entryPath(p.dir, at.n)), First: at.first, Last: at.last,
		Reason: clip(cause.Error()), At: v.Now().UTC(),
	}
	old := p.quarantine
	if old.Reason == q.Reason && old.Path == q.Path && old.Chunk == q.Chunk {
		return
	}
	if err := p.SetQuarantine(ctx, q); err != nil {
		v.fault(fmt.Errorf("quarantine segment %s: %w", p.ID, err))
		return
	}
	q.Drop = old.Drop
	p.quarantine = q
	v.Logger.Error("a segment cannot be read, and is left as it is until somebody has looked at it", "topic", v.topic.Name, "segment", p.ID, "path", q.Path, "first", q.First, "last", q.Last, "err", cause)
}

// pathOf is the data file that is to blame, if one is.
func pathOf(err error) string {
	var bad *FileError
	if errors.As(err, &bad) {
		return bad.Path
	}
	return ""
}
