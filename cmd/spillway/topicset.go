package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// setOptions of one call. given tells which flags there were.
type setOptions struct {
	lanes                 string
	wait                  time.Duration
	only, allow, disallow []string
	endpoint              string
	removals              bool
	given                 func(flag string) bool
}

// settable are the flags that change something.
var settable = []string{"allow", "disallow", "allow-only", "endpoint", "record-removals", "lanes"}

func (a *app) topicSet() *cobra.Command {
	var o setOptions
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Change a topic's settings", Args: usage(cobra.ExactArgs(1)),
		Long: `Changes what is given and leaves the rest. Calls at the same time all count.

` + aboutAllow + `
--disallow takes a bucket off the list, and all of its prefixes, --allow-only makes
a new list; all three may be given. Workers follow within 10 s, and read what is
new before they reject anything. What was committed before stays as it was.

--lanes moves the topic to another lane group, while records flow. The order of
each key holds: producers finish what they have in the old lanes first, and workers
take nothing in from the new lanes before what came before it is committed. A
worker must run for both groups until then. It returns when all that the old lanes
held is committed, or after --wait with exit code 75; the move goes on then, and
calling it again waits again. Programs that publish to NATS subjects by themselves
are to change the subject after it has returned, from spillway.in.NAME to
spillway.lane.GROUP.N.NAME.`,
		Example: "  spillway topic set images --allow photos/2026/ --disallow photos/2025/\n" +
			"  spillway topic set images --allow-only payloads --endpoint http://s3:8333\n" +
			"  spillway topic set orders --lanes big\n  spillway topic set orders --lanes default --wait 10m",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.given = cmd.Flags().Changed
			if err := o.check(args[0]); err != nil {
				return &functions.UsageError{Err: err}
			}
			return a.set(cmd, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.allow, "allow", nil, "bucket or bucket/prefix that records may refer to; may be repeated")
	f.StringArrayVar(&o.disallow, "disallow", nil, "bucket or bucket/prefix that records may refer to no longer; may be repeated")
	f.StringArrayVar(&o.only, "allow-only", nil, `the same as --allow, and no other; may be repeated; "" is none`)
	referenceFlags(f, &o.endpoint, &o.removals)
	f.StringVar(&o.lanes, "lanes", "", "lane group")
	f.DurationVar(&o.wait, "wait", time.Minute, "with --lanes: how long to wait until the old lanes are drained")
	return cmd
}

// check tells all that is wrong, and brings what is right into the form in which
// it is kept.
func (o *setOptions) check(name string) error {
	if !slices.ContainsFunc(settable, o.given) {
		return fmt.Errorf("nothing is to be changed; give some of --%s", strings.Join(settable, ", --"))
	}
	errs := []error{topic.CheckName(name)}
	if o.given("lanes") {
		errs = append(errs, topic.CheckGroup(o.lanes))
	} else if o.given("wait") {
		errs = append(errs, errors.New("--wait is for --lanes"))
	}
	if o.wait <= 0 {
		errs = append(errs, errors.New("--wait is a positive time"))
	}
	for flag, list := range map[string]*[]string{"--allow": &o.allow, "--disallow": &o.disallow, "--allow-only": &o.only} {
		var err error
		if *list, err = parseAllow(flag, *list); err != nil {
			errs = append(errs, err)
		}
	}
	var err error
	o.endpoint, err = topic.ParseEndpoint(o.endpoint)
	return errors.Join(append(errs, err)...)
}

// change makes the changes, but for that of lanes.
func (o *setOptions) change(d *topic.Definition) error {
	if o.given("allow-only") {
		d.AllowOnly(o.only...)
	}
	for _, entry := range o.disallow {
		if err := d.Disallow(entry); err != nil {
			return err
		}
	}
	for _, entry := range o.allow {
		d.Allow(entry)
	}
	if o.given("endpoint") {
		d.Endpoint = o.endpoint
	}
	if o.given("record-removals") {
		d.RecordRemovals = o.removals
	}
	return nil
}

// changed is what a call has made of a topic.
type changed struct {
	topic.Definition
	Move *ingest.Move `json:"move,omitempty"`
}

// set changes settings, then lanes. NATS is needed only for lanes.
func (a *app) set(cmd *cobra.Command, name string, o setOptions) error {
	if !o.given("lanes") {
		store, done, err := a.filer(cmd.Context())
		if err != nil {
			return err
		}
		defer done()
		d, err := changeTopic(cmd.Context(), store, name, o)
		if err != nil {
			return err
		}
		return a.showChange(changed{Definition: d})
	}
	return a.laneCommand(cmd, func(ctx context.Context, e *env) error { return a.setLanes(ctx, e, name, o) })
}

// setLanes moves a topic, after its other settings are changed.
func (a *app) setLanes(ctx context.Context, e *env, name string, o setOptions) error {
	start := time.Now()
	var c *changed
	if slices.ContainsFunc(settable, func(flag string) bool { return flag != "lanes" && o.given(flag) }) {
		d, err := changeTopic(ctx, e.store, name, o)
		if err != nil {
			return err
		}
		c = &changed{Definition: d}
	}
	m, err := a.moveTopic(ctx, e, name, o)
	switch {
	case err != nil && c != nil:
		return fmt.Errorf("the other settings are changed, but: %w", explainLanes(err))
	case err != nil:
		return err
	case c == nil && a.cfg.JSON:
		return a.json(m)
	case c == nil:
		return a.showMove(m, time.Since(start))
	}
	c.Lanes, c.Move = m.To, &m
	if err := a.showChange(*c); err != nil || a.cfg.JSON {
		return err
	}
	return a.showMove(m, time.Since(start))
}

// changeTopic changes a definition. A list that cannot be is the caller's fault.
func changeTopic(ctx context.Context, store *segment.Store, name string, o setOptions) (topic.Definition, error) {
	_, d, err := store.ChangeTopic(ctx, name, o.change)
	if is[*topic.BucketError](err) || is[*segment.InvalidError](err) {
		err = &functions.UsageError{Err: err}
	}
	return d, err
}

func (a *app) showChange(c changed) error {
	if a.cfg.JSON {
		return a.json(c)
	}
	return a.printf("topic %s: references\n  %s\n", c.Name, strings.Join(referenceLines(c.Definition), "\n  "))
}

// moveTopic moves a topic and waits until it has moved.
func (a *app) moveTopic(ctx context.Context, e *env, name string, o setOptions) (ingest.Move, error) {
	start := time.Now()
	m, err := ingest.MoveTopic(ctx, e.nc, e.store, name, o.lanes)
	if err != nil {
		return m, err
	}
	limited, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	said := false
	return m, m.Wait(limited, e.js, e.store, func(left uint64) {
		if !said && time.Since(start) > time.Second {
			said = true
			a.note("producers are told; waiting for %d messages in the old lanes", left)
		}
	})
}

func (a *app) showMove(m ingest.Move, took time.Duration) error {
	if len(m.From) == 0 {
		return a.printf("topic %s is bound to %s already\n", m.Topic, m.To)
	}
	return a.printf("topic %s is bound to %s, was to %s; what the old lanes held is committed (%.1f s)\n",
		m.Topic, m.To, strings.Join(m.From, " and "), took.Seconds())
}

// lanesFlag is how a topic is bound when it is created.
func lanesFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVar(to, "lanes", lane.Default, fmt.Sprintf("lane group; all but %q are made with lanes create", lane.Default))
}
