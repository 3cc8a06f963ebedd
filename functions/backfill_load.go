package functions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/work"
)

// DefaultPlanWait is long enough for a planner that is there.
const DefaultPlanWait = 10 * time.Second

// What a source brings where nothing limits it, and a process at most, per second.
const (
	sourceBytes = 16 << 20
	sourceRows  = 50_000
	jobBytes    = 64 << 20
	jobRows     = 200_000
)

const (
	// smallJob is how long a job takes at most for which no segments are made: it
	// would be over by the time that they are there.
	smallJob    = 20 * time.Second
	renewPeriod = time.Minute
	// leastCome and mostCome bound how far ahead a load is declared. If the run is
	// killed planners expect the load until then.
	leastCome = 2 * renewPeriod
	mostCome  = 15 * time.Minute
	// packing is how many bytes of values a byte of a packed object stands for.
	packing = 5
)

// coming is the load of a job, as planners are told. All of it is for comfort: planners
// see for themselves what comes.
type coming struct {
	*job
	declared bool
}

// begin declares the load of a job that takes a while, and waits for a planner to make
// segments for it, for so long as the options say.
func (c *coming) begin(stop context.Context, p backfill.Progress) {
	load, takes := c.estimate(p)
	if takes < smallJob {
		return
	}
	before, err := c.topic.Layout(stop)
	if err != nil || !c.declare(stop, load, takes) || enough(before, load) || c.o.PlanWait < 0 || c.deps.NATS == nil {
		return
	}
	wait := c.o.PlanWait
	if wait == 0 {
		wait = DefaultPlanWait
	}
	ctx, cancel := context.WithTimeout(stop, wait)
	defer cancel()
	if err := (&nudger{d: c.deps, kind: work.Plan}).Nudge(ctx, c.Topic); err != nil {
		c.log.Info("no planner could be called for the load of a backfill", "err", err)
		return
	}
	tick := time.NewTicker(planLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if stop.Err() == nil {
				c.log.Info("no planner has split the topic for a backfill yet; it begins", "segments", len(before.Live))
			}
			return
		case <-tick.C:
		}
		if l, err := c.topic.Layout(ctx); err == nil && (l.Epoch > before.Epoch || enough(l, load)) {
			c.log.Info("a planner has made segments for a backfill", "segments", len(l.Live), "before", len(before.Live))
			return
		}
	}
}

const planLook = 250 * time.Millisecond

// enough tells whether a layout can take a load.
func enough(l topic.Layout, load segment.DeclaredLoad) bool {
	n := uint64(len(l.Live))
	return load.Bytes <= n*topic.TargetBytes && load.Records <= n*topic.TargetRecords
}

// estimate is what the job brings per second, and how long it takes.
func (c *coming) estimate(p backfill.Progress) (load segment.DeclaredLoad, takes time.Duration) {
	c.mu.Lock()
	limits := c.state.Limits
	c.mu.Unlock()
	n := uint64(len(c.Sources))
	load.Bytes, load.Records = min(n*sourceBytes, jobBytes), min(n*sourceRows, jobRows)
	rest := float64(c.values(p.Size - min(p.Read, p.Size)))
	takes = seconds(rest / float64(load.Bytes))
	if limits.Bytes > 0 && limits.Bytes < load.Bytes {
		load.Bytes = limits.Bytes
		takes = seconds(rest / float64(load.Bytes))
	}
	if limits.Rows > 0 && limits.Rows < load.Records {
		load.Bytes = max(min(load.Bytes, load.Bytes*limits.Rows/load.Records), 1)
		load.Records = limits.Rows
		takes = max(takes, seconds(rest/float64(load.Bytes)))
	}
	return load, takes
}

// values is about how many bytes of values are in bytes of the job's objects.
func (c *coming) values(bytes uint64) uint64 {
	if c.Read.Compression != rows.None || c.Read.Format == rows.Parquet {
		return bytes * packing
	}
	return bytes
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 1e9) * float64(time.Second)) }

// declare tells planners of the load. It does not keep the job from its work.
func (c *coming) declare(ctx context.Context, load segment.DeclaredLoad, takes time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	load.ID, load.From = c.loadID(), c.now().UTC().Truncate(time.Second)
	load.Until = load.From.Add(max(leastCome, min(takes, mostCome)))
	load.Reason = fmt.Sprintf("backfill job %s", c.ID)
	if err := c.topic.Declare(ctx, load); err != nil {
		c.log.Warn("the load of a backfill could not be declared", "err", err)
		return false
	}
	c.declared = true
	return true
}

func (c *coming) loadID() string { return "backfill-" + c.ID }

// renew declares the load again and again, until ctx ends.
func (c *coming) renew(ctx context.Context) {
	if !c.declared {
		return
	}
	tick := time.NewTicker(renewPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			load, takes := c.estimate(c.progress())
			c.declare(ctx, load, takes)
		}
	}
}

// end takes the load back.
func (c *coming) end(ctx context.Context) {
	if !c.declared {
		return
	}
	if err := c.topic.Withdraw(ctx, c.loadID()); err != nil && !errors.Is(err, filer.ErrNotFound) {
		c.log.Warn("the declared load of a backfill could not be taken back; it ends by itself", "err", err)
	}
}
