package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Times of a Monitor. Messages may wait for their flush for as long as a
// topic's flush age allows, so only after more than that is a checkpoint stuck.
const (
	lookEvery = 5 * time.Second
	lookLimit = 5 * time.Second
	stuck     = topic.MaxFlushAge + patience
)

// Monitor looks at a lane and its checkpoint from outside of the worker, so that
// the gauges and the health of an idle, waiting or stuck worker are true too.
type Monitor struct {
	Lane    Lane
	ID      lane.ID
	Store   *segment.Store
	Metrics *Metrics
	Health  *Health // may be nil

	checkpoint uint64
	moved      time.Time // when the checkpoint was last seen to move, or nothing to wait
}

// Run looks at once, then every 5 s until ctx ends.
func (m *Monitor) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for m.moved = time.Now(); ; {
		m.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (m *Monitor) look(ctx context.Context) {
	state, err := within(ctx, m.Lane.State)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.Health.Fault(m.part(), fmt.Errorf("NATS does not tell its state: %w", err))
		return
	}
	m.Health.OK(m.part())
	c, err := within(ctx, func(ctx context.Context) (c segment.Checkpoint, err error) {
		c, _, err = m.Store.CheckpointFile(m.ID.Source(state.Incarnation)).Load(ctx)
		return c, err
	})
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		m.Health.Fault("filer", err)
		return
	}
	m.Health.OK("filer")
	m.Metrics.lane(state, c.Sequence)
	m.progress(state, c.Sequence)
}

// progress tells a checkpoint that stands although messages wait.
func (m *Monitor) progress(state State, checkpoint uint64) {
	now := time.Now()
	if checkpoint != m.checkpoint || state.Last <= checkpoint {
		m.checkpoint, m.moved = checkpoint, now
		m.Health.OK(m.part() + " checkpoint")
	}
	if state.Last <= checkpoint {
		m.Health.OK(m.Metrics.part) // whatever failed, nothing is left to do
	}
	if stands := now.Sub(m.moved); stands > stuck {
		m.Health.Fault(m.part()+" checkpoint", fmt.Errorf("%d messages wait, and it has stood at %d for %s",
			state.Last-checkpoint, checkpoint, stands.Round(time.Second)))
	}
}

func (m *Monitor) part() string { return "lane " + m.ID.String() }

// within bounds one look.
func within[T any](ctx context.Context, call func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	return call(ctx)
}
