package functions

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/lane"
)

// DefaultReconcile is how often a resident relay lists its bucket, besides when it
// starts, and when the filer was away.
const DefaultReconcile = time.Hour

// S3EventsOptions of the relay of a bucket's events. Bucket and Topic are needed;
// but for them the zero value is resident, and begins now.
type S3EventsOptions struct {
	Bucket, Prefix string
	Topic          string
	Since          time.Duration // how far back a relay begins that has no cursor
	Reconcile      time.Duration // 0: DefaultReconcile
	Once           bool          // up to now, then end
	Deadline       time.Duration // of a Once run; 0: none
}

// S3EventsSummary is what a run did, for one line of JSON.
type S3EventsSummary struct {
	Topic     string    `json:"topic"`
	Bucket    string    `json:"bucket"`
	Prefix    string    `json:"prefix,omitempty"`
	Published int       `json:"published"` // notifications that the lane has, those of Found too
	Found     int       `json:"found"`     // whose events were lost, and whose objects the listing found
	Retries   int       `json:"retries"`   // publishes that were not acknowledged, and tried again
	Position  time.Time `json:"position"`  // place in the filer's log up to which all is published
	Seconds   float64   `json:"seconds"`
}

// objectLog is what a relay needs of a filer: [seaweed.Client] says what it does.
type objectLog interface {
	Subscribe(ctx context.Context, s seaweed.Scope, since int64, follow bool, tell func(seaweed.Step) error) error
	Written(ctx context.Context, s seaweed.Scope, tell func(seaweed.ObjectEvent) error) error
}

// S3Events publishes what happens to the objects of a bucket as S3 event
// notifications for a topic, in the shape that S3 servers send. Each is acknowledged
// by JetStream before the cursor passes it, so that it comes at least once, and the
// worker drops those that come twice: any number may run. While the lane takes
// nothing, or the filer is away, a resident one waits. When ctx ends (SIGTERM) what
// is published is waited for and saved, and that is no error. Errors have their exit
// code by [ExitCode].
func S3Events(ctx context.Context, d Deps, o S3EventsOptions) (sum S3EventsSummary, err error) {
	start := time.Now()
	r, err := newRelay(d, o)
	if err != nil {
		return S3EventsSummary{Topic: o.Topic, Bucket: o.Bucket, Prefix: o.Prefix}, err
	}
	defer func() { sum, sum.Seconds = r.sum, time.Since(start).Seconds() }()
	if !o.Once {
		o.Deadline = 0
	}
	stop, hard, cancel := lifetimes(ctx, o.Deadline)
	defer cancel()
	if !o.Once {
		return r.sum, r.reside(hard, stop)
	}
	err = r.once(hard, stop)
	switch {
	case err == nil || stop.Err() == nil:
	case ctx.Err() != nil:
		err = nil // told to stop
	default:
		err = &RetryError{fmt.Errorf("the deadline of %s came before everything was published", o.Deadline)}
	}
	return r.sum, outcome(err)
}

func newRelay(d Deps, o S3EventsOptions) (*relay, error) {
	source, ok := d.Store.Filer.(objectLog)
	if !ok {
		return nil, &ConfigError{errors.New("the filer has no log of events")}
	}
	scope := seaweed.Scope{Bucket: o.Bucket, Prefix: o.Prefix}
	if err := scope.Check(); err != nil {
		return nil, &UsageError{err}
	}
	js, err := jetstream.New(d.NATS, jetstream.WithPublishAsyncTimeout(ackWait), jetstream.WithPublishAsyncMaxPending(2*relayWindow))
	if err != nil {
		return nil, &ConfigError{err}
	}
	if o.Reconcile == 0 {
		o.Reconcile = DefaultReconcile
	}
	r := &relay{
		deps: d, source: source, scope: scope, o: o, now: time.Now, metrics: newRelayMetrics(d.Metrics),
		sum: S3EventsSummary{Topic: o.Topic, Bucket: o.Bucket, Prefix: o.Prefix},
	}
	r.out = &relayOut{js: js, subject: lane.EventSubject(o.Topic), refused: r.refused}
	if o.Once {
		r.out.patience = onceWait
	}
	return r, nil
}

// open finds the topic, the bucket and the cursor, which it makes if there is none.
// It is done again after each fault, since they may have gone.
func (r *relay) open(ctx context.Context) error {
	top, err := r.deps.Store.Topic(ctx, r.o.Topic)
	switch {
	case isGone(err):
		return &ConfigError{fmt.Errorf("%w; `spillway topic create %s --allow %s` makes it", err, r.o.Topic, r.o.Bucket)}
	case err != nil:
		return err
	case !top.Allows(r.o.Bucket, r.o.Prefix):
		r.deps.Logger.Warn("the topic does not allow this bucket, so that what is published will be rejected",
			"topic", r.o.Topic, "objects", r.scope, "mend", fmt.Sprintf("spillway topic set %s --allow %s", r.o.Topic, r.o.Bucket))
	}
	err = filer.Retry(ctx, func(ctx context.Context) error {
		_, err := r.deps.Store.Filer.Lookup(ctx, path.Join("/buckets", r.o.Bucket))
		return err
	})
	if errors.Is(err, filer.ErrNotFound) {
		return &ConfigError{fmt.Errorf("the filer has no bucket %q", r.o.Bucket)}
	}
	if err != nil {
		return err
	}
	return r.load(ctx, top.Dir())
}
