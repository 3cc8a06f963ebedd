package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/internal/filer"
)

// The fixed settings of the limits.
const (
	limitMessage  = 256 << 10
	limitMessages = 1000
	limitPending  = 64      // published messages without an answer
	limitPull     = 8 << 20 // bytes that the reader asks for at a time
	limitFile     = 4 << 20
	limitFiles    = 60
	limitWriters  = 4

	warmUp = 20 // messages, and files, before the measurement: first ones make volumes and files
)

// measureLimits measures what the parts allow each by itself: publishing to
// JetStream, reading it back, and writing files. What goes through all three one
// after the other on the same machine is at most as fast as their sum of times.
func measureLimits(ctx context.Context, l *lab) ([]Row, error) {
	publish, read, err := l.jetStreamLimits(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := l.filerLimit(ctx, warmUp); err != nil {
		return nil, err
	}
	write, err := l.filerLimit(ctx, l.scale(limitFiles))
	if err != nil {
		return nil, err
	}
	l.limit = 1 / (1/publish + 1/read + 1/write)
	return []Row{
		{Name: "jetstream-publish", Value: publish, Unit: "MB/s"},
		{Name: "jetstream-read", Value: read, Unit: "MB/s"},
		{Name: "filer-write", Value: write, Unit: "MB/s"},
		{Name: "line", Value: l.limit, Unit: "MB/s"},
	}, nil
}

func (l *lab) jetStreamLimits(ctx context.Context) (publish, read float64, err error) {
	const name = "bench-limit"
	_, err = l.env.JS.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name}, Storage: jetstream.FileStorage, MaxBytes: 1 << 30, Discard: jetstream.DiscardNew,
	})
	if err != nil {
		return 0, 0, fmt.Errorf("make a stream: %w", err)
	}
	defer func() { err = errors.Join(err, l.env.JS.DeleteStream(context.WithoutCancel(ctx), name)) }()
	if _, err = l.publishLimit(ctx, name, warmUp); err != nil {
		return 0, 0, err
	}
	if err := l.purge(ctx, name); err != nil {
		return 0, 0, err
	}
	n := l.scale(limitMessages)
	if publish, err = l.publishLimit(ctx, name, n); err != nil {
		return 0, 0, err
	}
	read, err = l.readLimit(ctx, name, n)
	return publish, read, err
}

func (l *lab) purge(ctx context.Context, stream string) error {
	s, err := l.env.JS.Stream(ctx, stream)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", stream, err)
	}
	return s.Purge(ctx)
}

func (l *lab) publishLimit(ctx context.Context, subject string, n int) (float64, error) {
	js, err := jetstream.New(l.env.NATS, jetstream.WithPublishAsyncMaxPending(limitPending))
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	acks := make([]jetstream.PubAckFuture, n)
	for i := range acks {
		at := i * limitMessage % noiseSize
		if acks[i], err = js.PublishAsync(subject, l.noise[at:at+limitMessage], jetstream.WithStallWait(time.Minute)); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	took := time.Since(begin)
	for _, a := range acks {
		select {
		case <-a.Ok():
		case err := <-a.Err():
			return 0, fmt.Errorf("publish: %w", err)
		}
	}
	return megabytes(n*limitMessage, took), nil
}

func (l *lab) readLimit(ctx context.Context, stream string, n int) (float64, error) {
	begin := time.Now()
	c, err := l.env.JS.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	messages, err := c.Messages(jetstream.PullMaxBytes(limitPull))
	if err != nil {
		return 0, fmt.Errorf("read: %w", err)
	}
	defer messages.Stop()
	for range n {
		if _, err := messages.Next(jetstream.NextContext(ctx)); err != nil {
			return 0, fmt.Errorf("read: %w", err)
		}
	}
	return megabytes(n*limitMessage, time.Since(begin)), nil
}

func (l *lab) filerLimit(ctx context.Context, files int) (float64, error) {
	dir := fmt.Sprintf("%s/bench/%d", l.env.Store.Root(), l.run)
	store := l.env.Filer()
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range limitWriters {
		g.Go(func() error {
			for i := int(next.Add(1)); i <= files; i = int(next.Add(1)) {
				at := i * limitFile % noiseSize
				path := fmt.Sprintf("%s/%04d", dir, i)
				blob, err := store.Upload(gctx, path, l.noise[at:at+limitFile])
				if err != nil {
					return err
				}
				if err := store.Create(gctx, path, filer.File{ID: filer.NewID(), Blobs: []filer.Blob{blob}}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	took := time.Since(begin)
	return megabytes(files*limitFile, took), store.DeleteTree(ctx, dir)
}
