package functions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/compactor"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// CompactOptions of the function that compacts sealed segments. The zero value is
// resident.
type CompactOptions struct {
	Period    time.Duration // between two sweeps of a resident one; 0: compactor.DefaultPeriod
	Once      bool          // compact what is sealed now, then end
	Deadline  time.Duration // of a Once run; 0: none
	Grace     time.Duration // for how long chunks stay beside their manifest; 0: compactor.DefaultGrace, below 0: not at all
	FileBytes int64         // size of a data file, about; 0: compactor.DefaultFileBytes
	// Progress is told how far a rewriting is, often; nil: nobody wants to know.
	Progress func(compactor.Progress)
}

// CompactSummary is what a run did, for one line of JSON.
type CompactSummary struct {
	compactor.Summary
	Tokens  int     `json:"tokens"`
	Seconds float64 `json:"seconds"`
}

// Compact turns sealed segments into data files and manifests, commits them to their
// topics' tables if d.Tables is set, and trims logs whose grace time is over: of a
// topic for which a token arrives, and, for tokens are hints, every o.Period of all.
// A Once run looks at all topics once, and does what tokens that wait ask for. Any number
// may run at a time. When ctx ends (SIGTERM) a segment that is being rewritten is left to
// whoever comes next, and that is no error. A resident run ends with an error only if it
// cannot begin. Errors have their exit code by [ExitCode].
func Compact(ctx context.Context, d Deps, o CompactOptions) (sum CompactSummary, err error) {
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
	n := &compacted{deps: d, compactor: NewCompactor(d, o)}
	calls := &taker{kind: work.Compact, js: js, log: d.Logger, handle: n.handle}
	if !o.Once {
		n.reside(hard, stop, calls, o)
		return sum, nil
	}
	sum, err = n.once(hard, stop, calls)
	return sum, compactOutcome(ctx, sum.Summary, err)
}

// NewCompactor is the compactor of a function, or of a command. It registers its metrics.
func NewCompactor(d Deps, o CompactOptions) *compactor.Compactor {
	if o.Grace == 0 {
		o.Grace = compactor.DefaultGrace
	}
	opts := compactor.Options{
		Store: d.Store, Tables: d.Tables, Grace: o.Grace, FileBytes: o.FileBytes, Holder: holder(), Progress: o.Progress,
		Logger: d.Logger, Metrics: compactor.NewMetrics(d.Metrics), Now: time.Now,
	}
	if d.Judge == nil {
		return compactor.New(opts) // batch references wait for one that can read their objects
	}
	if objects, ok := d.Judge.Objects.(*object.Store); ok {
		opts.Expander = compactor.NewExpander(objects, d.Judge.Endpoint)
	}
	return compactor.New(opts)
}

// compacted compacts the topics that tokens name, and others in sweeps.
type compacted struct {
	compactor *compactor.Compactor
	deps      Deps

	mu  sync.Mutex
	sum compactor.Summary // of all that tokens asked for
}

// reside sweeps and follows tokens until stop ends.
func (n *compacted) reside(hard, stop context.Context, calls *taker, o CompactOptions) {
	if o.Period == 0 {
		o.Period = compactor.DefaultPeriod
	}
	calls.beside(hard, stop, func() { n.compactor.Run(hard, stop, o.Period, n.health) })
}

// health reports a sweep. A compactor gets on while it gets on with some topic: that one
// is damaged is told in the log and by doctor, and nothing that a restart would mend.
func (n *compacted) health(sum compactor.Summary, err error) {
	const part = "compactor"
	var some *compactor.SweepError
	blind := err != nil && !errors.As(err, &some) && sum.Failed == 0 // it did not get at any topic
	away := sum.Silent > 0 && sum.Topics == sum.Silent
	if err == nil {
		err = sum.Fault
	}
	if blind || away {
		n.deps.Health.Fault(part, err)
	} else {
		n.deps.Health.OK(part)
	}
}

// once sweeps, and then does what tokens ask for. It needs NATS for the second alone.
func (n *compacted) once(hard, stop context.Context, calls *taker) (sum CompactSummary, err error) {
	sum.Summary, err = n.compactor.Sweep(hard, stop, true)
	if stop.Err() != nil {
		return sum, err
	}
	var fault error
	sum.Tokens, fault = calls.drain(hard, stop)
	sum.did(n.sum)
	return sum, errors.Join(err, fault)
}

// did adds what was done for tokens. How things are with their topics the sweep has
// told, but for what came between.
func (s *CompactSummary) did(t compactor.Summary) {
	s.Compacted += t.Compacted
	s.Committed += t.Committed
	s.Trimmed += t.Trimmed
	s.Swept += t.Swept
	s.Records += t.Records
	s.Rows += t.Rows
	s.Bytes += t.Bytes
	s.Files += t.Files
	s.FileBytes += t.FileBytes
	s.Left += t.Left
	if s.Next.IsZero() || !t.Next.IsZero() && t.Next.Before(s.Next) {
		s.Next = t.Next
	}
	if s.Silent == 0 {
		s.Silent, s.Fault = t.Silent, t.Fault
	}
}

// handle compacts the topic of a token, which is put off while something of it waits
// for the end of its grace time. failed is about the topic, err about the queue.
func (n *compacted) handle(hard, stop context.Context, t *work.Token) (failed, err error) {
	name := t.Parts()[0]
	r, failed := n.compactor.Topic(hard, stop, name)
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
		n.deps.Logger.Warn("a topic was not compacted, will try again", "topic", name, "err", failed)
		return failed, t.Later(compactLater)
	case r.Held: // whoever has it may have begun before the token was put
		return nil, t.Later(compactLater)
	case r.Cut: // and stop has ended: it is for somebody else
		return nil, t.Later(compactSoonest)
	case r.Next.IsZero():
		return nil, t.Done(hard)
	}
	return nil, t.Later(max(time.Until(r.Next), compactSoonest))
}

// compactLater is after how long a token is tried again whose topic failed, and
// compactSoonest for how long one is put off at least.
const (
	compactLater   = 30 * time.Second
	compactSoonest = time.Second
)

// compactOutcome is the error of a Once run: what failed, or what was not done.
func compactOutcome(ctx context.Context, sum compactor.Summary, err error) error {
	var mismatch *work.MismatchError
	switch {
	case errors.As(err, &mismatch):
		err = &ConfigError{err}
	case err != nil:
		err = compactFault(err)
	case sum.Left > 0 && ctx.Err() == nil:
		err = &RetryError{fmt.Errorf("%d topics were not done: the deadline came, or somebody else took them over", sum.Left)}
	}
	if sum.Silent > 0 {
		err = Worst(err, &RetryError{fmt.Errorf("not all that was due of %d topics could be done: %w", sum.Silent, sum.Fault)})
	}
	return err
}
