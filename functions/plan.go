package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
	"github.com/spillway-mq/spillway/planner"
)

// PlanOptions of the plan function. The zero value but for the policies is
// resident.
type PlanOptions struct {
	Policies planner.Policies
	Period   time.Duration // between two sweeps of a resident one; 0: planner.DefaultPeriod
	Once     bool          // one sweep, then end
	All      bool          // of a Once run: topics that are at rest too
	Nudged   bool          // of a Once run: only topics for which nudges wait, until none does
	Deadline time.Duration // of a Once run; 0: none
}

// PlanSummary is what a run did, for one line of JSON.
type PlanSummary struct {
	planner.Summary
	Nudges  int     `json:"nudges"`
	Seconds float64 `json:"seconds"`
}

// Plan splits, merges and rolls segments as their load asks for: of all topics that
// are not at rest, every o.Period, and of a topic for which a worker's nudge
// arrives, at once. A Once run makes one sweep, or follows the nudges that wait. Any
// number may run at a time. When ctx ends (SIGTERM) the topics in hand are finished,
// and that is no error. A resident run ends with an error only if it cannot begin.
// Errors have their exit code by [ExitCode].
func Plan(ctx context.Context, d Deps, o PlanOptions) (sum PlanSummary, err error) {
	start := time.Now()
	defer func() { sum.Seconds = time.Since(start).Seconds() }()
	if !o.Once {
		o.Deadline = 0
	}
	stop, hard, cancel := lifetimes(ctx, o.Deadline)
	defer cancel()
	js, err := jetstream.New(d.NATS)
	if err != nil {
		return sum, &ConfigError{err}
	}
	p := planner.New(planner.Options{
		Store: d.Store, Policies: o.Policies, Lanes: NewLanes(js, d.Store), Logger: d.Logger, Metrics: planner.NewMetrics(d.Metrics),
	})
	n := &nudged{planner: p, js: js, deps: d}
	switch {
	case o.Once && o.Nudged:
		sum.Summary, sum.Nudges, err = n.drain(hard, stop)
		if err == nil && n.cut && ctx.Err() == nil {
			err = &RetryError{fmt.Errorf("the deadline of %s came while nudges still arrived", o.Deadline)}
		}
	case o.Once:
		sum.Summary, err = p.Sweep(hard, stop, o.All)
	default:
		reside(hard, stop, n, o)
		return sum, nil
	}
	return sum, planOutcome(ctx, sum.Summary, err)
}

// planOutcome is the error of a Once run: what failed, or what was not done.
func planOutcome(ctx context.Context, sum planner.Summary, err error) error {
	var mismatch *work.MismatchError
	switch {
	case errors.As(err, &mismatch):
		return &ConfigError{err}
	case err != nil:
		return outcome(err)
	case sum.Left > 0 && ctx.Err() == nil:
		return &RetryError{fmt.Errorf("the deadline came before %d topics were begun", sum.Left)}
	case sum.Blind > 0:
		return &RetryError{fmt.Errorf("nothing was merged in %d topics: how far their lanes are behind is not known: %w", sum.Blind, sum.Fault)}
	}
	return nil
}

// reside sweeps and follows nudges until stop ends.
func reside(hard, stop context.Context, n *nudged, o PlanOptions) {
	if o.Period == 0 {
		o.Period = planner.DefaultPeriod
	}
	var g errgroup.Group
	g.Go(func() error {
		n.planner.Run(hard, stop, o.Period, n.health)
		return nil
	})
	for range nudgeParallel {
		g.Go(func() error { n.follow(hard, stop); return nil })
	}
	_ = g.Wait() // always nil
}

// health reports a sweep. A planner gets on while it gets on with some topic: that
// one is damaged is told in the log, and nothing that a restart would mend.
func (n *nudged) health(sum planner.Summary, err error) {
	const part = "planner"
	if err != nil && sum.Topics == 0 {
		n.deps.Health.Fault(part, err)
	} else {
		n.deps.Health.OK(part)
	}
}

// nudged plans for the topics that workers' nudges name.
type nudged struct {
	planner *planner.Planner
	js      jetstream.JetStream
	deps    Deps
	cut     bool // drain was stopped before it had found none
}

// Times of following nudges: a pause after a fault, and after one that only an
// operator can mend; how long a drained queue is looked at; after how long a nudge
// is tried again whose topic failed; and how often one that takes long shows that it
// is in hand. nudgeParallel is how many a resident planner has in hand at most.
const (
	nudgePause    = 2 * time.Second
	nudgeMend     = time.Minute
	nudgeIdle     = 500 * time.Millisecond
	nudgeLater    = 5 * time.Second
	nudgeShow     = work.DefaultAckWait / 3
	nudgeParallel = 4
)

func (n *nudged) open(ctx context.Context) (*work.Tokens, error) {
	q, err := work.Open(ctx, n.js)
	if err != nil {
		return nil, err
	}
	return q.Tokens(ctx, work.Filter(work.Plan, 1))
}

// follow takes nudges until stop ends. Sweeps find what is missed here, so faults
// only make it later.
func (n *nudged) follow(hard, stop context.Context) {
	var tokens *work.Tokens
	for stop.Err() == nil {
		var err error
		if tokens == nil {
			tokens, err = n.open(stop)
		}
		var t *work.Token
		if err == nil {
			t, err = tokens.Next(stop)
		}
		if err == nil {
			_, _, err = n.handle(hard, t)
		}
		if err == nil || stop.Err() != nil {
			continue
		}
		tokens = nil
		n.pause(stop, err)
	}
}

// pause waits after a fault of the queue.
func (n *nudged) pause(stop context.Context, err error) {
	var mismatch *work.MismatchError
	wait, level := nudgePause, slog.LevelWarn
	if errors.As(err, &mismatch) {
		wait, level = nudgeMend, slog.LevelError
	}
	n.deps.Logger.Log(stop, level, "cannot follow nudges; sweeps go on", "err", err)
	select {
	case <-stop.Done():
	case <-time.After(wait):
	}
}

// handle plans for the topic of a nudge. failed is about the topic, err about the
// queue.
func (n *nudged) handle(hard context.Context, t *work.Token) (r planner.Report, failed, err error) {
	name := t.Parts()[0]
	done := n.show(hard, t)
	r, failed = n.planner.Topic(hard, name)
	done()
	var bad *topic.NameError
	switch {
	case errors.Is(failed, segment.ErrNoTopic), errors.Is(failed, segment.ErrDeleting):
		return r, failed, t.Done(hard)
	case errors.As(failed, &bad):
		n.deps.Logger.Warn("a nudge names what cannot be a topic, and is dropped", "err", failed)
		return r, segment.ErrNoTopic, t.Done(hard)
	case failed != nil:
		n.deps.Logger.Warn("a nudged topic was not planned for, will try again", "topic", name, "err", failed)
		return r, failed, t.Later(nudgeLater)
	}
	return r, nil, t.Done(hard)
}

// show shows that a nudge is in hand until the function that it returns is called.
func (n *nudged) show(ctx context.Context, t *work.Token) func() {
	ctx, cancel := context.WithCancel(ctx)
	var g errgroup.Group
	g.Go(func() error {
		tick := time.NewTicker(nudgeShow)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				if err := t.Progress(); err != nil {
					n.deps.Logger.Debug("a nudge may be handed out twice", "err", err)
				}
			}
		}
	})
	return func() { cancel(); _ = g.Wait() } // always nil
}

// drain follows nudges until none is left. Topics that fail are put off, and told
// when the others are done.
func (n *nudged) drain(hard, stop context.Context) (sum planner.Summary, taken int, err error) {
	tokens, err := n.open(stop)
	if err != nil {
		return sum, 0, err
	}
	var faults []error
	for stop.Err() == nil {
		idle, cancel := context.WithTimeout(stop, nudgeIdle)
		t, err := tokens.Next(idle)
		over := idle.Err() != nil
		cancel()
		if err != nil && over {
			return sum, taken, errors.Join(faults...) // none came in time
		}
		if err != nil {
			return sum, taken, errors.Join(append(faults, err)...)
		}
		taken++
		r, failed, err := n.handle(hard, t)
		switch {
		case failed == nil:
			sum.Add(r)
		case errors.Is(failed, segment.ErrNoTopic), errors.Is(failed, segment.ErrDeleting):
			sum.Gone++
		default:
			sum.Failed++
			faults = append(faults, fmt.Errorf("topic %q: %w", t.Parts()[0], failed))
		}
		if err != nil {
			return sum, taken, errors.Join(append(faults, err)...)
		}
	}
	n.cut = true
	return sum, taken, errors.Join(faults...)
}
