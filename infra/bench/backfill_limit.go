package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/rows"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	// flushBytes is how many bytes of records a backfill takes into a flush, at most.
	flushBytes = 8 << 20
	// preparing is how many flushes' files are encoded and uploaded at a time.
	preparing = 4
)

// filesLimit is how long it takes to read and parse the same objects with as many
// readers, and to encode and upload the same files, with nothing that makes them
// count: no commit, no checkpoint, no order between flushes.
func (b *bulk) filesLimit(ctx context.Context, name string, objects *rig.BulkObjects) (took time.Duration, err error) {
	t, err := b.bulkTopic(ctx, "limit-"+name[:4])
	if err != nil {
		return 0, err
	}
	l := &filesLimit{bulk: b, flush: flushBytes}
	if l.segments, err = t.Segments(ctx); err != nil {
		return 0, err
	}
	read, sources, err := b.sources(ctx, objects)
	if err != nil {
		return 0, err
	}
	picker, err := read.Picker()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	var g errgroup.Group
	l.prepare.SetLimit(preparing)
	for _, s := range sources {
		g.Go(func() error { return l.source(ctx, read, picker, s) })
	}
	if err := errors.Join(g.Wait(), l.prepare.Wait()); err != nil {
		return 0, err
	}
	took = time.Since(begin)
	if l.rows != objects.Rows() {
		return 0, fmt.Errorf("read %d rows of %d", l.rows, objects.Rows())
	}
	for _, d := range l.prepared {
		d()
	}
	return took, nil
}

// filesLimit is one measurement of it.
type filesLimit struct {
	*bulk
	segments []*segment.Segment
	flush    int
	prepare  errgroup.Group

	mu       sync.Mutex
	rows     int
	prepared []func() // do away with what was uploaded
}

// source reads the objects of one source.
func (l *filesLimit) source(ctx context.Context, read backfill.Read, picker *rows.Picker, s backfill.Source) error {
	f := l.fill()
	for n, o := range s.Objects {
		err := l.each(ctx, read, o, func(row rows.Row) error {
			p, err := picker.Pick(row.Value)
			if err != nil {
				return err
			}
			return f.add(ctx, record.Record{
				Time: f.now, Position: topic.Position{Sequence: uint64(n) + 1, Row: uint32(row.N)},
				Key: p.Key, EventTime: p.Time, Headers: p.Headers, Value: row.Value,
			})
		})
		if err != nil {
			return fmt.Errorf("%s: %w", o, err)
		}
	}
	f.hand(ctx)
	return nil
}

// each reads one object.
func (l *filesLimit) each(ctx context.Context, read backfill.Read, o backfill.Object, do func(rows.Row) error) (err error) {
	f := l.store.File(ctx, o.Name(), o.Size, o.ETag)
	defer func() { err = errors.Join(err, f.Close()) }()
	r, err := rows.Open(f, read.Options(o))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && row.Rejected != "" {
			err = errors.New(row.Rejected)
		}
		if err == nil {
			err = do(row)
		}
		if err != nil {
			return err
		}
	}
}

// filled is records for each segment.
type filled struct {
	*filesLimit
	now   time.Time
	sets  []*record.Set
	bytes int
	count int
}

func (l *filesLimit) fill() *filled {
	f := &filled{filesLimit: l}
	f.begin()
	return f
}

func (f *filled) begin() {
	f.now, f.bytes, f.count, f.sets = time.Now(), 0, 0, make([]*record.Set, len(f.segments))
	for i := range f.sets {
		f.sets[i] = &record.Set{}
	}
}

func (f *filled) add(ctx context.Context, r record.Record) error {
	slot := topic.SlotOf(r.Key)
	for i, s := range f.segments {
		if !s.Range.Contains(slot) {
			continue
		}
		before := len(f.sets[i].Data)
		if err := f.sets[i].Append(&r, slot); err != nil {
			return err
		}
		f.bytes += len(f.sets[i].Data) - before
		break
	}
	if f.count++; f.bytes >= f.flush {
		f.hand(ctx)
	}
	return nil
}

// hand has the files of what there is encoded and uploaded.
func (f *filled) hand(ctx context.Context) {
	sets, count := f.sets, f.count
	f.begin()
	f.prepare.Go(func() error {
		for i, set := range sets {
			if len(set.Recs) == 0 {
				continue
			}
			p, err := f.segments[i].Prepare(ctx, set)
			if err != nil {
				return err
			}
			f.mu.Lock()
			f.prepared = append(f.prepared, func() { f.segments[i].Discard(ctx, p) })
			f.mu.Unlock()
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rows += count
		return nil
	})
}

// published is how long it takes to read the same rows, and to publish them with the
// client until they are stored.
func (b *bulk) published(ctx context.Context) (took time.Duration, err error) {
	t, err := b.bulkTopic(ctx, "published")
	if err != nil {
		return 0, err
	}
	read, sources, err := b.sources(ctx, b.parquet)
	if err != nil {
		return 0, err
	}
	picker, err := read.Picker()
	if err != nil {
		return 0, err
	}
	p, err := client.Connect(b.env.Stack.Info.NATS, client.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	l := &filesLimit{bulk: b}
	begin := time.Now()
	for _, s := range sources {
		for _, o := range s.Objects {
			err := l.each(ctx, read, o, func(row rows.Row) error {
				picked, err := picker.Pick(row.Value)
				if err != nil {
					return err
				}
				_, err = p.Publish(ctx, t.Name, client.Record{Key: picked.Key, Value: row.Value})
				return err
			})
			if err != nil {
				return 0, err
			}
		}
	}
	if err := p.Flush(ctx); err != nil {
		return 0, err
	}
	// The last one waits to be stored, and all before it are then too.
	_, err = p.PublishSync(ctx, t.Name, client.Record{Key: []byte("last")}, client.WithAck(client.Stored))
	return time.Since(begin), err
}
