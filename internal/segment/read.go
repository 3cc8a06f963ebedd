package segment

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Item is a record as it is read: where it stands, and the record. Its Pending is
// what the record's chunk says.
type Item struct {
	Segment topic.SegmentID
	Offset  uint64
	Source  string // of the record: a lane's incarnation, or a part of a backfill
	record.Record
}

// Reader reads a topic from a position on, parents before children, so that the
// records of a key come in order. One goroutine uses it.
type Reader struct {
	topic   *Topic
	lineage *Lineage
	at      map[topic.SegmentID]*reading
	only    *onlyKey
}

// Read starts at a position (nil: the earliest record there is). Positions in
// or beyond what is there are fine; those of another topic are
// ErrForeignPosition.
func (t *Topic) Read(ctx context.Context, from ReadPosition) (*Reader, error) {
	r := &Reader{topic: t, lineage: &Lineage{}, at: map[topic.SegmentID]*reading{}}
	if err := r.update(ctx); err != nil {
		return nil, err
	}
	for id, off := range from {
		at := r.at[id]
		if at == nil {
			return nil, fmt.Errorf("segment %s, topic %q: %w", id, t.Name, ErrForeignPosition)
		}
		at.offset = off
	}
	for _, at := range r.at {
		at.earliest = from == nil
	}
	for id := range from {
		r.skipAncestors(id, from)
	}
	return r, nil
}

// update opens the segments that have been added since.
func (r *Reader) update(ctx context.Context) error {
	before := len(r.lineage.Members)
	if err := r.lineage.update(ctx, r.topic); err != nil {
		return r.topic.gone(ctx, err)
	}
	added, err := r.topic.open(ctx, r.lineage.Members[before:])
	if err != nil {
		r.lineage = &Lineage{} // to be tried again
		return r.topic.gone(ctx, err)
	}
	for _, s := range added {
		if r.at[s.ID] == nil {
			r.at[s.ID] = &reading{Segment: s, only: r.only}
		}
	}
	return nil
}

// gone explains an error by the topic's deletion, if that is the cause.
func (t *Topic) gone(ctx context.Context, err error) error {
	if !errors.Is(err, commitlog.ErrNoLog) && !errors.Is(err, filer.ErrNotFound) {
		return err
	}
	now, err2 := t.store.Topic(ctx, t.Name)
	if err2 == nil && now.Incarnation != t.Incarnation {
		err2 = fmt.Errorf("topic %q was deleted and made again: %w", t.Name, ErrNoTopic)
	}
	return errors.Join(err2, err)
}

func (r *Reader) skipAncestors(id topic.SegmentID, named ReadPosition) {
	m, _ := r.lineage.Member(id)
	for _, parent := range m.Parents {
		at := r.at[parent]
		if _, ok := named[parent]; ok || at == nil || at.done {
			continue
		}
		at.done = true
		r.skipAncestors(parent, named)
	}
}

// ReadSince starts at the first record appended at or after a time, in each
// segment; a time to come starts after everything that is there. Where that is, is
// looked up now, so positions of the reader are exact from the start.
func (t *Topic) ReadSince(ctx context.Context, since time.Time) (*Reader, error) {
	r, err := t.Read(ctx, nil)
	if err != nil {
		return nil, err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(openParallel)
	for _, at := range r.at {
		g.Go(func() (err error) {
			at.offset, at.done, err = at.since(ctx, since)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, t.gone(ctx, err)
	}
	return r, nil
}

// Latest is the position after everything that is there now.
func (t *Topic) Latest(ctx context.Context) (ReadPosition, error) {
	layout, err := t.Layout(ctx)
	if err != nil {
		return nil, err
	}
	members := make([]Member, len(layout.Live))
	for i, live := range layout.Live {
		members[i].Live = live
	}
	segments, err := t.open(ctx, members)
	if err != nil {
		return nil, err
	}
	p := ReadPosition{}
	for _, s := range segments {
		tail, err := s.Tail(ctx)
		if err != nil {
			return nil, err
		}
		p[s.ID] = tail.End()
	}
	return p, nil
}

// Position is where the reader stands: after the last record it yielded.
func (r *Reader) Position() ReadPosition {
	p := ReadPosition{}
	for _, m := range r.lineage.Members {
		at := r.at[m.ID]
		// A segment that is read is implied by its children, all of which have
		// the same parents, as soon as these can be read.
		if r.readable(m) && (!at.done || len(m.Children) == 0 || !r.childReadable(m)) {
			p[m.ID] = at.offset
		}
	}
	return p
}

// readable tells whether everything that comes before a segment has been read.
func (r *Reader) readable(m Member) bool {
	for _, parent := range m.Parents {
		if at := r.at[parent]; at != nil && !at.done {
			return false
		}
	}
	return true
}

func (r *Reader) childReadable(m Member) bool {
	child, ok := r.lineage.Member(m.Children[0])
	return ok && r.readable(child)
}

// OnlyKey leaves out all records with another key, or with key nil all that have one.
// Of segments that are compacted only what may have the key is read. It is called
// before the reader is used for anything else.
func (r *Reader) OnlyKey(key []byte) {
	r.only = &onlyKey{key}
	for _, at := range r.at {
		at.only = r.only
	}
}

// Skip goes on after a *TrimmedError, at the first record that there is.
func (r *Reader) Skip(e *TrimmedError) {
	if at := r.at[e.Segment]; at != nil && at.offset < e.Next {
		at.offset, at.chunk = e.Next, 0
	}
}

// Next yields what there is to read now and ends when there is no more. It may
// be called again to read what has been added since. After an error the
// position is that of the last record yielded, and reading can be tried again.
//
// Of a segment that is compacted it reads the data files, from the offset on at which
// its chunks are gone or damaged (rule 31).
//
// *TrimmedError: records were trimmed before they could be read, or given up by an
// operator. *ChunkError, *DataFileError: a file is damaged, or missing. ErrNoTopic,
// ErrDeleting: the topic was deleted.
func (r *Reader) Next(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		if err := r.update(ctx); err != nil {
			yield(Item{}, err)
			return
		}
		for _, m := range r.lineage.Members {
			at := r.at[m.ID]
			if at.done || !r.readable(m) {
				continue
			}
			stopped, err := at.read(ctx, yield)
			if err != nil {
				yield(Item{}, r.topic.gone(ctx, err))
			}
			if stopped || err != nil {
				return
			}
		}
	}
}
