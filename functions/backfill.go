package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// DefaultBackfillPeriod is between two sweeps of a resident backfill.
const DefaultBackfillPeriod = time.Minute

// BackfillOptions of the function that works on backfill jobs and has schedules make
// them. The zero value is resident.
type BackfillOptions struct {
	Period   time.Duration // between two sweeps of a resident one; 0: DefaultBackfillPeriod
	Once     bool          // do what there is to do now, then end
	Deadline time.Duration // of a Once run; 0: none
	// PlanWait is as in JobOptions.
	PlanWait time.Duration
}

// BackfillSummary is what a run did, for one line of JSON.
type BackfillSummary struct {
	Topics    int     `json:"topics"`    // looks at topics
	Schedules int     `json:"schedules"` // looks at schedules
	Made      int     `json:"made"`      // jobs that schedules made
	Jobs      int     `json:"jobs"`      // times that a job was worked on
	Done      int     `json:"done"`      // jobs that are done
	Rows      uint64  `json:"rows"`      // that were taken in
	Rejected  uint64  `json:"rejected"`
	Held      int     `json:"held"`      // jobs that other runs were at
	Elsewhere int     `json:"elsewhere"` // open jobs, and schedules, whose objects cannot be reached from here
	Failed    int     `json:"failed"`    // topics, schedules and jobs with which something was the matter
	Left      int     `json:"left"`      // jobs that were not done before the end
	Tokens    int     `json:"tokens"`
	Seconds   float64 `json:"seconds"`
}

// Backfill works on the open jobs of all topics, a few at a time, and has schedules
// make jobs: of a topic for which a token arrives, and, for tokens are hints, every
// o.Period of all. A Once run goes on until there is nothing left to do. Jobs whose
// objects are files of a machine are left alone, also there: whoever made one works on
// it in the foreground ([RunJob]), and where those files are not, they would count as
// gone. So are jobs and schedules of another endpoint.
//
// Any number may run at a time. When ctx ends (SIGTERM) what was read is committed, and
// that is no error. A resident run ends with an error only if it cannot begin. Errors
// have their exit code by [ExitCode].
func Backfill(ctx context.Context, d Deps, o BackfillOptions) (sum BackfillSummary, err error) {
	start := time.Now()
	if !o.Once {
		o.Deadline = 0
	}
	stop, hard, cancel := lifetimes(ctx, o.Deadline)
	defer cancel()
	js, err := jetstream.New(d.NATS)
	if err != nil {
		return sum, &ConfigError{err}
	}
	f := newFiller(d, o)
	if _, err := f.objects(""); err != nil {
		return sum, err
	}
	calls := &taker{kind: work.Backfill, js: js, log: d.Logger, handle: f.handle}
	if o.Once {
		sum, err = f.drain(hard, stop, calls)
		if sum.Left > 0 && ctx.Err() == nil {
			err = Worst(err, &RetryError{fmt.Errorf("the deadline came before %d jobs were done", sum.Left)})
		}
	} else {
		f.reside(hard, stop, calls)
		sum = f.sum
	}
	sum.Seconds = time.Since(start).Seconds()
	return sum, err
}

const (
	// fillerJobs is how many jobs a process works on at a time. The flushes of the first
	// have fillerMemory, and those that come beside it a half, a third and so on.
	fillerJobs   = 4
	fillerMemory = 32 << 20
	// fillerTopics is how many topics a sweep looks at at a time.
	fillerTopics = 8
	// fillerLater is after how long something that failed is tried again, and
	// fillerElsewhere after how long somebody looks again whether objects can be reached
	// from here.
	fillerLater     = 30 * time.Second
	fillerElsewhere = 10 * time.Minute
)

// filler works on jobs, as sweeps and tokens find them.
type filler struct {
	*jobRunner
	o     BackfillOptions
	jobs  errgroup.Group // that are being worked on
	ticks chan struct{}  // a place for a schedule that does what is due

	mu     sync.Mutex
	sum    BackfillSummary
	faults []error
	busy   map[jobKey]bool
	later  map[jobKey]time.Time // jobs that failed, and when they are tried again
}

func newFiller(d Deps, o BackfillOptions) *filler {
	f := &filler{jobRunner: newJobRunner(d), o: o, ticks: make(chan struct{}, 1), busy: map[jobKey]bool{}, later: map[jobKey]time.Time{}}
	f.memory = fillerMemory
	f.jobs.SetLimit(fillerJobs)
	if f.o.Period == 0 {
		f.o.Period = DefaultBackfillPeriod
	}
	return f
}

// count changes the summary.
func (f *filler) count(change func(*BackfillSummary)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.sum)
}

// reside sweeps and follows tokens until stop ends, and with it the jobs.
func (f *filler) reside(hard, stop context.Context, calls *taker) {
	calls.beside(hard, stop, func() {
		const part = "backfill sweeps"
		timer := time.NewTimer(0)
		defer timer.Stop()
		for {
			select {
			case <-stop.Done():
				return
			case <-timer.C:
			}
			start := f.now()
			err := f.sweep(hard, stop)
			switch {
			case stop.Err() != nil:
				return
			case err != nil:
				f.deps.Health.Fault(part, err)
				f.deps.Logger.Warn("could not look for backfill jobs, will try again", "err", err)
			default:
				f.deps.Health.OK(part)
			}
			f.forget()
			timer.Reset(max(0, f.o.Period-f.now().Sub(start)))
		}
	})
	_ = f.jobs.Wait() // always nil
}

// forget forgets faults that a resident run has told of in the log.
func (f *filler) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	for k, at := range f.later {
		if f.now().After(at) {
			delete(f.later, k)
		}
	}
}

// drain sweeps, and follows tokens, until there is nothing left to do.
func (f *filler) drain(hard, stop context.Context, calls *taker) (BackfillSummary, error) {
	err := f.sweep(hard, stop)
	_ = f.jobs.Wait() // always nil
	if stop.Err() == nil {
		tokens, fault := calls.drain(hard, stop)
		_ = f.jobs.Wait() // always nil
		f.sum.Tokens = tokens
		if fault = backfillOutcome(fault); fault != nil {
			err = Worst(backfillOutcome(err), fault)
		}
	}
	return f.sum, Worst(append([]error{backfillOutcome(err)}, f.faults...)...)
}

// backfillOutcome sorts an error of looking for work.
func backfillOutcome(err error) error {
	var mismatch *work.MismatchError
	if errors.As(err, &mismatch) {
		return &ConfigError{err}
	}
	return outcome(err)
}

// sweep looks at all topics.
func (f *filler) sweep(hard, stop context.Context) error {
	topics, err := f.deps.Store.Topics(stop)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(fillerTopics)
	for _, t := range topics {
		if stop.Err() != nil {
			break
		}
		g.Go(func() error {
			_, err := f.look(hard, stop, t.Name, f.roomAt())
			f.fault(stop, err, "topic", t.Name)
			return nil
		})
	}
	return g.Wait() // always nil
}

// fault notes that something failed, unless it is that the topic is gone, or the end.
func (f *filler) fault(stop context.Context, err error, what ...any) {
	if err == nil || isGone(err) || stop.Err() != nil {
		return
	}
	f.deps.Logger.Warn("something of a backfill failed, will try again", append(what, "err", err)...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum.Failed++
	f.faults = append(f.faults, jobOutcome(err))
}

// look has a topic's schedules do what is due, and begins to work on its open jobs.
// Errors are about the whole topic.
func (f *filler) look(hard, stop context.Context, name string, start room) (left undone, err error) {
	t, err := f.deps.Store.Topic(stop, name)
	if err != nil {
		return left, err
	}
	f.count(func(s *BackfillSummary) { s.Topics++ })
	if left.elsewhere, err = f.schedules(stop, t); err != nil {
		return left, err
	}
	for l, err := range backfill.Of(f.deps.Store, t).List(stop) {
		switch {
		case err != nil:
			return left, err
		case l.Err != nil:
			f.fault(stop, fmt.Errorf("job %s of topic %q: %w", l.ID, name, l.Err), "topic", name, "job", l.ID)
			continue
		case l.State.Phase != backfill.Open || l.State.Job.Host != "":
			continue
		}
		if k := (jobKey{name, l.ID}); !f.held(k, l.State) && !f.begin(hard, stop, k, start) {
			left.later = true
		}
	}
	return left, nil
}

// held tells whether another run has a job, whose file then need not be read.
func (f *filler) held(k jobKey, s backfill.State) bool {
	var held *backfill.HeldError
	if !errors.As(s.Claim(f.now(), "", f.host), &held) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.busy[k] && f.now().After(f.later[k]) {
		f.sum.Held++
		f.later[k] = f.now().Add(fillerLater)
	}
	return true
}

// jobKey names a job.
type jobKey struct{ topic, id string }

// begin has a job worked on, if it is not, and there is room.
func (f *filler) begin(hard, stop context.Context, k jobKey, start room) bool {
	f.mu.Lock()
	if f.busy[k] || f.now().Before(f.later[k]) {
		f.mu.Unlock()
		return true
	}
	f.busy[k] = true
	f.mu.Unlock()
	if start(k, func() error { f.work(hard, stop, k); return nil }) {
		return true
	}
	f.count(func(*BackfillSummary) { delete(f.busy, k) })
	return false
}

// work works on a job, and on others after it that find no other place.
func (f *filler) work(hard, stop context.Context, k jobKey) {
	for next := &k; next != nil; {
		next = f.job(hard, stop, *next)
	}
}

// job works on a job, and then has the schedule that has made it go on.
func (f *filler) job(hard, stop context.Context, k jobKey) (next *jobKey) {
	if stop.Err() != nil {
		f.count(func(s *BackfillSummary) { s.Left++; delete(f.busy, k) })
		return nil
	}
	did, err := f.run(hard, stop, JobOptions{Topic: k.topic, ID: k.id, PlanWait: f.o.PlanWait})
	if fails := f.judge(stop, k, did, err); fails {
		f.fault(stop, fmt.Errorf("job %s of topic %q: %w", k.id, k.topic, err), "topic", k.topic, "job", k.id)
	}
	if err != nil || did.before || stop.Err() != nil {
		return nil
	}
	_, err = f.look(hard, stop, k.topic, f.roomAfter(&next))
	f.fault(stop, err, "topic", k.topic)
	return next
}

// judge counts what was done of a job, and decides whether it is to be worked on again
// soon. fails: something is the matter with it.
func (f *filler) judge(stop context.Context, k jobKey, did worked, err error) (fails bool) {
	var ended *JobEndedError
	var held *backfill.HeldError
	var elsewhere *ElsewhereError
	var stopped *JobStoppedError
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &f.sum
	delete(f.busy, k)
	s.Rows += did.rows
	s.Rejected += did.rejected
	switch {
	case did.before: // since it was listed
		return false
	case errors.As(err, &held):
		s.Held++
	case errors.As(err, &elsewhere):
		s.Elsewhere++
		f.later[k] = f.now().Add(fillerElsewhere)
		return false
	case err == nil:
		s.Jobs, s.Done = s.Jobs+1, s.Done+1
		return false
	case errors.As(err, &ended), isGone(err), errors.Is(err, ingest.ErrTopicGone):
		s.Jobs++
		return false
	case stop.Err() != nil:
		s.Jobs, s.Left = s.Jobs+1, s.Left+1
		return false
	case errors.As(err, &stopped):
		s.Jobs++
		return true
	default:
		s.Jobs++
		fails = true
	}
	f.later[k] = f.now().Add(fillerLater)
	return fails
}

// handle does what a token asks for: its topic is looked at. What of that takes long
// goes on beside it, so that the token is done; sweeps find what is left when the
// process is killed. failed is about the topic, err about the queue.
func (f *filler) handle(hard, stop context.Context, t *work.Token) (failed, err error) {
	name := t.Parts()[0]
	left, failed := f.look(hard, stop, name, f.roomAt())
	var bad *topic.NameError
	switch {
	case isGone(failed):
		return nil, t.Done(hard)
	case errors.As(failed, &bad):
		f.deps.Logger.Warn("a token names what cannot be a topic, and is dropped", "err", failed)
		return nil, t.Done(hard)
	case failed != nil:
		f.deps.Logger.Warn("a topic's backfill jobs were not looked at, will try again", "topic", name, "err", failed)
		return failed, t.Later(fillerLater)
	case stop.Err() != nil:
		return nil, t.Later(refsSoonest)
	case left.later:
		return nil, t.Later(fillerLater)
	case left.elsewhere:
		return nil, t.Later(elsewhereLater(t.Tries))
	}
	return nil, t.Done(hard)
}
