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
	"github.com/spillway-mq/spillway/internal/record"
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
	s.touched.Store(int64(len(f.groups)))
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
	if at := (era{open.Incarnation, open.layout.Epoch}); at != t.tried {
		t.tried = at
	} else {
		return fmt.Errorf("topic %q at epoch %d: a live segment takes no records, and no edit is under way: %w", t.name, at.epoch, filer.ErrCorrupt)
	}
	return f.divide(ctx, t.set, open)
}

// divide adds a group for each segment that gets records of the set.
func (f *flush) divide(ctx context.Context, set *record.Set, t *openTopic) error {
	sets, err := route(set, t.layout)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(sets)) {
		seg, err := t.segment(ctx, id)
		if err != nil {
			return err
		}
		f.groups = append(f.groups, &group{topic: t.Name, segment: seg, set: sets[id]})
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
	s.nudges.flushed(f.settled)
	s.announce(ctx)
	return s.trim(ctx)
}

// settle appends every group. Where one meets a seal, all are settled first,
// then the flush is grouped anew by the layouts of now, and appended again:
// what is committed already is dropped by its position (rule 14).
func (s *session) settle(ctx context.Context, f *flush) error {
	var met time.Time // a seal
	for {
		if err := s.appendAll(ctx, f.groups); err != nil {
			return err
		}
		groups := f.groups
		f.groups = nil // what is settled stays so
		sealed := map[string]bool{}
		for _, part := range groups {
			f.counts.Conflicts += uint64(part.outcome.Conflicts)
			if part.outcome.Taken > 0 && part.outcome.Chunk.Entry.ID != "" {
				f.settled = append(f.settled, part)
			}
			sealed[part.topic] = sealed[part.topic] || part.sealed
		}
		again, err := s.regroup(ctx, f, groups, sealed)
		if err != nil {
			return err
		}
		if !again {
			s.paused(met, f)
			return nil
		}
		if met.IsZero() {
			met = time.Now()
		}
	}
}

// paused notes how long edits have held up a flush.
func (s *session) paused(met time.Time, f *flush) {
	if met.IsZero() {
		return
	}
	took := time.Since(met)
	s.Metrics.editSeconds.Observe(took.Seconds())
	for _, t := range f.topics {
		if t.regrouped {
			s.Logger.Info("an edit was met", "topic", t.name, "epoch", t.tried.epoch, "pause_ms", float64(took.Microseconds())/1000)
		}
	}
}

// regroup divides the records of the topics that met a seal anew: all of them,
// since a segment of the new layout may get records of several old ones, and
// must get them in the order of the source.
func (s *session) regroup(ctx context.Context, f *flush, groups []*group, sealed map[string]bool) (again bool, err error) {
	for _, t := range f.topics {
		if !sealed[t.name] {
			continue
		}
		if t.name == topic.Unrouted {
			return true, errRolled
		}
		again, t.regrouped = true, true
		f.counts.Regrouped++
		if err := s.topics.refresh(ctx, t.name); err != nil {
			return true, err
		}
		if s.Mutant.Has(mutant.RegroupAffected) {
			err = s.regroupAffected(ctx, f, t, groups)
		} else {
			err = s.group(ctx, f, t)
		}
		if err != nil {
			return true, err
		}
	}
	return again, nil
}

// regroupAffected is the mutant's way.
func (s *session) regroupAffected(ctx context.Context, f *flush, t *topicRecords, groups []*group) error {
	open, err := s.topics.get(ctx, t.name)
	if err != nil {
		return err
	}
	for _, part := range groups {
		if part.topic == t.name && part.sealed {
			err = errors.Join(err, f.divide(ctx, part.set, open))
		}
	}
	return err
}

// appendAll appends the groups and waits for all of them. It marks those that
// met a seal, or whose segment is gone.
func (s *session) appendAll(ctx context.Context, groups []*group) error {
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	if s.Mutant.Has(mutant.RegroupAffected) {
		g.SetLimit(1) // several groups of one segment
	}
	for _, part := range groups {
		g.Go(func() (err error) {
			part.outcome, err = part.segment.Append(each, segment.Input{
				Source: s.source, From: s.from, Set: part.set, Checkpoint: s.readCheckpoint, Holds: s.holds, Prepared: part.prepared,
			})
			part.prepared = nil
			if part.sealed = errors.Is(err, segment.ErrSealed) || errors.Is(err, commitlog.ErrNoLog); part.sealed {
				return nil
			}
			return err
		})
	}
	return g.Wait()
}

// readCheckpoint reads the checkpoint from the filer, where another worker may
// have moved it.
func (s *session) readCheckpoint(ctx context.Context) (topic.Position, error) {
	if s.Mutant.Has(mutant.CheckpointBeforeTail) {
		return topic.Whole(s.checkpoint.Sequence), nil
	}
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

// advance moves the checkpoint to the end of the flush, with the tables of producers
// and objects in the same write (rules 15 and 20).
func (s *session) advance(ctx context.Context, f *flush) error {
	next := s.checkpoint.Advance(f.last, f.lastTime, f.seen).WithObjects(f.objects.Rows())
	if s.Mutant.Has(mutant.ForgetProducers) {
		next.Producers, next.Objects = s.checkpoint.Producers, s.checkpoint.Objects
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
	if err := s.Lane.Announce(ctx, s.incarnation, s.checkpoint.Sequence); err != nil {
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
	s.total.Add(c)
	s.total.Checkpoint = s.checkpoint.Sequence
	s.Metrics.flush(c, took)
	s.Logger.Debug("flush committed", "checkpoint", f.last, "messages", c.Messages, "records", c.Records,
		"chunks", c.Chunks, "conflicts", c.Conflicts, "ms", took.Milliseconds())
}
