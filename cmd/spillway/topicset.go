package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// createTopic creates a topic. NATS is needed only where producers must be told.
func (a *app) createTopic(ctx context.Context, def topic.Definition) (*segment.Topic, error) {
	if def.Lanes != lane.Default {
		return a.createBound(ctx, def)
	}
	store, done, err := a.filer(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := selfCheck(ctx, store); err != nil {
		return nil, err
	}
	return store.CreateTopic(ctx, def, def.Roots, time.Now())
}

// createBound creates a topic that is bound to a lane group of its own. A call
// that ends between the two is finished by `topic set --lanes`.
func (a *app) createBound(ctx context.Context, def topic.Definition) (*segment.Topic, error) {
	e, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer e.close()
	if err := selfCheck(ctx, e.store); err != nil {
		return nil, err
	}
	lanes, err := lane.OpenGroup(ctx, e.js, def.Lanes)
	if err != nil {
		return nil, explainLanes(err)
	}
	t, err := e.store.CreateTopic(ctx, def, def.Roots, time.Now())
	if err != nil {
		return nil, err
	}
	return t, lane.Bind(ctx, e.js, t.Name, lane.Binding{Group: def.Lanes, Lanes: len(lanes), Topic: t.Incarnation})
}

func (a *app) topicSet() *cobra.Command {
	var lanes string
	var wait time.Duration
	cmd := &cobra.Command{
		Use: "set NAME --lanes GROUP", Short: "Change a topic's settings", Args: usage(cobra.ExactArgs(1)),
		Long: `Moves a topic to another lane group, while records flow. The order of each key
holds: producers finish what they have in the old lanes first, and workers take
nothing in from the new lanes before what came before it is committed. A worker
must run for both groups until then.

It returns when all that the old lanes held is committed, or after --wait with
exit code 75; the move goes on then, and calling it again waits again. Programs
that publish to NATS subjects by themselves are to change the subject after it has
returned, from spillway.in.NAME to spillway.lane.GROUP.N.NAME.`,
		Example: "  spillway topic set orders --lanes big\n  spillway topic set orders --lanes default --wait 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(topic.CheckName(args[0]), topic.CheckGroup(lanes)); err != nil {
				return &functions.UsageError{Err: err}
			}
			if wait <= 0 {
				return &functions.UsageError{Err: errors.New("--wait is a positive time")}
			}
			return a.laneCommand(cmd, func(ctx context.Context, e *env) error { return a.moveTopic(ctx, e, args[0], lanes, wait) })
		},
	}
	cmd.Flags().StringVar(&lanes, "lanes", "", "lane group; needed")
	cmd.Flags().DurationVar(&wait, "wait", time.Minute, "how long to wait until the old lanes are drained")
	return cmd
}

func (a *app) moveTopic(ctx context.Context, e *env, name, group string, wait time.Duration) error {
	start := time.Now()
	m, err := ingest.MoveTopic(ctx, e.nc, e.store, name, group)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	said := false
	err = m.Wait(limited, e.js, e.store, func(left uint64) {
		if !said && time.Since(start) > time.Second {
			said = true
			a.note("producers are told; waiting for %d messages in the old lanes", left)
		}
	})
	switch {
	case err != nil:
		return err
	case a.cfg.JSON:
		return a.json(m)
	case len(m.From) == 0:
		return a.printf("topic %s is bound to %s already\n", name, group)
	}
	return a.printf("topic %s is bound to %s, was to %s; what the old lanes held is committed (%.1f s)\n",
		name, group, strings.Join(m.From, " and "), time.Since(start).Seconds())
}

// lanesFlag is how a topic is bound when it is created.
func lanesFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "lanes", lane.Default, fmt.Sprintf("lane group; all but %q are made with lanes create", lane.Default))
}
