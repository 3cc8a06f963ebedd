package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	wideSegments = 500
	wideBytes    = 50_000_000
	manyTopics   = 1000
	perTopic     = 20
)

// measureWide ingests into one topic of many live segments, then lists, verifies
// and reads it.
func measureWide(ctx context.Context, l *lab) ([]Row, error) {
	name := fmt.Sprintf("wide-%d", l.run)
	def := topic.Definition{Name: name, Key: topic.KeyNone, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: "default"}
	if _, err := l.env.Store.CreateTopic(ctx, def, wideSegments, time.Now()); err != nil {
		return nil, err
	}
	p, err := client.Connect(l.env.Stack.Info.NATS, client.Options{})
	if err != nil {
		return nil, err
	}
	value := l.random(1024)
	begin := time.Now()
	bytes := 0
	for i := 0; bytes < l.scale(wideBytes); i++ {
		r := client.Record{Value: value(i)}
		if _, err := p.Publish(ctx, name, r); err != nil {
			return nil, errors.Join(err, p.Close(ctx))
		}
		bytes += len(r.Value)
	}
	if err := p.Close(ctx); err != nil {
		return nil, err
	}
	if err := l.lane.WaitDrained(ctx); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	creates, err := l.chunks(ctx, name)
	if err != nil {
		return nil, err
	}
	rows := []Row{
		{Name: "ingest", Value: megabytes(bytes, took), Unit: "MB/s"},
		budget(creates, wideSegments, took),
	}
	for _, args := range [][]string{{"segments", name, "--json"}, {"verify", name, "--json"}, {"read", name, "--output", "raw"}} {
		begin := time.Now()
		if _, err := l.env.CLI(ctx, args...); err != nil {
			return nil, err
		}
		rows = append(rows, Row{Name: args[0], Value: time.Since(begin).Seconds(), Unit: "s"})
	}
	return rows, l.trim(ctx)
}

// commitsPerSecond is the budget of a worker (rule 30).
const commitsPerSecond = 200

// budget compares the creates of a worker with what it may ask of the filer. The
// first flush waits for nothing; those after it do.
func budget(creates, first int, took time.Duration) Row {
	return limited("creates", float64(creates-first)/took.Seconds(), "creates/s", commitsPerSecond)
}

// chunks counts the chunks of a topic.
func (l *lab) chunks(ctx context.Context, name string) (n int, err error) {
	t, err := l.env.Store.Topic(ctx, name)
	if err != nil {
		return 0, err
	}
	segments, err := t.Segments(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range segments {
		tail, err := s.Tail(ctx)
		if err != nil {
			return 0, err
		}
		n += int(tail.Entry.Next())
	}
	return n, nil
}

// measureMany ingests a few records of each of many topics through one lane.
func measureMany(ctx context.Context, l *lab) ([]Row, error) {
	n := l.scale(manyTopics)
	name := func(i int) string { return fmt.Sprintf("many-%d-%04d", l.run, i) }
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	begin := time.Now()
	for i := range n {
		g.Go(func() error {
			def := topic.Definition{Name: name(i), Key: topic.KeyHeader, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: "default"}
			_, err := l.env.Store.CreateTopic(gctx, def, 1, time.Now())
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	created := time.Since(begin)
	begin = time.Now()
	for range perTopic {
		for i := range n {
			f := l.flights[i%len(l.flights)]
			if _, err := l.env.JS.PublishAsync("spillway.in."+name(i), f.Value); err != nil {
				return nil, err
			}
		}
	}
	select {
	case <-l.env.JS.PublishAsyncComplete():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := l.lane.WaitDrained(ctx); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	creates := 0
	for i := range n {
		c, err := l.chunks(ctx, name(i))
		if err != nil {
			return nil, err
		}
		creates += c
	}
	return []Row{
		{Name: "create", Value: float64(n) / created.Seconds(), Unit: "topics/s"},
		{Name: "ingest", Value: float64(n*perTopic) / took.Seconds(), Unit: "records/s"},
		budget(creates, n, took),
	}, l.trim(ctx)
}
