package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/parquet"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	fewSegments  = 10
	manySegments = 1000
	commitsTimed = 11 // of one segment each; the median counts
)

// commits is a table that segments of one record each are committed to.
type commits struct {
	*lab
	of    table.Topic
	table *table.Table
	done  map[topic.SegmentID]bool // as a segment's own table.json would say
}

// measureCommits measures what it takes to commit a segment to a table that has few, and
// to one that has many.
func measureCommits(ctx context.Context, l *lab) (rows []Row, err error) {
	info := l.env.Stack.Info
	catalog, err := table.Connect(ctx, table.Settings{
		URL: info.Catalog.URL, Warehouse: info.Catalog.Warehouse, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey,
	})
	if err != nil {
		return nil, err
	}
	tables := table.New(table.Options{Catalog: catalog, Store: l.env.Filer(), Warehouse: info.Catalog.Warehouse, Bucket: info.Bucket})
	c := &commits{lab: l, of: table.Topic{Name: fmt.Sprintf("bench-commits-%d", l.run), Incarnation: filer.Token(8)}, done: map[topic.SegmentID]bool{}}
	if c.table, err = tables.Open(ctx, c.of); err != nil {
		return nil, err
	}
	for _, n := range []int{fewSegments, l.scale(manySegments)} {
		if err := c.grow(ctx, n); err != nil {
			return nil, err
		}
		var took []float64
		for range commitsTimed {
			d, err := c.commit(ctx, 1)
			if err != nil {
				return nil, err
			}
			took = append(took, milliseconds(d))
		}
		slices.Sort(took)
		rows = append(rows, Row{Name: fmt.Sprintf("at-%d-segments", n), Value: took[commitsTimed/2], Unit: "ms"})
	}
	have, err := c.table.SegmentsIn(ctx)
	if err == nil && len(have) != len(c.done) {
		err = fmt.Errorf("the table has %d segments of %d", len(have), len(c.done))
	}
	return rows, err
}

// grow commits until the table has so many segments.
func (c *commits) grow(ctx context.Context, to int) error {
	for len(c.done) < to {
		if _, err := c.commit(ctx, min(to-len(c.done), table.MaxAdditions)); err != nil {
			return err
		}
	}
	return nil
}

// commit makes segments and commits them at once. It tells how long the commit took.
func (c *commits) commit(ctx context.Context, n int) (took time.Duration, err error) {
	var adds []table.Addition
	for i := range n {
		id := topic.NewSegmentID(uint64(len(c.done)+i), 0, c.of.Incarnation)
		url, err := c.file(ctx, id)
		if err != nil {
			return 0, err
		}
		adds = append(adds, table.Addition{Segment: id, Files: []string{url}, Rows: 1})
	}
	recorded := func(_ context.Context, id topic.SegmentID) (bool, error) { return c.done[id], nil }
	begin := time.Now()
	done, err := c.table.Commit(ctx, adds, recorded)
	took = time.Since(begin)
	if err == nil && len(done.Added) != n {
		err = fmt.Errorf("%d segments of %d were added", len(done.Added), n)
	}
	for _, a := range adds {
		c.done[a.Segment] = true
	}
	return took, err
}

// file makes the data file of a segment.
func (c *commits) file(ctx context.Context, id topic.SegmentID) (url string, err error) {
	dir := path.Join("/buckets", c.env.Stack.Info.Bucket, "topics", c.of.Name, c.of.Incarnation, "data", string(id))
	out := filer.NewFileWriter(ctx, c.env.Filer(), dir)
	defer out.Abort() // of no effect once it is finished
	w, err := parquet.NewWriter(out, parquet.WriterOptions{Segment: id})
	if err != nil {
		return "", err
	}
	row := parquet.Row{
		Segment: id, Source: "bench", Batch: parquet.NoBatch,
		Record: record.Record{Time: time.Now(), Position: topic.Position{Sequence: 1}, Key: []byte("key"), Value: []byte("value")},
	}
	err = w.Write(&row)
	if _, bad := w.Close(); bad != nil || err != nil {
		return "", errors.Join(err, bad)
	}
	name := path.Join(dir, segment.DataFileName(0, 0, out.Sum()))
	_, _, err = out.Finish(name, nil)
	return "s3://" + strings.TrimPrefix(name, "/buckets/"), err
}
