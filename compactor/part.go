package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// State is how far a sealed segment is.
type State string

// The states.
const (
	Live        State = "live"        // it still takes records
	Sealed      State = "sealed"      // there are chunks and nothing else
	Compacted   State = "compacted"   // it has a manifest
	InTable     State = "in table"    // and is in the topic's table
	Trimmed     State = "trimmed"     // and its chunks are gone
	Quarantined State = "quarantined" // it cannot be read
)

// Step is what is to be done next with a segment.
type Step string

// The steps.
const (
	Nothing Step = "nothing"
	Rewrite Step = "rewrite" // to data files and a manifest
	Commit  Step = "commit"  // to the table
	Trim    Step = "trim"    // its chunks
)

// part is a sealed segment as it was found.
type part struct {
	*segment.Segment
	store      filer.Store
	dir        string        // of its log
	first      uint64        // number of the first entry that there is: the seal's, once the chunks are gone
	seal       segment.Chunk // without a manifest only
	manifest   *segment.Manifest
	inTable    segment.InTable    // zero: in none
	quarantine segment.Quarantine // without a manifest only
	live       bool               // it is not sealed: seal is its last chunk
	fresh      bool               // the manifest was made by this visit
}

// trimmed tells whether the chunks of a segment with a manifest are gone.
func (p *part) trimmed() bool { return p.first >= p.manifest.Seal }

// in tells whether the segment is in a table. One without data files is in every one.
func (p *part) in(uuid string) bool {
	return len(p.manifest.Files) == 0 || p.inTable.Names(uuid)
}

// lookParallel is how many segments are looked at side by side.
const lookParallel = 16

// found is a segment that was looked at.
type found struct {
	*part
	err error
}

// look finds out how far segments are, of which live tells those that are not sealed
// (nil: all are). The errors of segments stand beside them, and err is that of the
// context.
func (c *Compactor) look(ctx context.Context, t *segment.Topic, ids []topic.SegmentID, live func(int) bool) (all []found, err error) {
	all = make([]found, len(ids))
	var g errgroup.Group
	g.SetLimit(lookParallel)
	for i, id := range ids {
		g.Go(func() error {
			p, err := c.lookAt(ctx, t, id, live != nil && live(i))
			if err != nil {
				err = fmt.Errorf("segment %s: %w", id, err)
			}
			all[i] = found{p, err}
			return nil
		})
	}
	_ = g.Wait() // always nil
	return all, ctx.Err()
}

func (c *Compactor) lookAt(ctx context.Context, t *segment.Topic, id topic.SegmentID, live bool) (*part, error) {
	s, err := t.Segment(ctx, id)
	if err != nil {
		return nil, err
	}
	p := &part{Segment: s, store: c.Store.Filer, dir: segmentDir(t, id), live: live}
	if live {
		p.seal, err = s.Tail(ctx)
		return p, err
	}
	m, err := s.Manifest(ctx)
	switch {
	case errors.Is(err, filer.ErrNotFound):
		err = p.lookSealed(ctx)
	case err == nil:
		p.manifest = &m
		err = p.lookCompacted(ctx)
	}
	return p, err
}

// lookSealed looks at a segment without a manifest.
func (p *part) lookSealed(ctx context.Context) (err error) {
	if p.quarantine, err = quarantineOf(ctx, p.Segment); err != nil {
		return err
	}
	if p.seal, err = p.Tail(ctx); err != nil || p.seal.Sealed {
		return err
	}
	if p.seal, err = p.last(ctx); err == nil && !p.seal.Sealed {
		err = fmt.Errorf("%w: it has children, but its last chunk, %d, is no seal", filer.ErrCorrupt, p.seal.Entry.N)
	}
	return err
}

// last is the last chunk of a log in which entries are missing, so that it seems to end
// before.
func (p *part) last(ctx context.Context) (segment.Chunk, error) {
	last := p.seal.Entry.N
	for after := ""; ; {
		var page []filer.Entry
		err := filer.Retry(ctx, func(ctx context.Context) (err error) {
			page, err = p.store.List(ctx, p.dir, after, 0)
			return err
		})
		if err != nil {
			return segment.Chunk{}, err
		}
		for _, e := range page {
			if n, ok := entryNumber(e.Name()); ok {
				last = max(last, n)
			}
		}
		if len(page) == 0 {
			return p.ChunkAt(ctx, last)
		}
		after = page[len(page)-1].Name()
	}
}

// lookCompacted looks at a segment with a manifest.
func (p *part) lookCompacted(ctx context.Context) (err error) {
	// One that is damaged is written again, once the table shows what it should say.
	if p.inTable, _, err = p.InTable(ctx); err != nil && !errors.Is(err, filer.ErrNotFound) && !errors.Is(err, filer.ErrCorrupt) {
		return err
	}
	return p.lookLog(ctx)
}

// lookLog finds the first entry of the log, in force or left over from a trim.
func (p *part) lookLog(ctx context.Context) error {
	var page []filer.Entry
	err := filer.Retry(ctx, func(ctx context.Context) (err error) {
		page, err = p.store.List(ctx, p.dir, "", 1)
		return err
	})
	if err != nil {
		return err
	}
	for _, e := range page {
		if n, ok := entryNumber(e.Name()); ok {
			p.first = n
			return nil
		}
	}
	return fmt.Errorf("%w: the log in %s has no entries", filer.ErrCorrupt, p.dir)
}

// situation is what decides about segments beside themselves.
type situation struct {
	catalog bool   // there is one
	table   string // UUID of the topic's table in it; empty: not known now
	grace   time.Duration
	now     time.Time
}

// next decides what is to be done with a segment. until is the end of its grace, of one
// that waits for it.
func (p *part) next(s situation) (state State, do Step, until time.Time) {
	switch {
	case p.manifest == nil && p.quarantine.Reason != "":
		return Quarantined, Rewrite, until
	case p.manifest == nil:
		return Sealed, Rewrite, until
	}
	state = Compacted
	if s.catalog && p.in(s.table) {
		state = InTable
	}
	if p.trimmed() {
		state = Trimmed
	}
	if s.catalog && !p.in(s.table) {
		return state, Commit, until
	}
	if p.trimmed() {
		return state, Nothing, until
	}
	if until = p.manifest.Created.Add(s.grace); until.After(s.now) {
		return state, Nothing, until
	}
	return state, Trim, time.Time{}
}
