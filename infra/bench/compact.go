package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/infra/rig"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const gib = 1 << 30

// measureCompact measures the compaction of all flights, in a process of its own and to
// its end: files, manifests, table, and the chunks' deletion. The bare arrow-go writer
// beside it writes the same rows from memory to nowhere.
func measureCompact(ctx context.Context, l *lab) ([]Row, error) {
	b, err := l.openBulk(ctx)
	if err != nil {
		return nil, err
	}
	t, err := b.sealed(ctx)
	if err != nil {
		return nil, err
	}
	limit, err := b.bareWriter(ctx, t)
	if err != nil {
		return nil, err
	}
	took, peak, err := b.compacted(ctx, t)
	if err != nil {
		return nil, err
	}
	files, err := b.dataFiles(ctx, t)
	if err != nil {
		return nil, err
	}
	n, size := float64(b.parquet.Rows()), int(b.parquet.Bytes())
	rows := []Row{
		limited("records", n/took.Seconds(), "rows/s", n/limit.Seconds()),
		limited("", megabytes(size, took), "MB/s", megabytes(size, limit)),
		{Name: "files", Value: float64(len(files.urls)) / (float64(size) / gib), Unit: "per GiB"},
		{Name: "size", Value: 100 * float64(files.bytes) / float64(size), Unit: "% of values"},
	}
	if peak > 0 {
		rows = append(rows, Row{Name: "peak-memory", Value: float64(peak) / 1e6, Unit: "MB"})
	}
	queries, err := b.tableQueries(ctx, files)
	return append(rows, queries...), err
}

// sealed makes a topic of all flights, with nothing live.
func (b *bulk) sealed(ctx context.Context) (*segment.Topic, error) {
	t, err := b.bulkTopic(ctx, "compact")
	if err != nil {
		return nil, err
	}
	j, err := b.job(ctx, t, b.parquet, backfill.Limits{})
	if err != nil {
		return nil, err
	}
	d := functions.Deps{
		Store: b.env.Store, Logger: slog.New(slog.DiscardHandler), Judge: functions.NewJudge(b.store, b.env.Stack.Info.S3.URL, b.env.Filer()),
	}
	if _, err := functions.RunJob(ctx, d, functions.JobOptions{Topic: t.Name, ID: j.ID, PlanWait: -1}); err != nil {
		return nil, err
	}
	live, err := t.Layout(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range live.Live {
		_, err := t.Edit(ctx, time.Now(), func(l topic.Layout) (topic.Edit, error) { return l.Roll(s.ID) })
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// compacted runs `spillway compact` and tells how long it took, and how much memory it
// had at most; 0: this system does not say.
func (b *bulk) compacted(ctx context.Context, t *segment.Topic) (took time.Duration, peak int64, err error) {
	begin := time.Now()
	p, err := b.env.Start("compactor", "compact", "compact", t.Name, "--grace", "0s")
	if err != nil {
		return 0, 0, err
	}
	defer p.Kill()
	for {
		peak = max(peak, peakMemory(p))
		select {
		case <-p.Done():
			took = time.Since(begin)
			if errors.Unwrap(p.Err()) != nil {
				return 0, 0, p.Err()
			}
			return took, peak, nil
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

var peakLine = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)

// peakMemory is how much memory a process had at most so far, where /proc tells.
func peakMemory(p *rig.Process) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0
	}
	m := peakLine.FindSubmatch(data)
	if m == nil {
		return 0
	}
	kib, _ := strconv.ParseInt(string(m[1]), 10, 64) // digits
	return kib << 10
}

// dataFiles are the files of a topic.
type dataFiles struct {
	urls  []string
	bytes int64
}

// dataFiles lists what the manifests name, and checks that all rows are there and no
// chunk is.
func (b *bulk) dataFiles(ctx context.Context, t *segment.Topic) (files dataFiles, err error) {
	segments, err := t.Segments(ctx)
	if err != nil {
		return files, err
	}
	rows := uint64(0)
	for _, s := range segments {
		m, err := s.Manifest(ctx)
		if errors.Is(err, filer.ErrNotFound) {
			continue // live
		}
		if err != nil {
			return files, err
		}
		rows += m.Rows
		for _, f := range m.Files {
			files.urls, files.bytes = append(files.urls, s.DataURL(f.Name)), files.bytes+f.Size
		}
	}
	if rows != uint64(b.parquet.Rows()) {
		return files, fmt.Errorf("the manifests have %d rows of %d", rows, b.parquet.Rows())
	}
	return files, nil
}
