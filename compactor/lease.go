package compactor

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/cursor"
	"github.com/spillway-mq/spillway/internal/filer"
)

// leaseFor is after how long without a sign of life a holder is taken for gone.
const leaseFor = 30 * time.Second

// Lease says who compacts a topic: the topic's compactor.json. It is a courtesy: two at
// once are safe, and one of them works in vain.
type Lease struct {
	Holder string    `json:"holder"` // empty: nobody
	Until  time.Time `json:"until"`
}

// heldBy tells whether somebody else than the holder has the lease. One that ends later
// than any can is of a clock that is wrong.
func (l Lease) heldBy(holder string, now time.Time) bool {
	return l.Holder != "" && l.Holder != holder && now.Before(l.Until) && l.Until.Sub(now) <= 2*leaseFor
}

// lease is a topic's, as this visit has it.
type lease struct {
	*visit
	file    cursor.File[Lease]
	version cursor.Version
}

func (v *visit) leasePath() string { return path.Join(v.topic.Dir(), "compactor.json") }

// claim takes the topic's lease, if anything is to be done, and keeps it until release
// is called. ctx ends when somebody else has it then; it is nil if somebody else has it
// now. Where the lease cannot be read or written, there is none.
func (v *visit) claim(parts []*part) (ctx context.Context, release func(), err error) {
	if !v.due(parts) {
		return v.hard, func() {}, nil
	}
	l := &lease{visit: v, file: cursor.At[Lease](v.Store.Filer, v.leasePath())}
	held, err := l.take(v.hard)
	switch {
	case v.hard.Err() != nil:
		return nil, nil, v.hard.Err()
	case err != nil:
		v.Logger.Warn("the lease on a topic cannot be taken, going on without", "topic", v.topic.Name, "err", err)
		return v.hard, func() {}, nil
	case !held.IsZero():
		v.report.Held = true
		v.report.at(held)
		return nil, nil, nil
	}
	ctx, cancel := context.WithCancelCause(v.hard)
	v.beside.Go(func() error { l.keep(ctx, cancel); return nil })
	return ctx, func() {
		cancel(nil)
		_ = v.beside.Wait() // always nil
		l.release()
	}, nil
}

// due tells whether anything is to be done.
func (v *visit) due(parts []*part) bool {
	for _, p := range parts {
		if v.step(p) != Nothing || p.trimmed() {
			return true
		}
	}
	return v.all && v.table != nil
}

// take takes the lease, or says until when somebody else has it.
func (l *lease) take(ctx context.Context) (held time.Time, err error) {
	for {
		old, version, err := l.file.Load(ctx)
		now := l.Now()
		next := Lease{l.Holder, now.Add(leaseFor).UTC().Truncate(time.Millisecond)}
		switch {
		case errors.Is(err, filer.ErrNotFound):
			version, err = l.file.Create(ctx, next)
		case err == nil && old.heldBy(l.Holder, now):
			return old.Until, nil
		case err == nil:
			version, err = l.file.Save(ctx, next, version)
		}
		if err == nil {
			l.version = version
		}
		if !errors.Is(err, filer.ErrExists) && !errors.Is(err, filer.ErrConflict) {
			return time.Time{}, err
		}
	}
}

// errLeaseLost ends the work of a visit that somebody else does too by now.
var errLeaseLost = errors.New("somebody else has the lease on the topic")

// keep renews the lease until the context ends.
func (l *lease) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(leaseFor / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if held, err := l.take(ctx); err == nil && !held.IsZero() {
			l.Logger.Warn("somebody else compacts the topic, leaving it to them", "topic", l.topic.Name, "until", held)
			cancel(errLeaseLost)
			return
		}
	}
}

// release gives the lease back, so that nobody waits for its end.
func (l *lease) release() {
	if l.hard.Err() == nil {
		_, _ = l.file.Save(l.hard, Lease{}, l.version) // else it ends by itself
	}
}
