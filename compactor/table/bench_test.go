package table_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/topic"
)

// filling is a table that segments are committed to, one after the other.
type filling struct {
	store  *seaweed.Client
	data   []byte
	table  *table.Table
	topic  table.Topic
	before []topic.SegmentID // of the commit before
	n      int
}

func fill(b *testing.B, name string, segments, each int) *filling {
	b.Helper()
	data, err := tabletest.DataFile(tabletest.SegmentID(0), 0, 1)
	if err != nil {
		b.Fatal(err)
	}
	f := &filling{store: dial(b), data: data, topic: table.Topic{Name: name, Incarnation: "life"}}
	tables := table.New(table.Options{Catalog: connect(b), Store: f.store, Bucket: devtest.Weed(b).Info.Bucket, Namespace: "bench"})
	if f.table, err = tables.Open(b.Context(), f.topic); err != nil {
		b.Fatal(err)
	}
	for f.n < segments {
		f.commit(b, each)
	}
	return f
}

// commit commits so many segments, with the records of those before there.
func (f *filling) commit(b *testing.B, segments int) time.Duration {
	b.Helper()
	var adds []table.Addition
	var now []topic.SegmentID
	for range segments {
		f.n++
		a := cheap(b, f.store, f.data, f.topic, tabletest.SegmentID(f.n))
		adds, now = append(adds, a), append(now, a.Segment)
	}
	start := time.Now()
	_, err := f.table.Commit(b.Context(), adds, func(_ context.Context, id topic.SegmentID) (bool, error) {
		return slices.Contains(f.before, id), nil
	})
	if err != nil {
		b.Fatal(err)
	}
	f.before = now
	return time.Since(start)
}

// BenchmarkCommit measures commits of one segment on SeaweedFS: to a table with 10
// segments and, in turns, to one with 1,000, whose history is as long as it gets.
func BenchmarkCommit(b *testing.B) {
	small, large := fill(b, "small", 10, 1), fill(b, "large", 1000, 8)
	var times [2][]time.Duration
	for b.Loop() {
		times[0] = append(times[0], small.commit(b, 1))
		times[1] = append(times[1], large.commit(b, 1))
	}
	for i, name := range []string{"at-10", "at-1000"} {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2].Microseconds())/1000, name+"-median-ms")
		b.ReportMetric(float64(times[i][len(times[i])*9/10].Microseconds())/1000, name+"-p90-ms")
	}
}
