package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	editCount = 60
	editEvery = 250 * time.Millisecond
)

// measureEdits splits and merges a topic while it is flooded, and takes from the
// worker's log how long each edit held it up: from meeting a seal until the flush
// is committed in the children.
func measureEdits(perSecond rate.Limit) func(context.Context, *lab) ([]Row, error) {
	return func(ctx context.Context, l *lab) ([]Row, error) { return l.measureEdits(ctx, perSecond) }
}

func (l *lab) measureEdits(ctx context.Context, perSecond rate.Limit) ([]Row, error) {
	base := "edits-flood"
	if perSecond != rate.Inf {
		base = "edits-paced"
	}
	name, err := l.topic(ctx, base)
	if err != nil {
		return nil, err
	}
	flood, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		_, err := l.flood(flood, name, rate.NewLimiter(perSecond, 1000))
		done <- err
	}()
	edits, err := l.edits(ctx, name, l.scale(editCount))
	stop()
	if err := errors.Join(err, <-done); err != nil {
		return nil, err
	}
	if err := l.lane.WaitDrained(ctx); err != nil {
		return nil, err
	}
	pauses, err := l.pauses(name)
	if err != nil {
		return nil, err
	}
	if len(pauses) == 0 {
		return nil, errors.New("the worker met no edit")
	}
	slices.Sort(edits)
	return []Row{
		{Name: "pause/p50", Value: percentile(pauses, 0.50), Unit: "ms"},
		{Name: "pause/p99", Value: percentile(pauses, 0.99), Unit: "ms"},
		{Name: "pause/met", Value: float64(len(pauses)), Unit: "edits"},
		{Name: "edit/p50", Value: percentile(edits, 0.50), Unit: "ms"},
		{Name: "edit/p99", Value: percentile(edits, 0.99), Unit: "ms"},
	}, l.trim(ctx)
}

// flood publishes flights of about 100 bytes until ctx ends, as fast as it may,
// and tells how many.
func (l *lab) flood(ctx context.Context, topic string, pace *rate.Limiter) (n int, err error) {
	p, err := client.Connect(l.env.Stack.Info.NATS, client.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(context.WithoutCancel(ctx))) }()
	for ; ctx.Err() == nil && pace.Wait(ctx) == nil; n++ {
		f := l.flights[n%len(l.flights)]
		if _, err := p.Publish(ctx, topic, client.Record{Key: []byte(f.Key), Value: f.Value}); err != nil && ctx.Err() == nil {
			return n, err
		}
	}
	return n, nil
}

// edits makes n edits, between two and eight live segments, and gives the
// milliseconds that each took.
func (l *lab) edits(ctx context.Context, name string, n int) ([]float64, error) {
	t, err := l.env.Store.Topic(ctx, name)
	if err != nil {
		return nil, err
	}
	took := make([]float64, n)
	for i := range took {
		if err := rig.Pause(ctx, editEvery); err != nil {
			return nil, err
		}
		begin := time.Now()
		_, err := t.Edit(ctx, begin, func(l topic.Layout) (topic.Edit, error) {
			at := i % len(l.Live)
			if len(l.Live) < 8 && i/8%2 == 0 {
				return l.SplitWays(l.Live[at].ID, 2)
			}
			at = min(at, len(l.Live)-2)
			if at < 0 {
				return l.SplitWays(l.Live[0].ID, 2)
			}
			return l.Merge(l.Live[at].ID, l.Live[at+1].ID)
		})
		if err != nil {
			return nil, err
		}
		took[i] = float64(time.Since(begin)) / float64(time.Millisecond)
	}
	return took, nil
}

var pauseLine = regexp.MustCompile(`topic=(\S+) .*pause_ms=([0-9.]+)`)

// pauses are the milliseconds, in order, that the worker's log tells of a topic.
func (l *lab) pauses(name string) (list []float64, err error) {
	f, err := os.Open(l.worker.Log)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // read-only
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := pauseLine.FindStringSubmatch(lines.Text())
		if len(m) == 0 || m[1] != name {
			continue
		}
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", l.worker.Log, lines.Text(), err)
		}
		list = append(list, ms)
	}
	slices.Sort(list)
	return list, lines.Err()
}
