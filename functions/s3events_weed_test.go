package functions

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/ingest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// eventBench is a bench on SeaweedFS, with a bucket whose events go to topic t.
type eventBench struct {
	*bench
	t      *testing.T
	s3     *s3.Client
	filer  *seaweed.Client
	bucket string
}

func newEventBench(t *testing.T, stack *devstack.Stack) *eventBench {
	t.Helper()
	i := stack.Info.S3
	name := strings.ToLower(rand.Text()[:12])
	b, _ := newWeedBench(t, stack, "store-"+name)
	c, ok := b.Store.Filer.(*seaweed.Client)
	if !ok {
		t.Fatalf("a filer of type %T", b.Store.Filer)
	}
	e := &eventBench{b, t, s3.New(s3.Options{
		BaseEndpoint: &i.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	}), c, "in-" + name}
	if _, err := e.s3.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &e.bucket}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
		Buckets: []string{e.bucket}, RecordRemovals: true,
	}, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *eventBench) put(key string, data []byte) {
	e.t.Helper()
	if _, err := e.s3.PutObject(e.t.Context(), &s3.PutObjectInput{Bucket: &e.bucket, Key: &key, Body: bytes.NewReader(data)}); err != nil {
		e.t.Fatal(err)
	}
}

// relayed is a relay that runs.
type relayed struct {
	stop func()
	done chan struct{}
	sum  S3EventsSummary
	err  error
}

// relay starts one, and returns when it has caught up and listed the bucket.
func (e *eventBench) relay(o S3EventsOptions) *relayed {
	e.t.Helper()
	o.Bucket, o.Topic = e.bucket, "t"
	ctx, stop := context.WithCancel(e.t.Context())
	r := &relayed{stop: stop, done: make(chan struct{})}
	d := e.Deps
	d.Metrics, d.Health = nil, ingest.NewHealth(nil)
	go func() {
		defer close(r.done)
		r.sum, r.err = S3Events(ctx, d, o)
	}()
	e.t.Cleanup(func() { stop(); <-r.done })
	if !o.Once {
		e.checked(time.Now())
	}
	return r
}

func (r *relayed) end(t *testing.T) S3EventsSummary {
	t.Helper()
	r.stop()
	<-r.done
	if r.err != nil {
		t.Errorf("the relay ended with %v", r.err)
	}
	return r.sum
}

// checked returns when a relay has listed the bucket since, and saved that.
func (e *eventBench) checked(since time.Time) {
	e.t.Helper()
	top, err := e.Store.Topic(e.t.Context(), "t")
	if err != nil {
		e.t.Fatal(err)
	}
	file := relayFile(e.Store.Filer, top.Dir(), e.bucket, "")
	until(e.t, "the bucket is listed", func() bool {
		s, _, err := file.Load(e.t.Context())
		return err == nil && s.Checked >= since.UnixNano()
	})
}

// messages is how many there are in the lane.
func (e *eventBench) messages() int {
	e.t.Helper()
	s, err := e.js.Stream(e.t.Context(), laneID.Stream())
	if err != nil {
		e.t.Fatal(err)
	}
	return int(s.CachedInfo().State.LastSeq)
}

func (e *eventBench) await(messages int) {
	e.t.Helper()
	until(e.t, fmt.Sprintf("%d notifications are in the lane", messages), func() bool { return e.messages() >= messages })
}

// records are those of the topic, by what they tell: one for each time that it is
// told.
func (e *eventBench) records() (told map[string]int, items []segment.Item) {
	e.t.Helper()
	if _, err := e.once(e.t, time.Minute); err != nil {
		e.t.Fatal(err)
	}
	told = map[string]int{}
	items = e.read(e.t, "t")
	for _, item := range items {
		if item.Rejected != "" {
			e.t.Errorf("rejected %q: %s", item.Key, item.Rejected)
		}
		told[string(item.Headers[0].Value)+" "+string(item.Key)]++
	}
	e.verify(e.t, "t")
	return told, items
}

// TestWeedS3Events: what is done to a real bucket becomes records, once each.
func TestWeedS3Events(t *testing.T) {
	t.Parallel()
	e := newEventBench(t, devtest.Stack(t))
	e.put("before", []byte("x"))
	relay := e.relay(S3EventsOptions{})

	const odd = "d/a+b c%2B 🪣.txt"
	e.put(odd, []byte("x"))
	e.put(odd, []byte("yy"))
	e.parts("large", 2)
	if _, err := e.s3.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: &e.bucket, Key: aws.String("copy"), CopySource: aws.String(e.bucket + "/large")}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.s3.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &e.bucket, Key: aws.String("copy")}); err != nil {
		t.Fatal(err)
	}
	o, err := e.filer.Look(t.Context(), filer.ObjectName{Bucket: e.bucket, Key: "large"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.filer.Mark(t.Context(), o, "Pin-Abc", "t 2026-01-01T00:00:00Z x"); err != nil {
		t.Fatal(err)
	}
	const many = 1000
	start := time.Now()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range many {
		g.Go(func() error {
			_, err := e.s3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &e.bucket, Key: aws.String(fmt.Sprint("many/", i)), Body: strings.NewReader("z")})
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	puts := time.Since(start)
	e.await(many + 5)
	t.Logf("%d puts in %s, all in the lane %s after the last", many, puts, time.Since(start)-puts)
	sum := relay.end(t)
	if sum.Published != many+5 || sum.Found != 0 {
		t.Errorf("%+v", sum)
	}
	told, items := e.records()
	for what, n := range map[string]int{
		"ObjectCreated:Put " + odd: 2, "ObjectCreated:CompleteMultipartUpload large": 1, "ObjectCreated:Put copy": 0,
		"ObjectCreated:CompleteMultipartUpload copy": 0, "ObjectRemoved:Delete copy": 1, "ObjectCreated:Put before": 0,
	} {
		if what != "ObjectCreated:Put copy" && what != "ObjectCreated:CompleteMultipartUpload copy" && told[what] != n {
			t.Errorf("%s: %d records", what, told[what])
		}
	}
	if len(items) != many+5 || told["ObjectCreated:Put copy"]+told["ObjectCreated:CompleteMultipartUpload copy"] != 1 {
		t.Errorf("%d records", len(items))
	}
	for _, item := range items[:2] {
		if string(item.Key) != odd || item.Ref == nil || item.Ref.URL != "s3://"+e.bucket+"/"+odd || item.Ref.ETag == "" {
			t.Errorf("%q, %+v", item.Key, item.Ref)
		}
	}
	// Nothing is left to do for one that looks once more.
	again := e.relay(S3EventsOptions{Once: true})
	<-again.done
	if again.err != nil || again.sum.Found != 0 || e.messages() != many+5 {
		t.Errorf("%+v, %v, %d messages", again.sum, again.err, e.messages())
	}
	t.Logf("a run without anything to do took %.2f s", again.sum.Seconds)
}

// parts puts an object in parts of 5 MiB.
func (e *eventBench) parts(key string, n int32) {
	e.t.Helper()
	up, err := e.s3.CreateMultipartUpload(e.t.Context(), &s3.CreateMultipartUploadInput{Bucket: &e.bucket, Key: &key})
	if err != nil {
		e.t.Fatal(err)
	}
	var done []types.CompletedPart
	for i := range n {
		out, err := e.s3.UploadPart(e.t.Context(), &s3.UploadPartInput{
			Bucket: &e.bucket, Key: &key, UploadId: up.UploadId, PartNumber: aws.Int32(i + 1), Body: bytes.NewReader(make([]byte, 5<<20)),
		})
		if err != nil {
			e.t.Fatal(err)
		}
		done = append(done, types.CompletedPart{ETag: out.ETag, PartNumber: aws.Int32(i + 1)})
	}
	if _, err := e.s3.CompleteMultipartUpload(e.t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: &e.bucket, Key: &key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: done},
	}); err != nil {
		e.t.Fatal(err)
	}
}

// TestWeedS3EventsLost: a filer that is killed forgets the last minute, and what was
// put in it is published nevertheless, once, whether a relay ran then or not. Not
// parallel: it has the package's SeaweedFS to itself.
func TestWeedS3EventsLost(t *testing.T) {
	stack := devtest.Stack(t)
	e := newEventBench(t, stack)
	relay := e.relay(S3EventsOptions{})
	e.put("first", []byte("x"))
	e.await(1)
	relay.end(t)

	const n = 10
	for i := range n {
		e.put(fmt.Sprint("alone/", i), []byte("x"))
	}
	e.crash(stack)
	told := 0 // in case that the log was written just then
	if err := e.filer.Subscribe(t.Context(), seaweed.Scope{Bucket: e.bucket, Prefix: "alone/"}, 0, false, func(s seaweed.Step) error {
		told += len(s.Events)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	relay = e.relay(S3EventsOptions{})
	e.await(1 + n)
	for i := range n {
		e.put(fmt.Sprint("watched/", i), []byte("x"))
	}
	e.await(1 + 2*n)
	o, err := e.filer.Look(t.Context(), filer.ObjectName{Bucket: e.bucket, Key: "watched/0"})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.filer.Mark(t.Context(), o, "Pin-Abc", "t 2026-01-01T00:00:00Z x"); err != nil {
		t.Fatal(err)
	}
	e.crash(stack)
	back := time.Now()
	e.put("last", []byte("x"))
	e.await(2 + 2*n)
	e.checked(back)
	sum := relay.end(t)
	t.Logf("%d of %d events are in the log of the killed filer; %+v", told, n, sum)
	// The first was published so shortly before that it may be told twice, and is
	// dropped.
	if sum.Found != n-told && sum.Found != n-told+1 {
		t.Errorf("found %d, and the log tells of %d", sum.Found, told)
	}
	if records, items := e.records(); len(items) != 2+2*n || len(records) != len(items) {
		t.Errorf("%d records of %d events", len(items), len(records))
	}
}

func (e *eventBench) crash(stack *devstack.Stack) {
	e.t.Helper()
	if err := stack.KillWeed(); err != nil {
		e.t.Fatal(err)
	}
	if err := stack.RestartWeed(e.t.Context()); err != nil {
		e.t.Fatal(err)
	}
}
