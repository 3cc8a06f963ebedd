package functions

import (
	"bytes"
	"crypto/rand"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/client"
	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
)

// TestWeedExpand: two files are submitted with the wish that their rows become records,
// one before it is there. The rows come, each once and with its reference's key, as
// the tokens of the worker and of the follow-up lead to their jobs.
func TestWeedExpand(t *testing.T) {
	t.Parallel()
	stack := devtest.Stack(t)
	i := stack.Info.S3
	b, _ := newWeedBench(t, stack, "expand")
	bucket := "expand-" + strings.ToLower(rand.Text()[:12])
	api := s3.New(s3.Options{
		BaseEndpoint: &i.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	})
	if _, err := api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	objects, err := object.Open(t.Context(), object.Config{Endpoint: i.URL, AccessKey: i.AccessKey, SecretKey: i.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(objects.Close)
	b.Judge = NewJudge(objects, i.URL, b.Store.Filer)
	y := &yard{bench: b, top: b.referring(t, "t", bucket)}
	y.jobs = backfill.Of(b.Store, y.top)
	y.fills(t, BackfillOptions{Period: time.Hour}) // its only sweep is over before there are jobs
	const each = 1000
	put := func(key string, from int) {
		t.Helper()
		data := zipped(t, lines(from, each))
		if _, err := objects.Put(t.Context(), object.Name{Bucket: bucket, Key: key}, bytes.NewReader(data), int64(len(data)), object.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put("now.ndjson.gz", 0)
	p, err := client.NewProducer(b.NATS, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"now", "late"} {
		r := client.Reference{URL: "s3://" + bucket + "/" + name + ".ndjson.gz", Batch: &client.Batch{Expand: true}}
		if _, err := p.Submit(t.Context(), "t", r, client.Record{Key: []byte(name)}, client.Unchecked()); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if sum, err := b.once(t, 0); err != nil || sum.Committed != 2 || sum.Pending != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	rows := func() map[string]int {
		got := map[string]int{}
		for _, item := range b.read(t, "t") {
			if item.Ref == nil {
				got[string(item.Key)]++
			}
		}
		return got
	}
	until(t, "the first file's rows are there", func() bool { return rows()["now"] == each })
	put("late.ndjson.gz", each)
	if sum, err := b.refsOnce(t, RefsOptions{}); err != nil || sum.Resolved != 1 {
		t.Fatalf("%+v, %v", sum, err)
	}
	until(t, "the second file's rows are there", func() bool { return rows()["late"] == each })
	n := 0
	for l, err := range y.jobs.List(t.Context()) {
		if err == nil {
			err = l.Err
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		until(t, "the job is done", func() bool { return y.state(t, l.ID).Phase == backfill.Done })
		if sum := y.state(t, l.ID).Summary; sum.Rows != each || sum.Rejected+sum.Failed+sum.Dropped != 0 {
			t.Errorf("%+v", sum)
		}
	}
	if got := rows(); n != 2 || !maps.Equal(got, map[string]int{"now": each, "late": each}) {
		t.Errorf("%d jobs, rows %v", n, got)
	}
	b.verify(t, "t")
}
