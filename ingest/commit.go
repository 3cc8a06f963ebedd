package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// parallel is how many segments a flush encodes, or commits, at a time.
const parallel = 8

// prepare divides a flush by segment, then encodes and uploads each part. It
// runs ahead of the commits of earlier flushes (rule 13).
func (s *session) prepare(ctx context.Context, f *flush) error {
	for _, t := range f.topics {
		if err := s.group(ctx, f, t); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for _, part := range f.groups {
		g.Go(func() (err error) {
			part.prepared, err = part.segment.Prepare(ctx, part.set)
			return err
		})
	}
	return g.Wait()
}

// group adds the groups of one topic's records to the flush.
func (s *session) group(ctx context.Context, f *flush, t *topicRecords) error {
	open, err := s.topics.get(ctx, t.name)
	var why *refused
	if errors.As(err, &why) {
		// The topic was deleted after these records were taken for it; they
		// are gone with it.
		s.Logger.Warn("records were deleted with their topic", "topic", t.name, "records", len(t.set.Recs))
		return nil
	}
	if err != nil {
		return err
	}
	sets, err := route(t.set, open.layout)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		seg, err := open.segment(ctx, id)
		if err != nil {
			return errors.Join(err, s.topics.forget(ctx, t.name))
		}
		f.groups = append(f.groups, &group{topic: t.name, segment: seg, set: sets[id]})
	}
	return nil
}

// commit makes a flush count: it settles all its records in all segments, then
// moves the checkpoint. Only one flush at a time gets here, in order.
func (s *session) commit(ctx context.Context, f *flush) error {
	start := time.Now()
	if s.Mutant.Has(mutant.CheckpointFirst) {
		if err := s.advance(ctx, f); err != nil {
			return err
		}
	}
	if err := s.settle(ctx, f); err != nil {
		return err
	}
	for _, part := range f.settled {
		if err := part.segment.Confirm(ctx, part.outcome.Chunk); err != nil {
			return err
		}
	}
	if !s.Mutant.Has(mutant.CheckpointFirst) {
		if err := s.advance(ctx, f); err != nil {
			return err
		}
	}
	s.count(f, time.Since(start))
	s.announce(ctx)
	return s.trim(ctx)
}

// settle appends every group. Where one meets a seal, all are settled first,
// then the flush is grouped anew by the layouts of now, and appended again:
// what is committed already is dropped by its position (rule 14).
func (s *session) settle(ctx context.Context, f *flush) error {
	for {
		sealed, err := s.appendAll(ctx, f.groups)
		if err != nil {
			return err
		}
		for _, part := range f.groups {
			f.counts.Conflicts += uint64(part.outcome.Conflicts)
			if part.outcome.Taken > 0 && part.outcome.Chunk.Entry.ID != "" {
				f.settled = append(f.settled, part)
			}
		}
		if len(sealed) == 0 {
			return nil
		}
		f.groups = nil // what is settled stays so
		for _, t := range f.topics {
			if !sealed[t.name] {
				continue
			}
			if err := s.group(ctx, f, t); err != nil {
				return err
			}
		}
	}
}

// appendAll appends the groups and waits for all of them. It returns the topics
// in which one met a seal, or whose segment is gone.
func (s *session) appendAll(ctx context.Context, groups []*group) (map[string]bool, error) {
	met := make([]bool, len(groups))
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, part := range groups {
		g.Go(func() (err error) {
			part.outcome, err = part.segment.Append(each, segment.Input{
				Source: s.source, From: s.from, Set: part.set, Checkpoint: s.readCheckpoint, Holds: s.holds, Prepared: part.prepared,
			})
			part.prepared = nil
			met[i] = errors.Is(err, segment.ErrSealed) || errors.Is(err, commitlog.ErrNoLog)
			if met[i] {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	sealed := map[string]bool{}
	for i, part := range groups {
		if met[i] {
			sealed[part.topic] = true
			if err := s.topics.forget(ctx, part.topic); err != nil {
				return nil, err
			}
		}
	}
	return sealed, nil
}

// readCheckpoint reads the checkpoint from the filer, where another worker may
// have moved it.
func (s *session) readCheckpoint(ctx context.Context) (topic.Position, error) {
	c, _, err := s.file.Load(ctx)
	return topic.Whole(c.Sequence), err
}

// holds compares a committed position with the lane (rule 17). A message that
// was trimmed cannot be compared any more; trimming lags far enough behind.
func (s *session) holds(ctx context.Context, p segment.SourcePosition) error {
	t, err := s.Lane.TimeOf(ctx, p.At.Sequence)
	if err == nil && t.UnixMicro() == p.Time.UnixMicro() {
		return nil
	}
	shown := "nothing"
	switch {
	case err == nil:
		shown = "a message of " + t.UTC().Format(time.RFC3339Nano)
	case !errors.Is(err, ErrNoMessage):
		return err
	default:
		state, err := s.Lane.State(ctx)
		if err != nil || p.At.Sequence < state.First {
			return err
		}
	}
	return fmt.Errorf("%s at %s: committed %s, the lane shows %s: %w", p.Source, p.At, p.Time.Format(time.RFC3339Nano), shown, segment.ErrSourceWentBack)
}

// advance moves the checkpoint to the end of the flush, with the producer table
// in the same write (rules 15 and 20).
func (s *session) advance(ctx context.Context, f *flush) error {
	next := s.checkpoint.Advance(f.last, f.lastTime, f.seen)
	if s.Mutant.Has(mutant.ForgetProducers) {
		next.Producers = s.checkpoint.Producers
	}
	next, below := next.Mark(s.Now(), s.TrimLag)
	version, err := s.file.Save(ctx, next, s.version)
	if errors.Is(err, filer.ErrConflict) {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	if err != nil {
		return err
	}
	s.checkpoint, s.version = next, version
	s.trimBelow = max(s.trimBelow, below)
	return nil
}

// announce tells publishers; they poll when they miss it, so a failure is only
// noted.
func (s *session) announce(ctx context.Context) {
	if err := s.Lane.Announce(ctx, s.checkpoint.Sequence); err != nil {
		s.Logger.Warn("could not announce the checkpoint", "checkpoint", s.checkpoint.Sequence, "err", err)
	}
}

// trimEvery is how often a lane is looked at for trimming.
const trimEvery = time.Second

// trim deletes what was committed long enough ago, or, when the lane is more
// than half full, everything that is committed. The witness stays. A failure
// costs space only, and is tried again.
func (s *session) trim(ctx context.Context) error {
	now := s.Now()
	if now.Sub(s.sinceTrim) < trimEvery {
		return nil
	}
	s.sinceTrim = now
	state, err := s.Lane.State(ctx)
	if err != nil {
		s.Logger.Warn("could not look whether to trim", "err", err)
		return nil
	}
	s.Metrics.lane(state, s.checkpoint.Sequence)
	below := s.trimBelow
	if state.MaxBytes > 0 && state.Bytes > state.MaxBytes/2 {
		below = s.checkpoint.Sequence
	}
	if below = min(below, s.checkpoint.Sequence); below <= s.trimmed || below <= state.First {
		return nil
	}
	if err := s.Lane.Trim(ctx, below); err != nil {
		s.Logger.Warn("could not trim", "below", below, "err", err)
		return nil
	}
	s.trimmed = below
	return nil
}

// count adds a committed flush to the totals.
func (s *session) count(f *flush, took time.Duration) {
	c := f.counts
	for _, part := range f.settled {
		c.Committed += uint64(part.outcome.Taken)
		c.Chunks++
		c.Bytes += uint64(part.outcome.Chunk.Entry.Size)
		if part.outcome.Dropped > 0 {
			c.PartialDrops++
		}
	}
	s.touched.Store(int64(len(f.settled)))
	s.total.add(c)
	s.total.Checkpoint = s.checkpoint.Sequence
	s.Metrics.flush(c, took)
	s.Logger.Debug("flush committed", "checkpoint", f.last, "messages", c.Messages, "records", c.Records,
		"chunks", c.Chunks, "conflicts", c.Conflicts, "ms", took.Milliseconds())
}
