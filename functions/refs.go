package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/followup"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// RefsOptions of the function that follows up pending references. The zero value is
// resident.
type RefsOptions struct {
	Period   time.Duration // between two sweeps of a resident one; 0: followup.DefaultPeriod
	Once     bool          // look at what is due now, then end
	All      bool          // of a Once run: topics that are at rest too
	Deadline time.Duration // of a Once run; 0: none
	// How long to wait for objects, as in followup.Options; 0: its defaults.
	RetryAfter, RetryAtMost, GiveUp time.Duration
}

// RefsSummary is what a run did, for one line of JSON.
type RefsSummary struct {
	followup.Summary
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
}

// Refs looks at the objects of references that were committed as pending until they
// are there, and pins them: of a topic for which a worker's token arrives, and, for
// tokens are hints, every o.Period of all topics that are not at rest or have open
// references. A Once run makes one sweep, and does what tokens that wait ask for. Any
// number may run at a time. When ctx ends (SIGTERM) the looks that are under way are
// finished and saved, and that is no error. A resident run ends with an error only if
// it cannot begin. Errors have their exit code by [ExitCode].
func Refs(ctx context.Context, d Deps, o RefsOptions) (sum RefsSummary, err error) {
	start := time.Now()
	defer func() { sum.Seconds = time.Since(start).Seconds() }()
	if d.Judge == nil || d.Judge.Objects == nil {
		return sum, &ConfigError{errors.New("no S3 endpoint is set: give --s3, or another S3 setting, as for `spillway submit`")}
	}
	if !o.Once {
		o.Deadline = 0
	}
	stop, hard, cancel := lifetimes(ctx, o.Deadline)
	defer cancel()
	js, err := jetstream.New(d.NATS)
	if err != nil {
		return sum, &ConfigError{err}
	}
	n := &pending{deps: d, follower: followup.New(followup.Options{
		Store: d.Store, Judge: d.Judge, Expander: &lateExpander{expander: expander{d.Store, d.Judge}, jobs: &nudger{d: d, kind: work.Backfill}}, RetryAfter: o.RetryAfter, RetryAtMost: o.RetryAtMost, GiveUp: o.GiveUp,
		Logger: d.Logger, Metrics: followup.NewMetrics(d.Metrics),
	})}
	calls := &taker{kind: work.Refs, js: js, log: d.Logger, handle: n.handle}
	if !o.Once {
		n.reside(hard, stop, calls, o)
		return sum, nil
	}
	sum, err = n.once(hard, stop, calls, o)
	return sum, refsOutcome(ctx, sum.Summary, err)
}

// refsOutcome is the error of a Once run: what failed, or what was not done.
func refsOutcome(ctx context.Context, sum followup.Summary, err error) error {
	var mismatch *work.MismatchError
	switch {
	case errors.As(err, &mismatch):
		err = &ConfigError{err}
	case err != nil:
		err = outcome(err)
	case sum.Left > 0 && ctx.Err() == nil:
		err = &RetryError{fmt.Errorf("the deadline came before %d topics were done", sum.Left)}
	}
	if sum.Silent > 0 {
		err = Worst(err, &RetryError{fmt.Errorf("not all that was due of %d topics could be looked at: %w", sum.Silent, sum.Fault)})
	}
	return err
}

// pending follows up the topics that workers' tokens name, and others in sweeps.
type pending struct {
	follower *followup.Follower
	deps     Deps

	mu  sync.Mutex
	sum followup.Summary // of all that tokens asked for
}

// reside sweeps and follows tokens until stop ends.
func (n *pending) reside(hard, stop context.Context, calls *taker, o RefsOptions) {
	if o.Period == 0 {
		o.Period = followup.DefaultPeriod
	}
	calls.beside(hard, stop, func() { n.follower.Run(hard, stop, o.Period, n.health) })
}

// health reports a sweep: as the planner's, it is about all topics or none. That
// objects are not there is no fault, and that nobody can tell is one.
func (n *pending) health(sum followup.Summary, err error) {
	const part = "follow-up of references"
	if err == nil && sum.Silent > 0 {
		err = sum.Fault
	}
	if err != nil && sum.Topics == sum.Silent {
		n.deps.Health.Fault(part, err)
	} else {
		n.deps.Health.OK(part)
	}
}

// once sweeps, and then does what tokens ask for. It needs NATS for the second
// alone.
func (n *pending) once(hard, stop context.Context, calls *taker, o RefsOptions) (sum RefsSummary, err error) {
	sum.Summary, err = n.follower.Sweep(hard, stop, o.All)
	if stop.Err() != nil {
		return sum, err
	}
	var fault error
	sum.Tokens, fault = calls.drain(hard, stop)
	swept := sum.Summary
	sum.Looked, sum.Resolved = swept.Looked+n.sum.Looked, swept.Resolved+n.sum.Resolved
	sum.GivenUp, sum.Trimmed = swept.GivenUp+n.sum.GivenUp, swept.Trimmed+n.sum.Trimmed
	sum.Left = swept.Left + n.sum.Left
	if swept.Silent == 0 {
		sum.Silent, sum.Fault = n.sum.Silent, n.sum.Fault
	}
	return sum, errors.Join(err, fault)
}

// handle follows up the topic of a token, which is put off while some of its
// references wait, and done only when none does. failed is about the topic, err about
// the queue.
func (n *pending) handle(hard, stop context.Context, t *work.Token) (failed, err error) {
	name := t.Parts()[0]
	r, failed := n.follower.Topic(hard, stop, name)
	n.mu.Lock()
	n.sum.Add(r, failed)
	n.mu.Unlock()
	var bad *topic.NameError
	switch {
	case isGone(failed):
		return nil, t.Done(hard)
	case errors.As(failed, &bad):
		n.deps.Logger.Warn("a token names what cannot be a topic, and is dropped", "err", failed)
		return nil, t.Done(hard)
	case failed != nil:
		n.deps.Logger.Warn("the references of a topic were not followed up, will try again", "topic", name, "err", failed)
		return failed, t.Later(refsLater)
	case r.Elsewhere != nil:
		return nil, t.Later(elsewhereLater(t.Tries))
	case r.Cut: // and stop has ended: it is for somebody else
		return nil, t.Later(refsSoonest)
	case r.Next.IsZero():
		return nil, t.Done(hard)
	}
	return nil, t.Later(max(time.Until(r.Next), refsSoonest))
}

// refsLater is after how long a token is tried again whose topic failed, and
// refsSoonest how long one is put off at least.
const (
	refsLater   = 30 * time.Second
	refsSoonest = time.Second
)

// elsewhereLater is for how long to put off a token that whoever has the endpoint of
// its topic is to take. It is short at first, for that one may be next, and doubles, so
// that a token which nobody can use costs little until its hour is over.
func elsewhereLater(tries uint64) time.Duration {
	return min(refsSoonest<<min(tries, 10), refsLater)
}
