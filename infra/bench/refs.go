package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/object"
)

const (
	kib, mib = 1 << 10, 1 << 20

	fewObjects     = 4      // that many references share
	fewTurns       = 3      // in which a size is measured
	fewRefs        = 20_000 // to them, of a size in a turn
	distinctRefs   = 4000   // to as many objects
	bulkRefs       = 160    // to 64 MiB each: 10 GiB
	bulkMost       = 1 << 20
	uploaders      = 8
	largeUploaders = 2
	looks          = 64 // at objects at a time
	inlineCapacity = client.MaxValue
	uploadStall    = 2 * time.Minute // weed writes to the disk now and then, and nothing else
)

// refSizes are the sizes of objects that references are measured with.
var refSizes = []struct {
	name  string
	bytes int
}{{"1KiB", kib}, {"1MiB", mib}, {"64MiB", 64 * mib}}

// measureRefs measures references: what they cost from Submit until they are
// stored, by the size of their objects, beside the same bytes published inline.
// They are submitted Unchecked, by a producer that knows what it has uploaded; the
// worker looks at the objects.
func measureRefs(ctx context.Context, l *lab) ([]Row, error) {
	s3 := l.env.Stack.Info.S3
	store, err := object.Open(ctx, object.Config{Endpoint: s3.URL, AccessKey: s3.AccessKey, SecretKey: s3.SecretKey, Timeout: uploadStall})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	r := &references{lab: l, store: store}
	var rows []Row
	for _, part := range []func(context.Context) ([]Row, error){r.few, r.distinct, r.bulk, r.inline} {
		got, err := part(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	return rows, nil
}

// references is one run of these measurements.
type references struct {
	*lab
	store *object.Store
	bulky []client.Reference // of 64 MiB
}

// few measures many references to a few objects of each size. Nothing about them
// but what their objects hold differs, so their cost should not. The sizes take
// turns: what else the machine does is then the same for all.
func (r *references) few(ctx context.Context) ([]Row, error) {
	objects, rows, err := r.uploadAll(ctx)
	if err != nil {
		return nil, err
	}
	total := make([]outcome, len(refSizes))
	for turn := range fewTurns {
		for i, size := range refSizes {
			o, err := r.submitted(ctx, fmt.Sprintf("few-%s-%d", size.name, turn), objects[i][:fewObjects], r.scale(fewRefs))
			if err != nil {
				return nil, err
			}
			total[i].add(o)
		}
	}
	slowest, fastest, pending := total[0].perSecond(), 0.0, 0
	for i, size := range refSizes {
		perSecond := total[i].perSecond()
		rows = append(rows, Row{Name: "few/" + size.name, Value: perSecond, Unit: "references/s"})
		slowest, fastest, pending = min(slowest, perSecond), max(fastest, perSecond), pending+total[i].pending
	}
	return append(rows,
		Row{Name: "few/spread", Value: fastest / slowest, Unit: "times the slowest"},
		Row{Name: "few/pending", Value: float64(pending), Unit: "references"}), nil
}

// uploadAll uploads the objects of each size.
func (r *references) uploadAll(ctx context.Context) (objects [][]client.Reference, rows []Row, err error) {
	for _, size := range refSizes {
		n := fewObjects
		if size.bytes == 64*mib {
			n = r.large
		}
		uploaded, took, err := r.upload(ctx, size.name, size.bytes, n)
		if err != nil {
			return nil, nil, err
		}
		objects, r.bulky = append(objects, uploaded), uploaded
		rows = append(rows, Row{Name: "upload/" + size.name, Value: float64(n) / took.Seconds(), Unit: "objects/s"})
	}
	return objects, rows, nil
}

// distinct measures references to a small object each, beside how many looks at
// them the S3 gateway answers. What a worker cannot look at within 2 s is stored as
// pending: only what it has verified is compared with the limit.
func (r *references) distinct(ctx context.Context) ([]Row, error) {
	n := r.scale(distinctRefs)
	objects, took, err := r.upload(ctx, "distinct", kib, n)
	if err != nil {
		return nil, err
	}
	heads, err := r.heads(ctx, objects)
	if err != nil {
		return nil, err
	}
	o, err := r.submitted(ctx, "distinct", objects, n)
	if err != nil {
		return nil, err
	}
	return []Row{
		{Name: "distinct/upload/1KiB", Value: float64(n) / took.Seconds(), Unit: "objects/s"},
		{Name: "distinct/heads", Value: heads, Unit: "heads/s"},
		{Name: "distinct/1KiB", Value: o.perSecond(), Unit: "references/s"},
		limited("distinct/verified", o.verified(), "references/s", heads),
		{Name: "distinct/lane", Value: float64(o.traffic.lane) / float64(n), Unit: "bytes/reference"},
		{Name: "distinct/pending", Value: 100 * float64(o.pending) / float64(n), Unit: "% of the references"},
	}, nil
}

// bulk measures what 10 GiB by reference are in bytes for the lane, and for the
// nats-server, all that it takes in and gives out meanwhile.
func (r *references) bulk(ctx context.Context) ([]Row, error) {
	o, err := r.submitted(ctx, "bulk", r.bulky, bulkRefs)
	if err != nil {
		return nil, err
	}
	if o.traffic.server > bulkMost {
		return nil, fmt.Errorf("%d references to 64 MiB took %d bytes through NATS, more than %d", bulkRefs, o.traffic.server, bulkMost)
	}
	return []Row{
		{Name: "10GiB/lane", Value: float64(o.traffic.lane) / kib, Unit: "KiB"},
		{Name: "10GiB/nats", Value: float64(o.traffic.server) / kib, Unit: "KiB in and out"},
	}, nil
}

// inline measures how fast the same bytes are stored that are published as values:
// as one, where a lane takes it, else as many as it takes.
func (r *references) inline(ctx context.Context) ([]Row, error) {
	var rows []Row
	rate := map[int]float64{} // bytes per second, by the size of values
	for _, size := range refSizes {
		value := min(size.bytes, inlineCapacity)
		if rate[value] == 0 {
			topic, err := r.topic(ctx, fmt.Sprintf("refs-inline-%d", value))
			if err != nil {
				return nil, err
			}
			_, n, took, err := r.ingest(ctx, topic, r.random(value))
			if err != nil {
				return nil, err
			}
			rate[value] = float64(n) / took.Seconds()
			if err := r.trim(ctx); err != nil {
				return nil, err
			}
		}
		rows = append(rows, Row{Name: "inline/" + size.name, Value: rate[value] / float64(size.bytes), Unit: "payloads/s"})
	}
	return rows, nil
}
