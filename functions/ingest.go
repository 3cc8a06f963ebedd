package functions

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
	"github.com/spillway-mq/spillway/internal/work"
)

// Deps are the connections of a function. Judge is nil where no S3 endpoint is set,
// and Tables where no catalog is; Metrics and Health may be nil.
type Deps struct {
	NATS    *nats.Conn
	Store   *segment.Store
	Judge   *verdict.Judge
	Tables  *table.Tables
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	Health  *ingest.Health
}

// IngestOptions of the ingest function. The zero value is the default group,
// resident.
type IngestOptions struct {
	Group      string        // lane group; "default"
	AutoCreate bool          // make topics that messages name
	Buckets    []string      // those that such topics allow, as in a definition
	TrimLag    time.Duration // 0: ingest.DefaultTrimLag
	Once       bool          // end when the lane is drained, or near the deadline
	Deadline   time.Duration // of a Once run; 0: none
	Wait       time.Duration // of a Once run, for a lease that another worker holds; 0: DefaultWait
	LaneBytes  int64         // size of a lane that is made now; 0: lane.DefaultMaxBytes
}

// IngestSummary is what a run did, for one line of JSON.
type IngestSummary struct {
	Lane string `json:"lane"`
	ingest.Counts
	Drained bool    `json:"drained"`
	HeldBy  string  `json:"held_by,omitempty"` // another worker reads the lane
	Seconds float64 `json:"seconds"`
	// Lanes are the lanes of a group of several, of which this is the sum.
	Lanes []IngestSummary `json:"lanes,omitempty"`
}

// DefaultWait is enough to take the lease over from a worker that died.
const DefaultWait = 8 * time.Second

// grace is how long the current flush may take after SIGTERM, and margin how
// long before its deadline a Once run stops reading.
const (
	grace  = 20 * time.Second
	margin = 5 * time.Second
)

// Ingest runs an ingest worker on each lane of a group that it gets the lease of.
// It waits for leases first: a Once run for o.Wait, a resident one for as long as
// it takes. Several processes that read a group of several lanes share them
// evenly. When ctx ends (SIGTERM) the current flush is finished, and that is no
// error. A Once run without an error has drained what it could get, or was told
// to stop. Errors have their exit code by [ExitCode].
func Ingest(ctx context.Context, d Deps, o IngestOptions) (sum IngestSummary, err error) {
	if o.Group == "" {
		o.Group = lane.Default
	}
	sum.Lane = lane.ID{Group: o.Group}.String()
	if err := topic.CheckBuckets(o.Buckets); err != nil { // before it ends each flush that makes a topic
		return sum, &ConfigError{err}
	}
	if d.Judge == nil {
		d.Logger.Info("no S3 endpoint is set: references are committed as pending, and objects get no pins", "lane", sum.Lane)
	}
	start := time.Now()
	defer func() { sum.Seconds = time.Since(start).Seconds() }()
	stop, hard, cancel := lifetimes(ctx, o.deadline())
	defer cancel()
	lanes, err := openLanes(stop, d, o)
	if err != nil {
		return sum, outcome(err)
	}
	p := newPost(d, o, lanes)
	defer p.watch(hard)()
	switch {
	case len(lanes) == 1:
		return p.only(ctx, stop, hard)
	case o.Once:
		return p.once(ctx, stop, hard)
	}
	return p.share(stop, hard)
}

// openLanes opens a group. The default group is made when it is missing.
func openLanes(ctx context.Context, d Deps, o IngestOptions) ([]*ingest.JetStream, error) {
	if o.Group == lane.Default {
		l, err := ingest.OpenLane(ctx, d.NATS, d.Store, lane.ID{Group: o.Group}, lane.Settings{MaxBytes: o.LaneBytes})
		return []*ingest.JetStream{l}, err
	}
	lanes, err := ingest.OpenGroup(ctx, d.NATS, o.Group)
	var lacks *lane.IncompleteError
	if errors.Is(err, lane.ErrNoLane) || errors.As(err, &lacks) {
		err = &ConfigError{fmt.Errorf("%w; `spillway lanes create` makes it", err)}
	}
	return lanes, err
}

// read works on a lane for as long as its lease is held.
func (p *post) read(hard, stop context.Context, i int, lease *ingest.Lease) (IngestSummary, error) {
	l := p.lanes[i]
	start := time.Now()
	opts := ingest.Options{
		Lane: l, ID: l.ID, Store: p.d.Store, AutoCreate: p.o.AutoCreate, Buckets: p.o.Buckets, TrimLag: p.o.TrimLag, Once: p.o.Once,
		Share: len(p.lanes), Nudger: &nudger{d: p.d, kind: work.Plan}, FollowUp: &nudger{d: p.d, kind: work.Refs}, Jobs: &nudger{d: p.d, kind: work.Backfill}, Logger: p.d.Logger, Metrics: p.metrics[i],
	}
	if p.d.Judge != nil {
		opts.Judge, opts.Expander = p.d.Judge, &expander{p.d.Store, p.d.Judge}
	}
	w := ingest.NewWorker(opts)
	err := workOn(hard, stop, w, lease)
	return IngestSummary{Lane: l.ID.String(), Counts: w.Counts(), Drained: w.Drained(), Seconds: time.Since(start).Seconds()}, err
}

// HeldError says that another worker had the lane's lease for as long as this
// one was to wait.
type HeldError struct {
	Lane, Holder string
	Waited       time.Duration
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lane %s is read by another worker, %s; waited %s for it to end", e.Lane, e.Holder, e.Waited.Round(time.Second))
}

// acquire gets the lease of the lane, waiting for so long, or with 0 for as long
// as it takes. It returns no lease and no error when ctx
// ended: told to stop before there was any work.
func acquire(ctx, stop context.Context, d Deps, id lane.ID, wait time.Duration) (*ingest.Lease, error) {
	js, err := jetstream.New(d.NATS)
	if err != nil {
		return nil, &ConfigError{err}
	}
	start := time.Now()
	if wait > 0 {
		var cancel func()
		stop, cancel = context.WithTimeout(stop, wait)
		defer cancel()
	}
	lease, heldBy, err := ingest.Acquire(stop, js, id, holder(), d.Logger)
	switch {
	case lease != nil:
		return lease, nil
	case ctx.Err() != nil:
		return nil, nil // stopping is no failure
	case heldBy != "":
		return nil, &RetryError{&HeldError{id.String(), heldBy, time.Since(start)}}
	}
	return nil, &RetryError{fmt.Errorf("could not get the lease of lane %s: %w", id, err)}
}

// deadline is that of a Once run, 0 if there is none.
func (o IngestOptions) deadline() time.Duration {
	if !o.Once {
		return 0
	}
	return o.Deadline
}

// lifetimes derives until when to take up work and until when to do it, for a
// function that has a deadline, or with 0 has none.
func lifetimes(ctx context.Context, deadline time.Duration) (stop, hard context.Context, cancel func()) {
	stop, cancelStop := context.WithCancel(ctx)
	hard, cancelHard := context.WithCancel(context.WithoutCancel(ctx))
	timers := []*time.Timer{}
	if deadline > 0 {
		timers = append(timers, time.AfterFunc(deadline-min(margin, deadline/4), cancelStop), time.AfterFunc(deadline, cancelHard))
	}
	unregister := context.AfterFunc(ctx, func() { time.AfterFunc(grace, cancelHard) })
	return stop, hard, func() {
		unregister()
		for _, t := range timers {
			t.Stop()
		}
		cancelStop()
		cancelHard()
	}
}

// releaseTime is how long a worker that ends tries to give its lease back.
const releaseTime = 2 * time.Second

// workOn runs the worker for as long as the lease is held.
func workOn(hard, stop context.Context, w *ingest.Worker, lease *ingest.Lease) error {
	held, done := context.WithCancel(hard)
	defer done()
	g, ctx := errgroup.WithContext(hard)
	g.Go(func() error {
		err := lease.Hold(held)
		if err == nil {
			free, cancel := context.WithTimeout(context.WithoutCancel(hard), releaseTime)
			defer cancel()
			lease.Release(free)
		}
		return err
	})
	g.Go(func() error {
		defer done()
		return w.Run(ctx, stop)
	})
	return g.Wait()
}

// holder names this process in leases.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s/%d/%s", host, os.Getpid(), filer.Token(6))
}

// outcome sorts an error of the worker into who can do something about it.
func outcome(err error) error {
	var back *ingest.LaneBackError
	var gap *ingest.GapError
	var chain *commitlog.ChainError
	var mismatch *lane.MismatchError
	var storage *filer.StorageError
	var expiry *filer.ExpiryError
	switch {
	case err == nil, ExitCode(err) != ExitBug:
		return err
	case errors.As(err, &mismatch), errors.As(err, &back), errors.As(err, &gap), errors.Is(err, ingest.ErrNoCheckpoint), Unfit(err):
		return &ConfigError{err}
	case errors.As(err, &storage), errors.As(err, &expiry): // of a topic that the worker makes
		return &ConfigError{err}
	case errors.As(err, &chain), errors.Is(err, commitlog.ErrWentBack), errors.Is(err, segment.ErrSourceWentBack), errors.Is(err, filer.ErrCorrupt):
		return err
	}
	return &RetryError{err}
}
