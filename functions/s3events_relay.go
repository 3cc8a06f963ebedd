package functions

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// Times of a relay: how often the cursor is saved while anything is published, and
// otherwise; after how long without a word of the filer, or how much later than the
// beginning, it is taken to be where the log is; the pauses after faults; and how
// long the last acknowledgements may take, and the last save.
const (
	relaySave  = time.Second
	relayLull  = time.Minute
	relayQuiet = 15 * time.Second
	relayPause = time.Second
	relayMost  = 30 * time.Second
	relayLast  = 5 * time.Second
)

// relayAhead is how many steps of the log are read ahead, and relayMany after how
// many events acknowledgements are waited for at the latest.
const (
	relayAhead = 64
	relayMany  = 4096
)

// relay follows a filer's log of what happens to the objects of a bucket, and
// publishes it. It is one loop; nothing of it is for concurrent use.
//
// What the log may lose is found by listing the bucket (reconcile). So that no loss
// falls between the two, the log is subscribed to first, which breaks when the filer
// ends, and the bucket is listed then, while what comes waits at the filer.
type relay struct {
	deps    Deps
	source  objectLog
	out     *relayOut
	scope   seaweed.Scope
	o       S3EventsOptions
	now     func() time.Time
	metrics *relayMetrics
	sum     S3EventsSummary

	file    cursor.File[relayState]
	version cursor.Version
	state   relayState            // all up to it is acknowledged
	saved   relayState            // as it was last saved
	kept    time.Time             // when that was
	seen    int64                 // place up to which all was given to out
	heard   time.Time             // when the filer last said anything
	given   []seaweed.ObjectEvent // to out, since it was last empty
	fresh   bool                  // something was published since the cursor was saved
	whole   bool                  // nothing can have been lost since the log was subscribed to
	recent  recentWrites
	listed  int64     // where the log was when the bucket was last listed
	told    time.Time // when it was last logged that notifications are not acknowledged
}

const relayPart = "relay of S3 events"

// reside follows the log until stop ends, or what it needs is gone.
func (r *relay) reside(hard, stop context.Context) error {
	defer r.finish(hard)
	for pause := relayPause; stop.Err() == nil; pause = min(2*pause, relayMost) {
		began := r.now()
		err := r.round(stop)
		var config *ConfigError
		if errors.As(err, &config) {
			return err
		}
		if r.now().Sub(began) > relayMost {
			pause = relayPause
		}
		r.rest(stop, pause, err)
	}
	return nil
}

func (r *relay) round(stop context.Context) error {
	if err := r.open(stop); err != nil {
		return err
	}
	return r.follow(stop)
}

// rest pauses after a fault.
func (r *relay) rest(stop context.Context, pause time.Duration, err error) {
	if stop.Err() != nil {
		return
	}
	r.drop()
	r.deps.Logger.Warn("cannot follow the filer's events, will try again", "objects", r.scope, "pause", pause, "err", err)
	r.deps.Health.Fault(relayPart, err)
	r.metrics.fault()
	select {
	case <-stop.Done():
	case <-time.After(pause):
	}
}

// finish waits for what is published, and saves how far it came.
func (r *relay) finish(hard context.Context) {
	if r.version == "" {
		return
	}
	within := func(do func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(hard), relayLast)
		defer cancel()
		return do(ctx)
	}
	err := within(r.settle)
	if r.state != r.saved {
		err = errors.Join(err, within(r.save))
	}
	if err != nil {
		r.deps.Logger.Warn("the last notifications may be published again", "objects", r.scope, "err", err)
	}
}

// once publishes what the log has now, and what it has lost.
func (r *relay) once(hard, stop context.Context) error {
	err := r.round(stop)
	if err != nil && stop.Err() == nil {
		r.drop()
	}
	r.finish(hard)
	return err
}

// drop forgets what is not acknowledged, which the log will tell again.
func (r *relay) drop() {
	r.out.drop()
	r.seen, r.given = r.state.Position, nil
}

// follow publishes as the filer tells, until the subscription breaks, which is an
// error, or ctx ends. A Once run follows until it is where the log is.
func (r *relay) follow(ctx context.Context) error {
	r.whole = false
	g, ctx := errgroup.WithContext(ctx)
	steps := make(chan seaweed.Step, relayAhead)
	since := r.state.Position
	g.Go(func() error {
		return r.source.Subscribe(ctx, r.scope, since, true, func(s seaweed.Step) error {
			select {
			case steps <- s:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	g.Go(func() error { return r.pump(ctx, steps) })
	if err := g.Wait(); !errors.Is(err, errEnough) {
		return err
	}
	return nil
}

// errEnough ends a Once run.
var errEnough = errors.New("all is published")

// pump publishes what steps tell. Once it is where the log is, the bucket is listed
// for what the log has lost, and again every now and then.
func (r *relay) pump(ctx context.Context, steps <-chan seaweed.Step) error {
	opened := r.now()
	due := opened
	r.heard = opened
	tick := time.NewTicker(relaySave)
	defer tick.Stop()
	for {
		idle, err := r.next(ctx, steps, tick.C)
		if err != nil {
			return err
		}
		here := idle || r.seen > opened.Add(relayQuiet).UnixNano() || r.now().Sub(r.heard) > relayQuiet
		if r.now().Before(due) || !r.whole && !here {
			continue
		}
		if err := r.list(ctx); err != nil {
			return err
		}
		if r.o.Once {
			return errEnough
		}
		r.whole, due = true, r.now().Add(r.o.Reconcile)
		r.deps.Health.OK(relayPart)
	}
}

// next takes the next step. When there is none yet, it first waits for
// acknowledgements, and then no longer than for a tick. idle: the filer has nothing
// more.
func (r *relay) next(ctx context.Context, steps <-chan seaweed.Step, tick <-chan time.Time) (idle bool, err error) {
	var s seaweed.Step
	select {
	case s = <-steps:
	default:
		if err := r.settle(ctx); err != nil {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-tick:
			return false, r.keep(ctx)
		case s = <-steps:
		}
	}
	r.heard = r.now()
	return s.Idle, r.take(ctx, s)
}

// list looks for what the log has lost: since it was followed last, or if it was
// followed all the time, since the last listing.
func (r *relay) list(ctx context.Context) error {
	if err := r.settle(ctx); err != nil {
		return err
	}
	from, here := r.state.Checked, r.state.Position
	if r.whole {
		from = min(from, r.listed)
	}
	if err := r.reconcile(ctx, from); err != nil {
		return err
	}
	r.listed, r.state.Checked = here, max(here, r.state.Checked)
	return r.save(ctx)
}

// take publishes what a step tells, without waiting for all acknowledgements.
func (r *relay) take(ctx context.Context, s seaweed.Step) error {
	for _, e := range s.Events {
		if e.Kind == seaweed.Touched {
			continue
		}
		if err := r.out.add(ctx, e); err != nil {
			return err
		}
		r.given = append(r.given, e)
	}
	r.seen = max(r.seen, s.Upto)
	if len(r.given) < relayMany && r.now().Sub(r.kept) < relaySave {
		return nil
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	return r.keep(ctx)
}

// settle waits for acknowledgements, and then all that was told is published.
func (r *relay) settle(ctx context.Context) error {
	if err := r.out.flush(ctx); err != nil {
		return err
	}
	r.count(r.given)
	r.given = r.given[:0]
	if r.seen > r.state.Position {
		r.state.Position = r.seen
		r.sum.Position = time.Unix(0, r.seen).UTC()
		r.metrics.at(r.seen)
	}
	if r.whole {
		r.state.Checked = max(r.state.Checked, r.state.Position)
	}
	r.deps.Health.OK(relayPart + ", publishing")
	return nil
}

// count takes notice of events that are published.
func (r *relay) count(events []seaweed.ObjectEvent) {
	for _, e := range events {
		r.recent.add(e.Write)
		r.metrics.published(e.Kind)
	}
	r.sum.Published += len(events)
	r.fresh = r.fresh || len(events) > 0
}

// keep saves the cursor, after a second if anything was published since, and
// otherwise after a while.
func (r *relay) keep(ctx context.Context) error {
	age := r.now().Sub(r.kept)
	if r.state == r.saved || age < relaySave || !r.fresh && age < relayLull {
		return nil
	}
	return r.save(ctx)
}

// refused takes notice that messages are published again.
func (r *relay) refused(n int, err error) {
	r.sum.Retries += n
	r.metrics.retried(n)
	r.deps.Health.Fault(relayPart+", publishing", err)
	if now := r.now(); now.Sub(r.told) > relayMost {
		r.told = now
		r.deps.Logger.Warn("notifications are not acknowledged, will publish them again", "subject", r.out.subject, "notifications", n, "err", err)
	}
}
