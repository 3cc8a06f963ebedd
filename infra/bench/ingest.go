package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
)

const (
	ingestBytes  = 200_000_000 // of values, in one measurement
	latencyRate  = 1000        // records/s
	latencyCount = 10_000
)

// throughput measures records of about a size from the client until the
// checkpoint covers all of them. Random bytes are compared with the limit;
// flights, which compress well, may be faster than it.
func throughput(size int, flights bool) func(context.Context, *lab) ([]Row, error) {
	return func(ctx context.Context, l *lab) ([]Row, error) {
		kind, values := "random", l.random(size)
		if flights {
			kind, values = "flights", l.joined(size)
		}
		topic, err := l.topic(ctx, fmt.Sprintf("ingest-%d-%s", size, kind))
		if err != nil {
			return nil, err
		}
		records, bytes, took, err := l.ingest(ctx, topic, values)
		if err != nil {
			return nil, err
		}
		mb := Row{Value: megabytes(bytes, took), Unit: "MB/s"}
		if !flights {
			mb = limited("", mb.Value, mb.Unit, l.limit)
		}
		return []Row{mb, {Name: "records", Value: float64(records) / took.Seconds(), Unit: "records/s"}}, l.trim(ctx)
	}
}

// ingest publishes values in turn and returns when all are stored.
func (l *lab) ingest(ctx context.Context, topic string, value func(int) []byte) (records, bytes int, took time.Duration, err error) {
	p, err := client.Connect(l.env.Stack.Info.NATS, client.Options{})
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	begin := time.Now()
	for bytes < l.scale(ingestBytes) {
		r := client.Record{Key: []byte(l.flights[records%len(l.flights)].Key), Value: value(records)}
		if _, err := p.Publish(ctx, topic, r); err != nil {
			return 0, 0, 0, err
		}
		records++
		bytes += len(r.Value)
	}
	if err := p.Flush(ctx); err != nil {
		return 0, 0, 0, err
	}
	// The last one waits to be stored, and all before it are then too.
	receipt, err := p.PublishSync(ctx, topic, client.Record{Key: []byte("last")}, client.WithAck(client.Stored))
	if err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(begin)
	at, err := l.lane.Checkpoint(ctx)
	if err == nil && at < receipt.Sequence {
		err = fmt.Errorf("the last record is said to be stored, but the checkpoint is %d and it is message %d", at, receipt.Sequence)
	}
	return records, bytes, took, err
}

// random gives values of random bytes.
func (l *lab) random(size int) func(int) []byte {
	n := noiseSize / size
	return func(i int) []byte { at := i % n * size; return l.noise[at : at+size] }
}

// joined gives values of as many flights, in lines, as make up about a size.
func (l *lab) joined(size int) func(int) []byte {
	var values [][]byte
	var value []byte
	for _, f := range l.flights {
		value = append(append(value, f.Value...), '\n')
		if len(value)+len(f.Value) > size {
			values = append(values, value)
			value = nil
		}
	}
	return func(i int) []byte { return values[i%len(values)] }
}

// measureLatency measures from Publish until the record is stored, at a steady
// rate, counted from when the record was due: a stall delays all that follow it.
func measureLatency(ctx context.Context, l *lab) ([]Row, error) {
	topic, err := l.topic(ctx, "latency")
	if err != nil {
		return nil, err
	}
	return l.latency(ctx, topic, l.scale(latencyCount))
}

// latency measures it with n records of a topic.
func (l *lab) latency(ctx context.Context, topic string, n int) ([]Row, error) {
	p, err := client.Connect(l.env.Stack.Info.NATS, client.Options{Ack: client.Stored})
	if err != nil {
		return nil, err
	}
	if _, err := p.PublishSync(ctx, topic, client.Record{Value: []byte("warm up")}); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	took, err := l.steady(ctx, p, topic, n)
	if err := errors.Join(err, p.Close(ctx)); err != nil {
		return nil, err
	}
	slices.Sort(took)
	return []Row{
		{Name: "p50", Value: percentile(took, 0.50), Unit: "ms"},
		{Name: "p99", Value: percentile(took, 0.99), Unit: "ms"},
		{Name: "max", Value: percentile(took, 1), Unit: "ms"},
	}, l.trim(ctx)
}

// steady publishes n records at [latencyRate] and gives the milliseconds that
// each took.
func (l *lab) steady(ctx context.Context, p *client.Producer, topic string, n int) ([]float64, error) {
	took := make([]float64, n)
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for i := range n {
		due := begin.Add(time.Duration(i) * time.Second / latencyRate)
		if wait := time.Until(due); wait > 0 && rig.Pause(gctx, wait) != nil {
			break // a record has failed, which g.Wait tells, or ctx has ended
		}
		f := l.flights[i%len(l.flights)]
		pending, err := p.Publish(gctx, topic, client.Record{Key: []byte(f.Key), Value: f.Value})
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		g.Go(func() error {
			_, err := pending.Wait(gctx)
			took[i] = float64(time.Since(due)) / float64(time.Millisecond)
			return err
		})
	}
	return took, errors.Join(g.Wait(), context.Cause(ctx))
}

// percentile of sorted values: the smallest that at least this part does not exceed.
func percentile(sorted []float64, part float64) float64 {
	i := int(math.Ceil(part*float64(len(sorted)))) - 1
	return sorted[max(i, 0)]
}
