package planner

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/segment"
)

// Times of a resident planner. A topic of which nothing is to be expected soon is
// looked at every quiet periods; a worker's nudge does not wait for that. Topics
// without a mark are looked at every FullSweep, beside the others, a few at a time:
// should a mark have been lost, its topic waits no longer.
const (
	DefaultPeriod = 5 * time.Second
	quiet         = 6
	FullSweep     = time.Hour

	fullParallel = 2
	fullAgain    = time.Minute // after one that failed
)

// Run sweeps until stop ends, which is no error; ctx ends what is under way at
// once. Faults are told, and tried again in the next period; tell may be nil.
func (p *Planner) Run(ctx, stop context.Context, period time.Duration, tell func(Summary, error)) {
	var g errgroup.Group
	g.Go(func() error {
		every(stop, func() time.Duration {
			sum, err := p.round(ctx, stop, period)
			p.warn(ctx, sum, err)
			if tell != nil {
				tell(sum, err)
			}
			return period
		})
		return nil
	})
	g.Go(func() error {
		every(stop, func() time.Duration {
			sum, err := p.full(ctx, stop)
			p.warn(ctx, sum, err)
			if err != nil {
				return fullAgain
			}
			return FullSweep
		})
		return nil
	})
	_ = g.Wait() // always nil
}

// every does something at once, and then each time that so long has passed since it
// was begun, until stop ends.
func every(stop context.Context, do func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop.Done():
			return
		case <-timer.C:
		}
		if stop.Err() != nil {
			return
		}
		start := time.Now()
		timer.Reset(time.Until(start.Add(do())))
	}
}

func (p *Planner) warn(ctx context.Context, sum Summary, err error) {
	if err != nil && ctx.Err() == nil {
		p.Logger.Warn("planner sweep failed, will try again", "failed", sum.Failed, "err", err)
	}
	if err == nil && sum.Blind > 0 {
		p.Logger.Warn("lanes do not tell how far behind they are; nothing is merged", "topics", sum.Blind, "err", sum.Fault)
	}
}

// round is one sweep over the topics that are due.
func (p *Planner) round(ctx, stop context.Context, period time.Duration) (Summary, error) {
	start := time.Now()
	marks, err := p.marks(ctx)
	if err != nil {
		return Summary{}, err
	}
	var due []segment.ActiveMark
	for _, m := range marks {
		if p.due(m.Topic, period) {
			due = append(due, m)
		}
	}
	hottest := 0.0
	sum, err := p.each(ctx, stop, due, sweep{sweepParallel, func(r Report) {
		for _, d := range r.Decisions {
			hottest = max(hottest, d.Level)
		}
	}})
	p.Metrics.swept(len(marks), hottest, time.Since(start))
	return sum, err
}

// full is one sweep over the topics that have no mark.
func (p *Planner) full(ctx, stop context.Context) (Summary, error) {
	marks, err := p.marks(ctx)
	if err != nil {
		return Summary{}, err
	}
	others, err := p.unmarked(ctx, marks)
	if err != nil {
		return Summary{}, err
	}
	return p.each(ctx, stop, others, sweep{parallel: fullParallel})
}

// due tells whether a topic's time has come.
func (p *Planner) due(name string, period time.Duration) bool {
	p.mu.Lock()
	s := p.topics[name]
	p.mu.Unlock()
	if s == nil {
		return true
	}
	if !s.TryLock() {
		return false // somebody is at it
	}
	defer s.Unlock()
	wait := period
	if !s.lively {
		wait *= quiet
	}
	return p.Now().Sub(s.looked) >= wait-period/2
}
