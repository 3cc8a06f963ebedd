package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/ingest"
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
	n := &nudged{planner: p, deps: d, sealed: &sharedNudger{n: nudger{d: d, kind: work.Compact}}}
	calls := &taker{kind: work.Plan, js: js, log: d.Logger, handle: n.handle}
	switch {
	case o.Once && o.Nudged:
		sum.Nudges, err = calls.drain(hard, stop)
		sum.Summary = n.sum
		if err == nil && calls.cut && ctx.Err() == nil {
			err = &RetryError{fmt.Errorf("the deadline of %s came while nudges still arrived", o.Deadline)}
		}
	case o.Once:
		sum.Summary, err = p.Sweep(hard, stop, o.All)
	default:
		n.reside(hard, stop, calls, o)
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
func (n *nudged) reside(hard, stop context.Context, calls *taker, o PlanOptions) {
	if o.Period == 0 {
		o.Period = planner.DefaultPeriod
	}
	calls.beside(hard, stop, func() { n.planner.Run(hard, stop, o.Period, n.health) })
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
	deps    Deps
	sealed  ingest.Nudger // is told of topics of which something was sealed; nil: nobody is

	mu  sync.Mutex
	sum planner.Summary // of all that were handled
}

// planLater is after how long a nudge is tried again whose topic failed.
const planLater = 5 * time.Second

// handle plans for the topic of a nudge. failed is about the topic, err about the
// queue.
func (n *nudged) handle(hard, _ context.Context, t *work.Token) (failed, err error) {
	name := t.Parts()[0]
	r, failed := n.planner.Topic(hard, name)
	n.count(r, failed)
	n.call(hard, name, r)
	var bad *topic.NameError
	switch {
	case isGone(failed):
		return nil, t.Done(hard)
	case errors.As(failed, &bad):
		n.deps.Logger.Warn("a nudge names what cannot be a topic, and is dropped", "err", failed)
		return nil, t.Done(hard)
	case failed != nil:
		n.deps.Logger.Warn("a nudged topic was not planned for, will try again", "topic", name, "err", failed)
		return failed, t.Later(planLater)
	}
	return nil, t.Done(hard)
}

// call asks for the segments to be compacted that edits have sealed. A compactor finds
// them by itself too, a little later.
func (n *nudged) call(ctx context.Context, name string, r planner.Report) {
	if n.sealed == nil || len(r.Made) == 0 && r.Finished == nil {
		return
	}
	if err := n.sealed.Nudge(ctx, name); err != nil {
		n.deps.Logger.Debug("could not call for sealed segments to be compacted", "topic", name, "err", err)
	}
}

func (n *nudged) count(r planner.Report, failed error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var bad *topic.NameError
	switch {
	case failed == nil:
		n.sum.Add(r)
	case isGone(failed), errors.As(failed, &bad):
		n.sum.Gone++
	default:
		n.sum.Failed++
	}
}

// isGone tells that a topic was deleted, or is being.
func isGone(err error) bool {
	return errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting)
}
