package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// BackfillRow is a row of an object. Its memory is the reader's until the next row.
type BackfillRow struct {
	N        uint32 // its number, at most topic.MaxRow: FORMAT, "Row numbers"
	Key      []byte // nil: none. Not asked for where the topic takes it from the value
	Time     time.Time
	Headers  []record.Header
	Value    []byte
	Rejected string // why it cannot be taken; empty: it can
	Skip     bool   // it is passed over, and leaves no record
}

// RowReader gives the rows of an object, by ascending numbers. For one goroutine.
type RowReader interface {
	// Next gives the next row, and io.EOF at the end. An *ObjectError says that the
	// object cannot be read on, which trying again cannot mend; others pass.
	Next(ctx context.Context) (BackfillRow, error)
	Close() error
}

// Objects are the objects of a backfill's source, numbered from 1. What is in them
// never changes: an object that does cannot be read any more (rule 38).
type Objects interface {
	Len() uint64
	Name(n uint64) string // for people
	// Open begins to read object n at a row. Errors are as those of RowReader.Next.
	Open(ctx context.Context, n uint64, from uint32) (RowReader, error)
}

// ObjectError says why an object cannot be read, or not beyond a row.
type ObjectError struct {
	Reason string
	Err    error // nil: Reason says it all
}

func (e *ObjectError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

func (e *ObjectError) Unwrap() error { return e.Err }

// ErrTooManyFailures says that more objects cannot be read than a source puts up with.
var ErrTooManyFailures = fmt.Errorf("more than %d objects cannot be read", segment.MaxFailures)

// Headers of records that stand for rows, or the rest of objects, that cannot be taken.
const (
	HeaderRowObject = "Spillway-Object" // its name
	HeaderRowNumber = "Spillway-Row"    // the row's number; for an object, of the first that could not be read
)

// BackfillOptions of a Backfill. Source, Topic, Incarnation, Objects and Store are
// needed.
type BackfillOptions struct {
	Source             string // as in the job file
	Topic, Incarnation string
	Objects            Objects
	Store              *segment.Store
	// Wait is called before rows are taken, and waits for as long as a rate limit
	// asks. Nil: there is none.
	Wait func(ctx context.Context, rows, bytes int) error
	// Moved is told of each checkpoint that is committed, by one goroutine. Nil: nobody.
	Moved func(segment.Checkpoint)
	// Share is how many sources share the process's memory, this one included; 0: 1.
	Share int
	// Nudger is told, as Options.Nudger is, of segments that take in too much.
	Nudger                   Nudger
	NudgeBytes, NudgeRecords float64

	Logger  *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
	Mutant  mutant.Set
}

// Backfill moves the rows of one source's objects into the segments of a topic,
// beside whatever else goes there. Any number may work on one source at the same
// time: that wastes work and harms nothing.
type Backfill struct {
	BackfillOptions
	total Counts
	done  bool
	most  uint64 // rows of a flush; 0: as many as it holds. Tests make it small
}

// NewBackfill returns one that has not started.
func NewBackfill(o BackfillOptions) *Backfill {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewBackfillMetrics(nil)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NudgeBytes == 0 {
		o.NudgeBytes = topic.TargetBytes
	}
	if o.NudgeRecords == 0 {
		o.NudgeRecords = topic.TargetRecords
	}
	o.Logger = o.Logger.With("topic", o.Topic, "source", o.Source)
	return &Backfill{BackfillOptions: o}
}

// Run works until all objects are taken in, or stop ends. When stop ends it commits
// what it has read, then returns nil. When ctx ends it drops what is not committed,
// which the next run reads again.
//
// Faults that pass are retried for as long as ctx and stop allow, and the last one is
// returned if they end first. Faults that need somebody to look are returned at once:
// ErrTopicGone, ErrTooManyFailures and those of [Worker.Run].
func (b *Backfill) Run(ctx, stop context.Context) error {
	for pause := time.Duration(0); ; {
		before := b.total.Committed
		err := b.session(ctx, stop)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errors.Is(err, ErrTopicGone), errors.Is(err, ErrTooManyFailures), needsSomebody(err):
			b.Logger.Error("backfill stopped", "err", err)
			return err
		}
		if b.total.Committed > before {
			pause = 0
		}
		b.Metrics.restart(err)
		b.Logger.Warn("backfill starts again from the checkpoint", "err", err)
		pause = min(max(2*pause, 50*time.Millisecond), 5*time.Second)
		select {
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		case <-stop.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Done tells whether all objects are taken in. Only after Run.
func (b *Backfill) Done() bool { return b.done }

// Counts returns what was done since NewBackfill. Only after Run.
func (b *Backfill) Counts() Counts { return b.total }

func (b *Backfill) session(ctx, stop context.Context) error {
	s := &backfillSession{
		Backfill: b, spare: make(chan *record.Set, 3),
		appender: &appender{
			source: b.Source, only: b.Incarnation, topics: newTopics(b.Store, b.Now),
			logger: b.Logger, metrics: b.Metrics, mutant: b.Mutant, total: &b.total,
			nudges: newNudges(nudges{load: b.Nudger, bytes: b.NudgeBytes, records: b.NudgeRecords, now: b.Now, logger: b.Logger, metrics: b.Metrics}),
		},
	}
	s.topics.strict = true
	s.holds, s.next = s.shows, s.after
	if err := s.appender.load(ctx, b.Store); err != nil {
		return err
	}
	if b.Moved != nil {
		b.Moved(s.checkpoint)
	}
	if s.checkpoint.Sequence > b.Objects.Len()+1 {
		return fmt.Errorf("%s is at object %d of %d: %w", s.file.Path(), s.checkpoint.Sequence, b.Objects.Len(), segment.ErrSourceWentBack)
	}
	err := s.run(ctx, stages{
		gather:  func(ctx context.Context, out chan<- *flush) error { return s.gather(ctx, stop, out) },
		prepare: s.prepare,
		commit:  s.commit,
	})
	if err == nil {
		err = s.fault
	}
	b.done = err == nil && s.checkpoint.Finished(b.Objects.Len())
	return err
}
