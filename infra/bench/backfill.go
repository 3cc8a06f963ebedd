package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	bulkFolder   = "bench-bulk/"
	bulkSegments = 4
	bulkParts    = 30 // objects of NDJSON
	bulkParallel = 4
	sampleLaps   = 100 // of the sample, in a quick run
)

// bulk is all flights as objects: one of Parquet, and 30 of gzip NDJSON.
type bulk struct {
	*lab
	store          *object.Store
	parquet, lines *rig.BulkObjects
}

// openBulk puts the objects, once for all runs.
func (l *lab) openBulk(ctx context.Context) (_ *bulk, err error) {
	if l.bulk != nil {
		return l.bulk, nil
	}
	b := &bulk{lab: l}
	flights, err := bulkFlights(l.quick)
	if err != nil {
		return nil, err
	}
	info := l.env.Stack.Info
	if b.store, err = object.Open(ctx, object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey}); err != nil {
		return nil, err
	}
	if b.parquet, err = flights.PutParquet(ctx, b.store, info.Bucket, bulkFolder+"parquet/"); err == nil {
		b.lines, err = flights.PutNDJSON(ctx, b.store, info.Bucket, bulkFolder+"ndjson/", bulkParts)
	}
	if err != nil {
		return nil, err
	}
	l.bulk = b
	return b, nil
}

func bulkFlights(quick bool) (*rig.Bulk, error) {
	if quick {
		return rig.SampleBulk(sampleLaps)
	}
	return rig.FullBulk()
}

// measureBackfill measures a backfill of the flights against reading the same objects
// and writing the same files, and against publishing the same rows.
func measureBackfill(ctx context.Context, l *lab) ([]Row, error) {
	b, err := l.openBulk(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, kind := range []struct {
		name    string
		objects *rig.BulkObjects
	}{{"parquet", b.parquet}, {"ndjson.gz", b.lines}} {
		limit, err := b.filesLimit(ctx, kind.name, kind.objects)
		if err != nil {
			return nil, err
		}
		took, err := b.backfilled(ctx, kind.name, kind.objects)
		if err != nil {
			return nil, err
		}
		n, size := kind.objects.Rows(), int(kind.objects.Bytes())
		rows = append(rows,
			limited(kind.name+"/records", float64(n)/took.Seconds(), "rows/s", float64(n)/limit.Seconds()),
			limited(kind.name, megabytes(size, took), "MB/s", megabytes(size, limit)))
	}
	took, err := b.published(ctx)
	if err != nil {
		return nil, err
	}
	n, size := b.parquet.Rows(), int(b.parquet.Bytes())
	return append(rows,
		Row{Name: "by-producer/records", Value: float64(n) / took.Seconds(), Unit: "rows/s"},
		Row{Name: "by-producer", Value: megabytes(size, took), Unit: "MB/s"}), l.trim(ctx)
}

// bulkTopic makes a topic of several segments, of no lane's load.
func (b *bulk) bulkTopic(ctx context.Context, base string) (*segment.Topic, error) {
	def := topic.Definition{Name: fmt.Sprintf("%s-%d", base, b.run), Key: topic.KeyHeader, FlushAge: topic.Duration(topic.DefaultFlushAge), Lanes: "default"}
	return b.env.Store.CreateTopic(ctx, def, bulkSegments, time.Now())
}

// sources divides objects as a job does.
func (b *bulk) sources(ctx context.Context, objects *rig.BulkObjects) (backfill.Read, []backfill.Source, error) {
	found, err := backfill.Prefix{Bucket: objects.Bucket, Prefix: objects.Prefix}.List(ctx, b.store)
	if err != nil {
		return backfill.Read{}, nil, err
	}
	read, err := backfill.Formats(backfill.Read{Key: rig.KeyColumn}, found.Objects, backfill.As{})
	return read, backfill.Divide(found.Objects, "", bulkParallel), err
}

// job makes a job of objects.
func (b *bulk) job(ctx context.Context, t *segment.Topic, objects *rig.BulkObjects, limits backfill.Limits) (backfill.Job, error) {
	read, sources, err := b.sources(ctx, objects)
	if err != nil {
		return backfill.Job{}, err
	}
	return backfill.Of(b.env.Store, t).Create(ctx, backfill.Job{By: "bench", Origin: objects.URL(), Read: read, Limits: limits, Sources: sources})
}

// backfilled works on a job in this process until it is done.
func (b *bulk) backfilled(ctx context.Context, name string, objects *rig.BulkObjects) (time.Duration, error) {
	t, err := b.bulkTopic(ctx, "backfill-"+name[:4])
	if err != nil {
		return 0, err
	}
	j, err := b.job(ctx, t, objects, backfill.Limits{})
	if err != nil {
		return 0, err
	}
	d := functions.Deps{
		Store: b.env.Store, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
		Judge: functions.NewJudge(b.store, b.env.Stack.Info.S3.URL, b.env.Filer()),
	}
	begin := time.Now()
	sum, err := functions.RunJob(ctx, d, functions.JobOptions{Topic: t.Name, ID: j.ID, PlanWait: -1})
	took := time.Since(begin)
	if err == nil && (sum.Rows != uint64(objects.Rows()) || sum.Bytes != objects.Bytes() || sum.Rejected > 0) {
		err = fmt.Errorf("the job took in %d rows of %d bytes, of %d of %d", sum.Rows, sum.Bytes, objects.Rows(), objects.Bytes())
	}
	return took, err
}

// measureBackfillLive measures what live records wait until they are stored: alone,
// beside a backfill that goes as fast as it can, and beside one with a rate limit.
func measureBackfillLive(ctx context.Context, l *lab) ([]Row, error) {
	b, err := l.openBulk(ctx)
	if err != nil {
		return nil, err
	}
	var rows []Row
	for _, beside := range []struct {
		name string
		rate string
	}{{"alone", ""}, {"full-speed", "0"}, {"at-5MBps", "5MB"}} {
		got, err := b.live(ctx, beside.name, beside.rate)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", beside.name, err)
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// live measures the latency of live records of a topic into which a backfill goes, in
// a process of its own, if there is a rate for it.
func (b *bulk) live(ctx context.Context, name, rate string) (rows []Row, err error) {
	t, err := b.bulkTopic(ctx, "live-"+name[:2])
	if err != nil {
		return nil, err
	}
	if rate == "" {
		return b.liveLatency(ctx, t.Name, name)
	}
	j, err := b.job(ctx, t, b.lines, backfill.Limits{})
	if err != nil {
		return nil, err
	}
	jobs := backfill.Of(b.env.Store, t)
	run, err := b.env.StartBackfill(t.Name, j.ID, "--rate-bytes", rate)
	if err != nil {
		return nil, err
	}
	defer run.Kill()
	begin, from, err := b.moving(ctx, jobs, j, run)
	if err != nil {
		return nil, err
	}
	rows, err = b.liveLatency(ctx, t.Name, name)
	if err != nil {
		return nil, err
	}
	took := time.Since(begin)
	p, err := jobs.Progress(ctx, j)
	if err == nil && p.Done() {
		err = errors.New("the backfill was done before the measurement was: that measures nothing")
	}
	return append(rows, Row{Name: name + "/backfill", Value: megabytes(int(p.Bytes-from), took), Unit: "MB/s"}), err
}

// moving waits until a run has taken rows in, and gives how many bytes by when.
func (b *bulk) moving(ctx context.Context, jobs *backfill.Jobs, j backfill.Job, run *rig.Process) (time.Time, uint64, error) {
	for {
		p, err := jobs.Progress(ctx, j)
		if err != nil || p.Rows > 0 {
			return time.Now(), p.Bytes, err
		}
		select {
		case <-run.Done():
			return time.Time{}, 0, run.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// liveLatency is [measureLatency] of a topic.
func (b *bulk) liveLatency(ctx context.Context, topic, name string) ([]Row, error) {
	rows, err := b.latency(ctx, topic, b.scale(latencyCount))
	for i := range rows {
		rows[i].Name = name + "/" + rows[i].Name
	}
	return rows, err
}
