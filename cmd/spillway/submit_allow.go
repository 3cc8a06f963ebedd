package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/functions"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/internal/verdict"
)

// allowance is what a producer knows of what a topic allows: workers decide, and
// reject. Without a topic it is nothing, and everything may be tried.
type allowance struct{ topic *topic.Definition }

// askPatience is how long a producer waits for the filer, which it does not need.
const askPatience = 3 * time.Second

// allowance asks the filer, if one is named, what a topic allows. NATS alone is
// enough to publish, so that no failure is one of the call.
func (a *app) allowance(ctx context.Context, name string) allowance {
	if a.cfg.Filer == "" {
		return allowance{}
	}
	asking, cancel := context.WithTimeout(ctx, min(askPatience, a.cfg.Timeout))
	defer cancel()
	d, err := a.definition(asking, name)
	switch {
	case err == nil:
	case errors.Is(err, segment.ErrNoTopic):
		return allowance{} // a worker may make it
	default:
		if ctx.Err() == nil {
			a.note("whether topic %s allows these objects is for the worker to find out: %v", name, err)
		}
		return allowance{}
	}
	if !d.ServedBy(a.cfg.S3) {
		a.note("workers look for the objects of topic %s at %s; --s3 is %s", name, d.Endpoint, cmp.Or(a.cfg.S3, "AWS's"))
	}
	return allowance{&d}
}

func (a *app) definition(ctx context.Context, name string) (topic.Definition, error) {
	store, done, err := a.connectFiler(ctx)
	if err != nil {
		return topic.Definition{}, err
	}
	defer done()
	return store.Definition(ctx, name)
}

// object says whether a reference to an object would be rejected for its bucket.
// What is wrong with the URL is told elsewhere.
func (al allowance) object(url string) error {
	if al.topic == nil {
		return nil
	}
	_, err := verdict.Allowed(*al.topic, record.Ref{URL: url})
	if is[*verdict.NotAllowedError](err) {
		return &functions.UsageError{Err: err}
	}
	return nil
}

// below says whether references to some of the objects below a prefix would be
// rejected.
func (al allowance) below(bucket, prefix string) error {
	if al.topic == nil || al.topic.Allows(bucket, prefix) {
		return nil
	}
	var some []string
	for _, entry := range al.topic.Buckets {
		if strings.HasPrefix(entry, bucket+"/"+prefix) {
			some = append(some, "s3://"+entry)
		}
	}
	err := error(&verdict.NotAllowedError{Topic: al.topic.Name, Name: ref.Name{Bucket: bucket, Key: prefix}})
	if len(some) > 0 {
		err = fmt.Errorf("topic %q allows of s3://%s/%s only what is below %s; name that", al.topic.Name, bucket, prefix, strings.Join(some, ", "))
	}
	return &functions.UsageError{Err: err}
}

// check looks at what a call names, before anything is published. A manifest's
// objects are checked one by one, as it is read.
func (al allowance) check(o submitOptions) error {
	if o.prefix != "" {
		bucket, start, ok := cutPrefix(o.prefix)
		if !ok {
			return nil // told elsewhere
		}
		return al.below(bucket, start)
	}
	for _, url := range o.urls {
		err := error(nil)
		if !isFile(url) {
			err = al.object(url)
		} else if o.bucket != "" {
			err = al.below(o.bucket, uploads(o.topic))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutPrefix takes s3://bucket/prefix apart.
func cutPrefix(url string) (bucket, prefix string, ok bool) {
	rest, ok := strings.CutPrefix(url, "s3://")
	bucket, prefix, _ = strings.Cut(rest, "/")
	return bucket, prefix, ok && bucket != ""
}

// uploads are the keys of values that are uploaded for a topic (docs/FORMAT.md).
func uploads(name string) string { return "spillway/" + name + "/" }
