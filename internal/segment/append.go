package segment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/topic"
)

// ErrSourceWentBack says that a source delivers another record at a position that the
// segment has already taken in. Dropping it as old would lose it, and taking it
// would break the order, so nothing is done (rule 17).
var ErrSourceWentBack = errors.New("the source went back: it shows other records at positions that are already committed")

// Input is the records of one flush of one source for one segment.
type Input struct {
	Source string
	// From is the checkpoint after which the writer has read every message of
	// the source, in order. It is what makes the new position true (rule 12).
	From topic.Position
	// Set holds the records, in source order, all in the segment's range. It
	// is not changed.
	Set *record.Set
	// Checkpoint reads the source's checkpoint. Append calls it each time it
	// has seen the tail (rule 10).
	Checkpoint func(context.Context) (topic.Position, error)
	// Holds checks that the source still shows the record that was committed
	// at a position, and returns ErrSourceWentBack if not. Append asks it about
	// every tail that this handle did not write.
	Holds func(context.Context, SourcePosition) error
	// Prepared, if not nil, is what [Segment.Prepare] gave for this Set.
	Prepared *Prepared
}

// Outcome tells what an append did.
type Outcome struct {
	Chunk     Chunk // committed, or zero if there was nothing to take
	Taken     int
	Dropped   int // already committed earlier
	Conflicts int // numbers that somebody else won
	Uploads   int // files that had to be encoded again
}

// Prepared is an encoded and uploaded chunk file that no entry names yet.
type Prepared struct {
	records int
	digest  string
	content []byte // inline
	blobs   []filer.Blob
	spent   bool // the bytes are gone, or may go, with an entry that is void
}

// Prepare encodes a set and uploads it, so that Append only has to commit. It
// may run ahead of the commits of earlier flushes (rule 13), and concurrently.
func (s *Segment) Prepare(ctx context.Context, set *record.Set) (*Prepared, error) {
	data, err := record.EncodeChunk(nil, set, s.topic.store.Codec)
	if err != nil {
		return nil, fmt.Errorf("encode chunk for segment %s: %w", s.ID, err)
	}
	p := &Prepared{records: len(set.Recs), digest: digest(data)}
	if len(data) <= s.topic.store.Inline {
		p.content = data
		return p, nil
	}
	err = filer.Retry(ctx, func(ctx context.Context) (err error) {
		p.blobs, err = filer.UploadPartsAs(ctx, s.topic.store.Filer, s.log.Dir(), data, storageOf(s.topic.Definition))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("upload chunk for segment %s: %w", s.ID, err)
	}
	return p, nil
}

// Discard deletes the bytes of a Prepared that will not be committed. What it
// cannot delete is left to the sweep of orphaned uploads.
func (s *Segment) Discard(ctx context.Context, p *Prepared) {
	if p == nil {
		return
	}
	for _, b := range p.blobs {
		if err := s.topic.store.Filer.Discard(ctx, b); err != nil {
			s.topic.store.Logger.Warn("could not delete an upload that is not needed", "segment", s.ID, "blob", b.ID, "err", err)
		}
	}
}

// Append commits the records of in that the segment does not have yet, as one
// chunk, exactly once whoever else appends. Records that lie at or below the
// effective position of their source (rule 10) are dropped; if none is left,
// nothing is written. On nil the chunk is committed and durable.
//
// ErrSealed: nothing was taken; regroup the whole flush by the new layout (rule
// 14). ErrSourceWentBack: stop. Any other error leaves the outcome unknown:
// start again from the checkpoint. Not to be called concurrently on one handle.
func (s *Segment) Append(ctx context.Context, in Input) (Outcome, error) {
	if !s.loaded {
		if _, err := s.Tail(ctx); err != nil {
			return Outcome{}, err
		}
	}
	var out Outcome
	var taken *record.Set
	prepared := in.Prepared
	for {
		if s.tail.Sealed {
			s.Discard(ctx, prepared)
			return out, fmt.Errorf("segment %s of topic %q: %w", s.ID, s.topic.Name, ErrSealed)
		}
		if taken == nil || !s.topic.store.Mutant.Has(mutant.StalePosition) {
			var err error
			if taken, err = s.above(ctx, in); err != nil {
				s.Discard(ctx, prepared)
				return out, err
			}
		}
		out.Taken, out.Dropped = len(taken.Recs), len(in.Set.Recs)-len(taken.Recs)
		if out.Taken == 0 {
			s.Discard(ctx, prepared)
			return out, nil
		}
		// Effective positions only grow, so an equal count is an equal set.
		if prepared == nil || prepared.spent || prepared.records != out.Taken && !s.topic.store.Mutant.Has(mutant.SameBytesAfterDrop) {
			s.Discard(ctx, prepared)
			var err error
			if prepared, err = s.Prepare(ctx, taken); err != nil {
				return out, err
			}
			out.Uploads++
		}
		if err := s.prune(ctx, in.Source); err != nil {
			s.Discard(ctx, prepared)
			return out, err
		}
		done, err := s.commit(ctx, in, taken, prepared)
		if err != nil {
			return out, err
		}
		if done {
			out.Chunk = s.tail
			return out, nil
		}
		if out.Conflicts++; out.Conflicts%2 == 0 {
			// Somebody else is fast here. To walk after them entry by entry, a lost race for
			// each, takes as long as they take to make the next.
			if _, err := s.Tail(ctx); err != nil {
				s.Discard(ctx, prepared)
				return out, err
			}
		}
	}
}

// commit tries to create the next entry. It returns false when somebody else
// was first; the handle then knows the new tail.
func (s *Segment) commit(ctx context.Context, in Input, taken *record.Set, p *Prepared) (bool, error) {
	next := s.next(in, taken)
	next.Digest = p.digest
	f := filer.File{ID: filer.NewID(), Attrs: next.attrs(), Content: p.content, Blobs: p.blobs}
	e, err := s.waking(ctx, func() (commitlog.Entry, error) { return s.log.Append(ctx, s.tail.Entry, f) })
	won := err == nil
	var lost *commitlog.LostError
	p.spent = errors.Is(err, commitlog.ErrVoid) || errors.As(err, &lost) && lost.Stray
	if won {
		s.trusted = f.ID
	}
	_, err = s.outcome(ctx, e, err)
	return won, err
}

// Confirm reads a committed chunk back; rule 5 asks for it before the
// checkpoint moves past it.
func (s *Segment) Confirm(ctx context.Context, c Chunk) error { return s.log.Confirm(ctx, c.Entry) }

// above selects the records that lie above the effective position of the
// source. The tail is known when it is called; the checkpoint is read now.
func (s *Segment) above(ctx context.Context, in Input) (*record.Set, error) {
	checkpoint, err := in.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	have := s.tail.PositionOf(in.Source)
	if s.tail.Entry.ID != s.trusted && have.At.Sequence > 0 {
		if err := in.Holds(ctx, have); err != nil {
			return nil, fmt.Errorf("segment %s of topic %q: %w", s.ID, s.topic.Name, err)
		}
	}
	s.trusted = s.tail.Entry.ID
	floors, err := s.floorsOf(ctx, in, checkpoint)
	if err != nil {
		return nil, err
	}
	base := checkpoint.Max(have.At)
	taken := &record.Set{}
	for _, r := range in.Set.Recs {
		if r.Pos.After(base) && r.Pos.After(floors.FloorOf(in.Source, r.Slot)) {
			taken.Recs = append(taken.Recs, r)
		}
	}
	if len(taken.Recs) == len(in.Set.Recs) {
		return in.Set, nil
	}
	recs := taken.Recs
	taken = &record.Set{}
	for _, r := range recs {
		if err := taken.Copy(in.Set, r); err != nil {
			return nil, err
		}
	}
	return taken, nil
}

// floorsOf is the floors of the source that lie above its checkpoint. The source
// is asked about them once, as about a tail that somebody else wrote: they are
// what the ancestors have taken in.
func (s *Segment) floorsOf(ctx context.Context, in Input, checkpoint topic.Position) (topic.Segment, error) {
	var above topic.Segment
	asked := map[topic.Position]bool{}
	for _, f := range s.Floors {
		if f.Source != in.Source || !f.At.After(checkpoint) {
			continue
		}
		above.Floors = append(above.Floors, f)
		if s.held || asked[f.At] {
			continue
		}
		asked[f.At] = true
		if err := in.Holds(ctx, SourcePosition{f.Source, f.At, f.Time}); err != nil {
			return above, fmt.Errorf("floor of segment %s of topic %q: %w", s.ID, s.topic.Name, err)
		}
	}
	s.held = true
	return above, nil
}

// next is the state after the records in taken have been appended to the tail.
func (s *Segment) next(in Input, taken *record.Set) Chunk {
	first, last := taken.Recs[0], taken.Recs[len(taken.Recs)-1]
	l := countLoad(s.Range, taken.Recs)
	c := Chunk{
		Base: s.tail.End(), Count: l.records, ByteBase: s.tail.ByteEnd(), Bytes: l.bytes,
		First: later(time.UnixMicro(first.Time).UTC(), s.notBefore()), Last: later(time.UnixMicro(last.Time).UTC(), s.notBefore()),
		Source: in.Source, From: in.From,
		Load: l.buckets, Hot: l.hot,
	}
	c.Refs, c.Pending = marks(taken.Recs)
	for _, p := range s.tail.Positions {
		if p.Source != in.Source {
			c.Positions = append(c.Positions, p)
		}
	}
	c.Positions = append(c.Positions, SourcePosition{in.Source, last.Pos, time.UnixMicro(last.Time).UTC()})
	return c
}

// notBefore is the time that no record appended now may be earlier than: that of
// the chunk before, or of the parents' seals (rule 39).
func (s *Segment) notBefore() time.Time {
	if s.tail.Entry.ID == "" && len(s.Parents) > 0 {
		return s.Created
	}
	return s.tail.Last
}
