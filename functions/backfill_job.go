package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// JobOptions say which job to work on.
type JobOptions struct {
	Topic, ID string
	// Force takes the job although another run has it, which ends when it sees that.
	Force bool
	// Progress is called about twice a second, and at the end, never twice at a time.
	// Nil: nobody is told.
	Progress func(JobProgress)
	// PlanWait is how long a large job waits at most for a planner to split the topic
	// for it; 0: DefaultPlanWait, below 0: not at all.
	PlanWait time.Duration
}

// RunJob works on one job until all of it is done. It needs no NATS: with it, planners
// are told of what is to come. Files of a machine are read only there.
//
// When ctx ends (SIGTERM) what was read is committed, and the job stays open: a
// [*RetryError]. So it is when another run has the job. When the job is not open, also
// since somebody has paused or cancelled it meanwhile, a [*JobEndedError] says so, and
// a [*JobStoppedError] that this run has stopped it. A job that is done gives its
// summary and no error. Errors have their exit code by [ExitCode]; what the summary
// says is true beside an error too.
//
// It may be killed anywhere, and called by any number at once. It registers metrics
// in d.Metrics, which are to be new.
func RunJob(ctx context.Context, d Deps, o JobOptions) (backfill.Summary, error) {
	stop, hard, cancel := lifetimes(ctx, 0)
	defer cancel()
	did, err := newJobRunner(d).run(hard, stop, o)
	return did.Summary, err
}

// jobRunner works on jobs for a process.
type jobRunner struct {
	deps    Deps
	metrics *ingest.Metrics
	host    string
	sources atomic.Int64 // that are being worked on
	memory  int64        // for all flushes
	now     func() time.Time
}

// A source has three flushes of 8 MiB in hand, and as much again for their records
// divided by segments; together they are to be no more than runMemory, of a process
// that may have 256 MiB.
const (
	sourceMemory = 48 << 20
	runMemory    = 64 << 20
)

func newJobRunner(d Deps) *jobRunner {
	m := ingest.NewBackfillMetrics(d.Metrics)
	m.Health = d.Health
	host, err := os.Hostname()
	if err != nil {
		d.Logger.Warn("this machine has no name: files of it cannot be read", "err", err)
	}
	return &jobRunner{deps: d, metrics: m, host: host, memory: runMemory, now: time.Now}
}

// job is a run of a job.
type job struct {
	*jobRunner
	backfill.Job
	o     JobOptions
	jobs  *backfill.Jobs
	topic *segment.Topic
	runID string
	open  opener
	log   *slog.Logger

	limits *limiter
	end    context.CancelCauseFunc // ends the run in good order

	mu    sync.Mutex
	first look                 // at the progress, when the run began
	at    []segment.Checkpoint // of the sources
	state backfill.State       // when it was last seen
}

// worked is what came of a run.
type worked struct {
	backfill.Summary        // of the whole job
	rows, rejected   uint64 // of the time of this run
	before           bool   // it was done before
}

// run works on a job until it is done, or stop ends. When hard ends what was not
// committed is dropped.
func (r *jobRunner) run(hard, stop context.Context, o JobOptions) (did worked, err error) {
	j, err := r.load(stop, o)
	if err != nil {
		return did, jobOutcome(err)
	}
	start := j.progress()
	j.first = look{r.now(), start}
	state, err := j.claim(stop)
	var phase *backfill.PhaseError
	switch {
	case errors.As(err, &phase) && state.Phase == backfill.Done:
		return worked{Summary: summaryOf(state, start), before: true}, nil
	case errors.As(err, &phase):
		err = &JobEndedError{o.Topic, o.ID, state.Phase, state.Reason}
	}
	if err != nil {
		return worked{Summary: start.Summary(time.Duration(state.Worked))}, jobOutcome(err)
	}
	j.log.Info("backfill begins", "objects", state.Job.Objects, "bytes", state.Job.Bytes, "sources", state.Job.Sources, "done", start.Objects)
	sum, err := j.work(hard, stop)
	if err != nil {
		j.log.Warn("backfill ends before it is done", "rows", sum.Rows, "err", err)
	} else {
		j.log.Info("backfill is done", "objects", sum.Objects, "failed", sum.Failed, "rows", sum.Rows, "bytes", sum.Bytes,
			"rejected", sum.Rejected, "filtered", sum.Filtered, "dropped", sum.Dropped, "seconds", sum.Seconds, "segments", sum.Segments)
	}
	did = worked{Summary: sum, rows: sum.Rows - min(start.Rows, sum.Rows), rejected: sum.Rejected - min(start.Rejected, sum.Rejected)}
	return did, jobOutcome(err)
}

// load reads the job and where it is, and sees whether its objects can be read here.
func (r *jobRunner) load(ctx context.Context, o JobOptions) (*job, error) {
	t, err := r.deps.Store.Topic(ctx, o.Topic)
	if err != nil {
		return nil, err
	}
	j := &job{
		jobRunner: r, o: o, topic: t, jobs: backfill.Of(r.deps.Store, t), runID: backfill.NewID(),
		log: r.deps.Logger.With("topic", o.Topic, "job", o.ID),
	}
	if j.Job, err = j.jobs.Load(ctx, o.ID); err != nil {
		return nil, err
	}
	if j.open, err = r.opener(j.Host, j.Endpoint); err != nil {
		return nil, err
	}
	if j.at, err = j.checkpoints(ctx); err != nil {
		return nil, err
	}
	if err := j.someFile(); err != nil {
		return nil, err
	}
	return j, nil
}

// checkpoints are those of all sources. backfill.ErrNoCheckpoint is typed.
func (j *job) checkpoints(ctx context.Context) ([]segment.Checkpoint, error) {
	all := make([]segment.Checkpoint, len(j.Sources))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fewAtOnce)
	for i, s := range j.Sources {
		g.Go(func() (err error) {
			all[i], _, err = j.deps.Store.CheckpointFile(s.Name).Load(ctx)
			if errors.Is(err, filer.ErrNotFound) {
				err = fmt.Errorf("source %s of job %s: %w", s.Name, j.ID, backfill.ErrNoCheckpoint)
			}
			return err
		})
	}
	return all, g.Wait()
}

const fewAtOnce = 8

// ElsewhereError says that the objects of a job cannot be reached from here.
type ElsewhereError struct{ What, Wants, Has string }

func (e *ElsewhereError) Error() string {
	if e.Has == "" {
		return fmt.Sprintf("its objects are at %s %s, and none is known here", e.What, e.Wants)
	}
	return fmt.Sprintf("its objects are at %s %s, and this is %s", e.What, e.Wants, e.Has)
}

// opener opens the objects of a job that are files of a host, or behind an endpoint.
// An [*ElsewhereError] says that it cannot from here.
func (r *jobRunner) opener(host, endpoint string) (opener, error) {
	if host != "" {
		if host != r.host {
			return nil, &ElsewhereError{"machine", host, r.host}
		}
		return openWith(nil), nil
	}
	s3, err := r.objects(endpoint)
	if err != nil {
		return nil, err
	}
	return openWith(s3), nil
}

// objects reaches objects at an endpoint; empty: that of the settings.
func (r *jobRunner) objects(endpoint string) (*object.Store, error) {
	judge := r.deps.Judge
	if judge == nil {
		return nil, &ConfigError{errors.New("no S3 endpoint is set: give --s3, or another S3 setting, as for `spillway submit`")}
	}
	s3, ok := judge.Objects.(*object.Store)
	switch {
	case !ok:
		return nil, &ConfigError{errors.New("the S3 endpoint that is set cannot be read from")}
	case !(topic.Definition{Endpoint: endpoint}).ServedBy(judge.Endpoint):
		return nil, &ElsewhereError{"endpoint", endpoint, judge.Endpoint}
	}
	return s3, nil
}

// someFile sees whether any file of a host's job that is left is there: none is where
// another machine, or a container, has the host's name, and all would count as gone.
func (j *job) someFile() error {
	missing := ""
	for i, s := range j.Sources {
		if j.Host == "" || j.at[i].Sequence >= uint64(len(s.Objects)) {
			continue
		}
		for _, o := range s.Objects[j.at[i].Sequence:] {
			if _, err := os.Stat(o.Path); err == nil || !errors.Is(err, os.ErrNotExist) {
				return nil
			}
			missing = o.Path
		}
	}
	if missing == "" {
		return nil
	}
	return &ConfigError{fmt.Errorf("no file of job %s is here, on %s: there is no %s; if they are deleted, cancel the job", j.ID, j.host, missing)}
}

// claim makes this run the one that works on the job.
func (j *job) claim(ctx context.Context) (backfill.State, error) {
	s, err := j.jobs.Update(ctx, j.ID, func(s *backfill.State) error {
		if j.o.Force {
			s.Runner = nil
		}
		return s.Claim(j.now(), j.runID, j.host)
	})
	if err == nil {
		j.state, j.limits = s, newLimiter(s.Limits)
	}
	return s, err
}

// work has all sources worked on, and everything that goes with it.
func (j *job) work(hard, stop context.Context) (backfill.Summary, error) {
	stop, j.end = context.WithCancelCause(stop)
	defer j.end(nil)
	var beside errgroup.Group
	during, over := context.WithCancel(hard)
	beside.Go(func() error { j.keep(during); return nil })
	beside.Go(func() error { j.report(during); return nil })
	load := &coming{job: j}
	load.begin(stop, j.first.Progress)
	beside.Go(func() error { load.renew(during); return nil })
	j.all(hard, stop)
	over()
	_ = beside.Wait() // always nil
	settling := settleTime
	if hard.Err() != nil {
		settling = releaseTime
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), settling)
	defer cancel()
	load.end(ctx)
	return j.settle(ctx, context.Cause(stop))
}

// settleTime is how long a run that ends in good order tries to note that it has.
const settleTime = 10 * time.Second

// all works on all sources at once. The first fault ends all of them in good order.
func (j *job) all(hard, stop context.Context) {
	n := int64(len(j.Sources))
	share := int((j.sources.Add(n)*sourceMemory + j.memory - 1) / j.memory)
	defer j.sources.Add(-n)
	var g errgroup.Group
	for i := range j.Sources {
		g.Go(func() error {
			if err := j.source(hard, stop, i, share); err != nil {
				j.end(err)
			}
			return nil
		})
	}
	_ = g.Wait() // always nil
}

// source works on one source.
func (j *job) source(hard, stop context.Context, i, share int) error {
	s := j.Sources[i]
	objects, err := newSourceObjects(j.Read, s.Objects, j.open)
	if err != nil {
		return err
	}
	o := ingest.BackfillOptions{
		Source: s.Name, Topic: j.Topic, Incarnation: j.Incarnation, Store: j.deps.Store, Share: share,
		Objects: &governed{Objects: objects, limits: j.limits, stop: stop, now: j.now, denied: func(err error) { j.end(&DeniedError{err}) }},
		Moved:   func(c segment.Checkpoint) { j.moved(i, c) },
		Logger:  j.log, Metrics: j.metrics, Now: j.now,
	}
	if j.deps.NATS != nil {
		o.Nudger = &nudger{d: j.deps, kind: work.Plan}
	}
	return ingest.NewBackfill(o).Run(hard, stop)
}

// moved notes where a source is, and ends the run when too many rows were rejected.
func (j *job) moved(i int, c segment.Checkpoint) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.at[i] = c
	rejected, rows := uint64(0), uint64(0)
	for _, c := range j.at {
		if t := c.Tally; t != nil {
			rejected += t.Rejected
			rows += t.Rows + t.Rejected + t.Filtered
		}
	}
	if j.state.Limits.TooMany(rejected, rows) {
		j.end(&tooManyRejects{rejected, rows, *j.state.Limits.MaxRejects})
	}
}

// progress is where the sources are.
func (j *job) progress() backfill.Progress {
	j.mu.Lock()
	at := append([]segment.Checkpoint(nil), j.at...)
	j.mu.Unlock()
	return backfill.ProgressAt(j.Job, at)
}
