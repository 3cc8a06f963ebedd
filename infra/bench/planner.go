package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/planner"
)

const (
	plannerFlood = 30 * time.Second // how long flights are published
	plannerLook  = 100 * time.Millisecond
	plannerJudge = time.Second
	plannerFloor = 5 * time.Minute // by when the floor must be reached again

	// afterwards replaces the default policy once the load has stopped: its cool-down
	// of 10 minutes, and its long window of 2, are much for a benchmark.
	afterwards = "long: 30s\ncool_down: 30s\n"
)

// flooded is a topic in which the planner is watched.
type flooded struct {
	*lab
	topic  *segment.Topic
	policy planner.Policy
	eyes   *planner.Planner // looks, and does nothing

	rate    float64       // records published per second
	failed  int           // of these
	backlog time.Duration // from the end of publishing until all was committed
	drained time.Time     // when that was

	onset    time.Time
	split    time.Duration // from the onset until the first split was done
	balanced time.Duration // from the onset until it was first seen in balance
	looks    int           // since then
	lost     int           // of these found it out of balance: the load had grown
	last     state
}

// state is how the load is spread over the live segments, in levels: multiples of
// the target.
type state struct {
	live    int
	widest  float64 // the highest of a segment that can be divided
	spread  float64 // that, as a multiple of the mean of these segments
	hottest float64 // the highest of a single slot, or 0
}

// measurePlanner publishes flights as fast as it can to a topic of one segment,
// with a planner by the default policy in a process of its own, and then waits
// until one segment is left.
func measurePlanner(ctx context.Context, l *lab) (rows []Row, err error) {
	name, err := l.topic(ctx, "planner")
	if err != nil {
		return nil, err
	}
	f := &flooded{lab: l, policy: planner.DefaultPolicy()}
	if f.topic, err = l.env.Store.Topic(ctx, name); err != nil {
		return nil, err
	}
	f.eyes = planner.New(planner.Options{
		Store: l.env.Store, Policies: planner.Policies{Default: f.policy}, Logger: slog.New(slog.DiscardHandler),
	})
	if rows, err = f.load(ctx); err != nil {
		return nil, err
	}
	back, err := f.unload(ctx)
	if err != nil {
		return nil, err
	}
	return append(rows, back...), l.trim(ctx)
}

// load floods the topic and watches until all of it is committed.
func (f *flooded) load(ctx context.Context) ([]Row, error) {
	p, err := f.env.StartPlanner()
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	// The averages are to know of the silence before.
	if err := rig.Pause(ctx, f.policy.Short); err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	loaded, over := context.WithCancel(gctx)
	defer over()
	f.onset = time.Now()
	g.Go(func() error {
		defer over()
		return f.publish(gctx)
	})
	g.Go(func() error { return f.watch(gctx, loaded) })
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return f.rows(ctx)
}

// publish publishes for a while, then waits until all is committed.
func (f *flooded) publish(ctx context.Context) error {
	span := plannerFlood
	if f.quick {
		span /= 3
	}
	flood, stop := context.WithTimeout(ctx, span)
	defer stop()
	n, err := f.flood(flood, f.topic.Name, rate.NewLimiter(rate.Inf, 1))
	var failure *client.FailedError
	if errors.As(err, &failure) {
		f.failed, err = failure.Records, nil
	}
	if err != nil {
		return err
	}
	stopped := time.Now()
	f.rate = float64(n) / stopped.Sub(f.onset).Seconds()
	err = f.lane.WaitDrained(ctx)
	f.drained = time.Now()
	f.backlog = f.drained.Sub(stopped)
	return err
}

// watch looks at the topic until the load ends.
func (f *flooded) watch(ctx, load context.Context) error {
	var judged time.Time
	for rig.Pause(load, plannerLook) == nil {
		l, err := f.topic.Layout(ctx)
		if err != nil {
			return err
		}
		if f.split == 0 && l.Epoch > 0 && !l.Pending {
			f.split = time.Since(f.onset)
		}
		if time.Since(judged) < plannerJudge {
			continue
		}
		judged = time.Now()
		if err := f.judge(ctx); err != nil {
			return err
		}
	}
	if f.split == 0 && ctx.Err() == nil {
		return fmt.Errorf("the planner did not split topic %s within %s", f.topic.Name, time.Since(f.onset))
	}
	return nil
}

// judge sees whether the topic is in balance: no segment takes in more than the
// target, but for slots that cannot be divided.
func (f *flooded) judge(ctx context.Context) error {
	r, err := f.eyes.Explain(ctx, f.topic.Name)
	if is := (*planner.PendingError)(nil); errors.As(err, &is) {
		return nil
	}
	if err != nil {
		return err
	}
	s, known := f.state(r.Situation)
	if !known {
		return nil
	}
	f.last = s
	in := f.split > 0 && s.widest <= f.policy.Burst
	if in && f.balanced == 0 {
		f.balanced = time.Since(f.onset)
	}
	if f.balanced > 0 {
		f.looks++
		if !in {
			f.lost++
		}
	}
	return nil
}

// state is the balance of a situation. Not known: some segment is too new to tell.
func (f *flooded) state(s planner.Situation) (st state, known bool) {
	st.live = len(s.Loads)
	sum, n := 0.0, 0.0
	for i, l := range s.Loads {
		if l.Observed < f.policy.Short/2 {
			return st, false
		}
		level := max(l.Short.Bytes/f.policy.TargetBytes, l.Short.Records/f.policy.TargetRecords)
		if s.Layout.Live[i].Size() == 1 {
			st.hottest = max(st.hottest, level)
			continue
		}
		st.widest = max(st.widest, level)
		sum, n = sum+level, n+1
	}
	if sum > 0 {
		st.spread = st.widest * n / sum
	}
	return st, true
}

// rows are the results under load.
func (f *flooded) rows(ctx context.Context) ([]Row, error) {
	edits, err := f.env.Edits(ctx, f.topic.Name, 0)
	if err != nil {
		return nil, err
	}
	pauses, err := f.pauses(f.topic.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case len(pauses) == 0:
		return nil, errors.New("the worker met no edit")
	case f.looks == 0:
		return nil, errors.New("the topic was never in balance")
	}
	slices.Sort(pauses)
	return []Row{
		{Name: "records", Value: f.rate, Unit: "records/s"},
		{Name: "producer-errors", Value: float64(f.failed), Unit: "records"},
		{Name: "backlog", Value: f.backlog.Seconds(), Unit: "s"},
		{Name: "first-split", Value: f.split.Seconds(), Unit: "s"},
		{Name: "balance", Value: f.balanced.Seconds(), Unit: "s"},
		{Name: "balance/lost", Value: 100 * float64(f.lost) / float64(f.looks), Unit: "% of the time"},
		{Name: "edits", Value: float64(len(edits)), Unit: "edits"},
		{Name: "live", Value: float64(f.last.live), Unit: "segments"},
		{Name: "highest", Value: f.last.widest, Unit: "targets"},
		{Name: "spread", Value: f.last.spread, Unit: "times the mean"},
		{Name: "hot-slot", Value: f.last.hottest, Unit: "targets"},
		{Name: "pause/p50", Value: percentile(pauses, 0.50), Unit: "ms"},
		{Name: "pause/p99", Value: percentile(pauses, 0.99), Unit: "ms"},
	}, nil
}

// unload waits until as few segments are left as there were.
func (f *flooded) unload(ctx context.Context) ([]Row, error) {
	before, err := f.env.Edits(ctx, f.topic.Name, 0)
	if err != nil {
		return nil, err
	}
	file, err := f.env.Policy("afterwards", afterwards)
	if err != nil {
		return nil, err
	}
	p, err := f.env.StartPlanner("--policy", file)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	wait, cancel := context.WithDeadline(ctx, f.drained.Add(plannerFloor))
	defer cancel()
	for {
		l, err := f.topic.Layout(ctx)
		if err != nil {
			return nil, err
		}
		if len(l.Live) == 1 && !l.Pending {
			break
		}
		if err := rig.Pause(wait, plannerLook); err != nil {
			return nil, fmt.Errorf("%d segments are left %s after the load: %w", len(l.Live), plannerFloor, err)
		}
	}
	floor := time.Since(f.drained)
	after, err := f.env.Edits(ctx, f.topic.Name, 0)
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "floor", Value: floor.Seconds(), Unit: "s"},
		{Name: "floor/edits", Value: float64(len(after) - len(before)), Unit: "edits"},
	}, nil
}
