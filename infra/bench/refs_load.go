package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/ref"
)

// upload puts n objects of random bytes, each with its own, a few at a time.
func (r *references) upload(ctx context.Context, name string, size, n int) ([]client.Reference, time.Duration, error) {
	objects := make([]client.Reference, n)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(uploaders)
	if size > object.PartSize { // each has its own parts on their way
		g.SetLimit(largeUploaders)
	}
	begin := time.Now()
	for i := range objects {
		g.Go(func() error {
			at := object.Name{Bucket: r.env.Stack.Info.Bucket, Key: fmt.Sprintf("bench-refs/%d/%s/%05d", r.run, name, i)}
			info, err := r.store.Put(gctx, at, turned{r.noise, int64(i+1) * 1_000_003}, int64(size), object.PutOptions{})
			is := ref.From(at, info)
			objects[i] = client.Reference{URL: is.URL, Size: is.Size, ETag: is.ETag}
			return err
		})
	}
	err := g.Wait()
	return objects, time.Since(begin), err
}

// turned is the noise from another place on, round and round.
type turned struct {
	noise []byte
	by    int64
}

// ReadAt implements [io.ReaderAt].
func (t turned) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		n += copy(p[n:], t.noise[(t.by+off+int64(n))%int64(len(t.noise)):])
	}
	return n, nil
}

// heads is how many looks a second the S3 gateway answers, as many at a time as a
// worker has under way.
func (r *references) heads(ctx context.Context, objects []client.Reference) (float64, error) {
	names := make([]object.Name, len(objects))
	for i, o := range objects {
		var err error
		if names[i], err = ref.Parse(o.URL); err != nil {
			return 0, err
		}
	}
	var next atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for range looks {
		g.Go(func() error {
			for i := next.Add(1); i <= int64(len(names)); i = next.Add(1) {
				n := names[i-1]
				if _, err := r.store.Head(gctx, n.Bucket, n.Key, n.Version); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(len(names)) / time.Since(begin).Seconds(), err
}

// outcome of references: how long until all were stored, how many of them were not
// looked at in time, and what went through NATS for them.
type outcome struct {
	n, pending int
	took       time.Duration
	traffic    traffic
}

func (o *outcome) add(more outcome) {
	o.n, o.pending, o.took = o.n+more.n, o.pending+more.pending, o.took+more.took
}

func (o outcome) perSecond() float64 { return float64(o.n) / o.took.Seconds() }

func (o outcome) verified() float64 { return float64(o.n-o.pending) / o.took.Seconds() }

// submitted submits n references to objects in turn. All must have been accepted.
func (r *references) submitted(ctx context.Context, name string, objects []client.Reference, n int) (o outcome, err error) {
	topic, err := r.topic(ctx, "refs-"+strings.ToLower(name), "--allow", r.env.Stack.Info.Bucket)
	if err != nil {
		return o, err
	}
	before, err := r.traffic(ctx)
	if err != nil {
		return o, err
	}
	if o.took, err = r.submit(ctx, topic, objects, n); err != nil {
		return o, err
	}
	after, err := r.traffic(ctx)
	if err != nil {
		return o, err
	}
	o.n, o.traffic = n, traffic{after.lane - before.lane, after.server - before.server}
	if o.pending, err = r.stored(ctx, topic, n); err != nil {
		return o, err
	}
	return o, r.trim(ctx)
}

// submit returns when all are stored.
func (r *references) submit(ctx context.Context, topic string, objects []client.Reference, n int) (took time.Duration, err error) {
	p, err := client.Connect(r.env.Stack.Info.NATS, client.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, p.Close(ctx)) }()
	begin := time.Now()
	var last *client.Pending
	for i := range n {
		key := []byte(r.flights[i%len(r.flights)].Key)
		opts := []client.PublishOption{client.Unchecked()}
		if i == n-1 { // it waits to be stored, and all before it are then too
			opts = append(opts, client.WithAck(client.Stored))
		}
		if last, err = p.Submit(ctx, topic, objects[i%len(objects)], client.Record{Key: key}, opts...); err != nil {
			return 0, err
		}
	}
	_, err = last.Wait(ctx)
	return time.Since(begin), err
}

// stored sees that a topic holds n records, all of them accepted, and counts those
// that are pending.
func (r *references) stored(ctx context.Context, name string, n int) (pending int, err error) {
	t, err := r.env.Store.Topic(ctx, name)
	if err != nil {
		return 0, err
	}
	all, err := t.Read(ctx, nil)
	if err != nil {
		return 0, err
	}
	have := 0
	for item, err := range all.Next(ctx) {
		switch {
		case err != nil:
			return 0, err
		case item.Rejected != "":
			return 0, fmt.Errorf("topic %s: a reference was rejected: %s", name, item.Rejected)
		case item.Pending:
			pending++
		}
		have++
	}
	if have != n {
		return 0, fmt.Errorf("topic %s has %d records, not %d", name, have, n)
	}
	return pending, nil
}

// traffic is how many bytes the default lane holds, and how many the nats-server
// has taken in and given out since it started.
type traffic struct{ lane, server uint64 }

func (r *references) traffic(ctx context.Context) (t traffic, err error) {
	s, err := r.env.JS.Stream(ctx, lane.ID{Group: lane.Default}.Stream())
	if err != nil {
		return t, fmt.Errorf("look up the lane: %w", err)
	}
	t.lane = s.CachedInfo().State.Bytes
	url := fmt.Sprintf("http://127.0.0.1:%d/varz", r.env.Stack.Info.Ports.NATSMonitor)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return t, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return t, fmt.Errorf("ask the nats-server: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var varz struct {
		In  uint64 `json:"in_bytes"`
		Out uint64 `json:"out_bytes"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&varz); err != nil {
		return t, fmt.Errorf("ask the nats-server: %w", err)
	}
	t.server = varz.In + varz.Out
	return t, nil
}
