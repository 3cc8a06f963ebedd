package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// parallel is how many segments a flush encodes, or commits, at a time.
const parallel = 8

// appender brings the flushes of one source into segments, and moves its checkpoint
// behind them. It knows nothing of what the source is. prepare may run ahead of
// commit by a flush (rule 13); each is for one goroutine.
type appender struct {
	source string
	from   topic.Position // the starting checkpoint (rule 12)
	topics *topics
	// only, if not empty, is the incarnation of the one topic that records go to:
	// without it they go nowhere.
	only string
	// holds is what segment.Input asks of a source.
	holds func(context.Context, segment.SourcePosition) error
	// confirmed is called when all records of a flush are committed, before the checkpoint
	// moves. Nil: there is nothing to do.
	confirmed func(context.Context, *flush) error
	// next is the checkpoint after a flush.
	next    func(*flush) segment.Checkpoint
	touched atomic.Int64 // segments of the last flush

	logger  *slog.Logger
	metrics *Metrics
	nudges  *nudges
	mutant  mutant.Set
	total   *Counts

	// Owned by commit.
	file       cursor.File[segment.Checkpoint]
	checkpoint segment.Checkpoint
	version    cursor.Version
}

// load begins at the checkpoint of the source. ErrNoCheckpoint is typed.
func (a *appender) load(ctx context.Context, store *segment.Store) (err error) {
	a.file = store.CheckpointFile(a.source)
	a.checkpoint, a.version, err = a.file.Load(ctx)
	if errors.Is(err, filer.ErrNotFound) {
		return fmt.Errorf("%s: %w", a.file.Path(), ErrNoCheckpoint)
	}
	a.from = a.checkpoint.Position()
	return err
}

// ErrTopicGone says that the topic of a backfill was deleted, or deleted and made
// again.
var ErrTopicGone = errors.New("the topic is gone")

// prepare divides a flush by segment, then encodes and uploads each part. It
// runs ahead of the commits of earlier flushes (rule 13).
func (a *appender) prepare(ctx context.Context, f *flush) error {
	for _, t := range f.topics {
		if err := a.group(ctx, f, t); err != nil {
			return err
		}
	}
	a.touched.Store(int64(len(f.groups)))
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
func (a *appender) group(ctx context.Context, f *flush, t *topicRecords) error {
	open, err := a.topics.get(ctx, t.name)
	var why *refused
	if errors.As(err, &why) {
		if a.only != "" {
			return fmt.Errorf("%w: %w", ErrTopicGone, why)
		}
		// The topic was deleted after these records were taken for it; they
		// are gone with it.
		a.logger.Warn("records were deleted with their topic", "topic", t.name, "records", len(t.set.Recs))
		return nil
	}
	if err != nil {
		return err
	}
	if a.only != "" && open.Incarnation != a.only {
		return fmt.Errorf("topic %q was made again: %w", t.name, ErrTopicGone)
	}
	if t.made != "" && open.Incarnation != t.made {
		return errRemade
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
func (a *appender) commit(ctx context.Context, f *flush) error {
	start := time.Now()
	if a.mutant.Has(mutant.CheckpointFirst) {
		if err := a.advance(ctx, f); err != nil {
			return err
		}
	}
	if err := a.settle(ctx, f); err != nil {
		return err
	}
	for _, part := range f.settled {
		if err := part.segment.Confirm(ctx, part.outcome.Chunk); err != nil {
			return err
		}
	}
	if a.confirmed != nil {
		if err := a.confirmed(ctx, f); err != nil {
			return err
		}
	}
	if !a.mutant.Has(mutant.CheckpointFirst) {
		if err := a.advance(ctx, f); err != nil {
			return err
		}
	}
	a.count(f, time.Since(start))
	a.nudges.flushed(f.settled)
	a.nudges.expanded(f.topics)
	return nil
}

// settle appends every group. Where one meets a seal, all are settled first,
// then the flush is grouped anew by the layouts of now, and appended again:
// what is committed already is dropped by its position (rule 14).
func (a *appender) settle(ctx context.Context, f *flush) error {
	var met time.Time // a seal
	for {
		if err := a.appendAll(ctx, f.groups); err != nil {
			return err
		}
		groups := f.groups
		f.groups = nil // what is settled stays so
		sealed := map[string]bool{}
		for _, part := range groups {
			f.counts.Conflicts += uint64(part.outcome.Conflicts)
			if part.outcome.Taken > 0 && part.outcome.Chunk.Entry.ID != "" {
				f.settled = append(f.settled, part)
				f.touched[part.segment.ID] = true
			} else if part.outcome.Dropped > 0 && met.IsZero() {
				f.touched[part.segment.ID] = true
			}
			if part.outcome.Dropped > 0 {
				f.index[part.topic].dropped = true
			}
			sealed[part.topic] = sealed[part.topic] || part.sealed
		}
		again, err := a.regroup(ctx, f, groups, sealed)
		if err != nil {
			return err
		}
		if !again {
			a.paused(met, f)
			return nil
		}
		if met.IsZero() {
			met = time.Now()
		}
	}
}

// paused notes how long edits have held up a flush.
func (a *appender) paused(met time.Time, f *flush) {
	if met.IsZero() {
		return
	}
	took := time.Since(met)
	a.metrics.editSeconds.Observe(took.Seconds())
	for _, t := range f.topics {
		if t.regrouped {
			a.logger.Info("an edit was met", "topic", t.name, "epoch", t.tried.epoch, "pause_ms", float64(took.Microseconds())/1000)
		}
	}
}

// regroup divides the records of the topics that met a seal anew: all of them,
// since a segment of the new layout may get records of several old ones, and
// must get them in the order of the source.
func (a *appender) regroup(ctx context.Context, f *flush, groups []*group, sealed map[string]bool) (again bool, err error) {
	for _, t := range f.topics {
		if !sealed[t.name] {
			continue
		}
		if t.name == topic.Unrouted {
			return true, errRolled
		}
		again, t.regrouped = true, true
		f.counts.Regrouped++
		if err := a.topics.refresh(ctx, t.name); err != nil {
			return true, err
		}
		if a.mutant.Has(mutant.RegroupAffected) {
			err = a.regroupAffected(ctx, f, t, groups)
		} else {
			err = a.group(ctx, f, t)
		}
		if err != nil {
			return true, err
		}
	}
	return again, nil
}

// regroupAffected is the mutant's way.
func (a *appender) regroupAffected(ctx context.Context, f *flush, t *topicRecords, groups []*group) error {
	open, err := a.topics.get(ctx, t.name)
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
func (a *appender) appendAll(ctx context.Context, groups []*group) error {
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	if a.mutant.Has(mutant.RegroupAffected) {
		g.SetLimit(1) // several groups of one segment
	}
	for _, part := range groups {
		g.Go(func() (err error) {
			part.outcome, err = part.segment.Append(each, segment.Input{
				Source: a.source, From: a.from, Set: part.set, Checkpoint: a.readCheckpoint, Holds: a.holds, Prepared: part.prepared,
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
func (a *appender) readCheckpoint(ctx context.Context) (topic.Position, error) {
	if a.mutant.Has(mutant.CheckpointBeforeTail) {
		return a.checkpoint.Position(), nil
	}
	c, _, err := a.file.Load(ctx)
	return c.Position(), err
}

// advance moves the checkpoint to the end of the flush (rule 15).
func (a *appender) advance(ctx context.Context, f *flush) error {
	next := a.next(f)
	version, err := a.file.Save(ctx, next, a.version)
	if errors.Is(err, filer.ErrConflict) {
		return fmt.Errorf("%w: %w", errRestart, err)
	}
	if err != nil {
		return err
	}
	a.checkpoint, a.version = next, version
	return nil
}

// count adds a committed flush to the totals.
func (a *appender) count(f *flush, took time.Duration) {
	c := f.counts
	for _, part := range f.settled {
		c.Committed += uint64(part.outcome.Taken)
		c.Chunks++
		c.Bytes += uint64(part.outcome.Chunk.Entry.Size)
		if part.outcome.Dropped > 0 {
			c.PartialDrops++
		}
	}
	a.total.Add(c)
	a.total.Checkpoint = a.checkpoint.Sequence
	a.metrics.flush(c, took)
	a.logger.Debug("flush committed", "checkpoint", a.checkpoint.Position(), "messages", c.Messages, "records", c.Records,
		"chunks", c.Chunks, "conflicts", c.Conflicts, "ms", took.Milliseconds())
}
