package ingest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/mutant"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// DefaultTrimLag is how long a committed message stays in its lane, so that a
// filer that was restored from a recent snapshot can be repaired (rule 21).
const DefaultTrimLag = 10 * time.Minute

// commitsPerSecond is how many creates a worker may ask of the filer (rule 30):
// the more segments a flush touches, the longer the next one waits.
const commitsPerSecond = 200

// ErrNoCheckpoint says that a lane has no checkpoint. It is made with the lane, so it
// was lost, and starting at zero would double everything.
var ErrNoCheckpoint = errors.New("the lane's checkpoint is missing")

// errRestart ends a session that another worker has overtaken.
var errRestart = errors.New("another worker moved the checkpoint")

// errRolled ends a session whose topic for messages that name none was rolled: a
// topic has been created, and what was judged without it is judged again.
var errRolled = errors.New("a topic was created that messages named before")

// Options of a Worker. Lane, ID and Store are needed.
type Options struct {
	Lane  Lane
	ID    lane.ID
	Store *segment.Store
	// AutoCreate makes topics that a message names; without it such messages
	// go to the system topic "unrouted".
	AutoCreate bool
	// Buckets are those that topics allow which AutoCreate makes, as in a
	// definition.
	Buckets []string
	TrimLag time.Duration // 0: DefaultTrimLag
	// Once ends the worker when the lane is drained.
	Once bool
	// Share is how many workers share the process's memory, this one included;
	// 0: 1. The more, the smaller are the flushes of each.
	Share int
	// Judge decides about references. Nil: none is looked at, so that those that
	// their topics allow are committed as pending.
	Judge Judge
	// FollowUp is told of topics for which pending references were committed. Nil:
	// nobody is told.
	FollowUp Nudger
	// Expander makes the jobs of references whose rows are to become records. Nil: such
	// references are committed as pending.
	Expander Expander
	// Jobs is told of topics for which there may be new jobs. Nil: nobody is told.
	Jobs Nudger
	// Nudger is told of topics of which a segment takes in more than NudgeBytes or
	// NudgeRecords a second; 0: topic.TargetBytes and topic.TargetRecords. Nil:
	// nobody is told.
	Nudger       Nudger
	NudgeBytes   float64
	NudgeRecords float64

	Logger  *slog.Logger
	Metrics *Metrics
	Now     func() time.Time
	Mutant  mutant.Set
}

// Worker moves one lane's messages into segments. Any number may run on one
// lane at the same time: that wastes work and harms nothing.
type Worker struct {
	Options
	total Counts
	// drained is set when a Once worker found nothing left.
	drained bool
}

// NewWorker returns a worker that has not started.
func NewWorker(o Options) *Worker {
	if o.TrimLag == 0 {
		o.TrimLag = DefaultTrimLag
	}
	if o.NudgeBytes == 0 {
		o.NudgeBytes = topic.TargetBytes
	}
	if o.NudgeRecords == 0 {
		o.NudgeRecords = topic.TargetRecords
	}
	if o.Judge == nil {
		o.Judge = &verdict.Judge{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil, o.ID.String())
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = o.Logger.With("lane", o.ID.String())
	return &Worker{Options: o}
}

// Run works until stop ends, or, with Once, until the lane is drained. When
// stop ends it commits what it has read, then returns nil. When ctx ends it
// drops what is not committed, which the next worker reads again.
//
// Faults that pass (a filer or a server that is down) are retried for as long
// as ctx and stop allow, and the last one is returned if they end first. Faults
// that need somebody to look are returned at once: *LaneBackError, *GapError,
// ErrNoCheckpoint, segment.ErrSourceWentBack, *commitlog.ChainError and
// commitlog.ErrWentBack.
func (w *Worker) Run(ctx, stop context.Context) error {
	var gap *GapError
	var last error // since which nothing was committed
	for pause := time.Duration(0); ; {
		before := w.total.Messages
		err := w.session(ctx, stop)
		var again *GapError
		switch {
		case err == nil && w.Once && !w.drained && w.total.Messages == before:
			return last
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case errors.As(err, &again) && gap == nil:
			gap = again // a gap may be another worker's trimming: look once more
		case errors.As(err, &again), needsSomebody(err):
			w.Logger.Error("ingest stopped", "err", err)
			return err
		}
		if w.total.Messages > before {
			gap, pause = nil, 0
		}
		last = err
		w.Metrics.restart(err)
		w.Logger.Warn("ingest starts again from the checkpoint", "err", err)
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

// needsSomebody tells faults that trying again cannot mend.
func needsSomebody(err error) bool {
	var back *LaneBackError
	var chain *commitlog.ChainError
	return errors.As(err, &back) || errors.As(err, &chain) || errors.Is(err, ErrNoCheckpoint) ||
		errors.Is(err, segment.ErrSourceWentBack) || errors.Is(err, commitlog.ErrWentBack) || errors.Is(err, filer.ErrCorrupt)
}

// Counts returns what the worker has done so far. Only after Run.
func (w *Worker) Counts() Counts { return w.total }

// Drained tells whether a Once worker ended because nothing was left.
func (w *Worker) Drained() bool { return w.drained }

// start loads the checkpoint and checks that the lane is the one that it is
// about (rule 17). Another worker may commit, and trim, while this one looks: a
// lane that seems to have gone back is judged again if the checkpoint has moved.
func (w *Worker) start(ctx context.Context) (*session, error) {
	for {
		s, err := w.load(ctx)
		if err != nil {
			return nil, err
		}
		state, err := w.Lane.State(ctx) // no older than the checkpoint
		if err != nil {
			return nil, fmt.Errorf("state of lane %s: %w", w.ID, err)
		}
		if w.ID.Source(state.Incarnation) != s.appender.source {
			continue // it was reset meanwhile
		}
		err = checkWitness(ctx, w.Lane, w.ID, state, s.checkpoint)
		var back *LaneBackError
		if errors.As(err, &back) {
			now, _, err2 := s.file.Load(ctx)
			if err2 == nil && now.Sequence != s.checkpoint.Sequence {
				continue
			}
			err = errors.Join(err, err2)
		}
		return s, err
	}
}

// load makes a session from the checkpoint of the lane's incarnation.
func (w *Worker) load(ctx context.Context) (*session, error) {
	state, err := w.Lane.State(ctx)
	if err != nil {
		return nil, fmt.Errorf("state of lane %s: %w", w.ID, err)
	}
	s := &session{
		Worker: w, incarnation: state.Incarnation, producers: map[string]segment.Producer{},
		appender: &appender{
			source: w.ID.Source(state.Incarnation), topics: newTopics(w.Store, w.Now),
			logger: w.Logger, metrics: w.Metrics, nudges: w.newNudges(), mutant: w.Mutant, total: &w.total,
		},
	}
	s.topics.autoCreate, s.topics.buckets, s.topics.group = w.AutoCreate, w.Buckets, w.ID.Group
	s.holds, s.next = s.shows, s.after
	s.confirmed = s.decide
	s.decoder.source = s.appender.source
	if err := s.appender.load(ctx, w.Store); err != nil {
		return nil, fmt.Errorf("lane %s: %w", w.ID, err)
	}
	s.lastRead = s.checkpoint.Sequence
	for _, p := range s.checkpoint.Producers {
		s.producers[p.ID] = p
	}
	return s, nil
}
