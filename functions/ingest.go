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

	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
)

// Deps are the connections of a function. Metrics may be nil.
type Deps struct {
	NATS    *nats.Conn
	Store   *segment.Store
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// IngestOptions of the ingest function. The zero value is the default group,
// resident.
type IngestOptions struct {
	Group      string        // lane group; "default"
	AutoCreate bool          // make topics that messages name
	TrimLag    time.Duration // 0: ingest.DefaultTrimLag
	Once       bool          // end when the lane is drained, or near the deadline
	Deadline   time.Duration // of a Once run; 0: none
	LaneBytes  int64         // size of a lane that is made now; 0: lane.DefaultMaxBytes
}

// IngestSummary is what a run did, for one line of JSON.
type IngestSummary struct {
	Lane string `json:"lane"`
	ingest.Counts
	Drained bool    `json:"drained"`
	HeldBy  string  `json:"held_by,omitempty"` // another worker reads the lane
	Seconds float64 `json:"seconds"`
}

// grace is how long the current flush may take after SIGTERM, and margin how
// long before its deadline a Once run stops reading.
const (
	grace  = 20 * time.Second
	margin = 5 * time.Second
)

// Ingest runs an ingest worker on the lane of a group. It waits for the lane's
// lease first. When ctx ends (SIGTERM) the current flush is finished. Errors
// have their exit code by [ExitCode].
func Ingest(ctx context.Context, d Deps, o IngestOptions) (IngestSummary, error) {
	start := time.Now()
	if o.Group == "" {
		o.Group = lane.Default
	}
	id := lane.ID{Group: o.Group}
	sum := IngestSummary{Lane: id.String()}
	stop, hard, cancel := lifetimes(ctx, o)
	defer cancel()
	js, err := jetstream.New(d.NATS)
	if err != nil {
		return sum, &ConfigError{err}
	}
	opened, err := ingest.OpenLane(stop, d.NATS, d.Store, id, lane.Settings{MaxBytes: o.LaneBytes})
	if err != nil {
		return sum, outcome(err)
	}
	lease, heldBy, err := ingest.Acquire(stop, js, id, holder(), d.Logger)
	if lease == nil {
		sum.HeldBy, sum.Seconds = heldBy, time.Since(start).Seconds()
		if heldBy != "" || ctx.Err() != nil {
			return sum, nil // somebody else does the work, or we were told to stop
		}
		return sum, &RetryError{fmt.Errorf("could not get the lease of lane %s: %w", id, err)}
	}
	w := ingest.NewWorker(ingest.Options{
		Lane: opened, ID: id, Store: d.Store, AutoCreate: o.AutoCreate, TrimLag: o.TrimLag, Once: o.Once,
		Logger: d.Logger, Metrics: ingest.NewMetrics(d.Metrics, id.String()),
	})
	err = work(hard, stop, w, lease)
	sum.Counts, sum.Drained, sum.Seconds = w.Counts(), w.Drained(), time.Since(start).Seconds()
	if err == nil && o.Once && !sum.Drained && ctx.Err() == nil {
		err = &RetryError{fmt.Errorf("lane %s is not drained: the deadline of %s came first", id, o.Deadline)}
	}
	return sum, outcome(err)
}

// lifetimes derives until when to read and until when to work.
func lifetimes(ctx context.Context, o IngestOptions) (stop, hard context.Context, cancel func()) {
	stop, cancelStop := context.WithCancel(ctx)
	hard, cancelHard := context.WithCancel(context.WithoutCancel(ctx))
	timers := []*time.Timer{}
	if o.Once && o.Deadline > 0 {
		timers = append(timers, time.AfterFunc(o.Deadline-min(margin, o.Deadline/4), cancelStop), time.AfterFunc(o.Deadline, cancelHard))
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

// work runs the worker for as long as the lease is held.
func work(hard, stop context.Context, w *ingest.Worker, lease *ingest.Lease) error {
	held, done := context.WithCancel(hard)
	defer done()
	g, ctx := errgroup.WithContext(hard)
	g.Go(func() error {
		err := lease.Hold(held)
		if err == nil && hard.Err() == nil {
			lease.Release(hard)
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
	switch {
	case err == nil, ExitCode(err) != ExitBug:
		return err
	case errors.As(err, &mismatch), errors.As(err, &back), errors.As(err, &gap), errors.Is(err, ingest.ErrNoCheckpoint):
		return &ConfigError{err}
	case errors.As(err, &chain), errors.Is(err, commitlog.ErrWentBack), errors.Is(err, segment.ErrSourceWentBack), errors.Is(err, filer.ErrCorrupt):
		return err
	}
	return &RetryError{err}
}
