package functions

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/lane"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// TestWeedBackfill: a job of objects of two formats behind a real gateway goes into a
// topic that is edited meanwhile; runs are told to end, and killed, and a resident
// function does the rest.
func TestWeedBackfill(t *testing.T) {
	t.Parallel()
	stack := devtest.Stack(t)
	i := stack.Info.S3
	b, _ := newWeedBench(t, stack, "backfill")
	bucket := "backfill-" + strings.ToLower(rand.Text()[:12])
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
	y := &yard{bench: b}
	y.top, err = b.Store.CreateTopic(t.Context(), topic.Definition{
		Name: "t", Key: topic.KeyHeader, FlushAge: topic.Duration(20 * time.Millisecond), Lanes: lane.Default,
	}, 4, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	y.jobs = backfill.Of(b.Store, y.top)

	put := func(key string, data []byte) {
		t.Helper()
		n := object.Name{Bucket: bucket, Key: "in/" + key}
		if _, err := objects.Put(t.Context(), n, bytes.NewReader(data), int64(len(data)), object.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const each = 20_000
	parquet, flights := flightRows(t)
	put("flights.parquet", parquet)
	all := [][]string{flights}
	for i := range 3 {
		data := lines(i*each, each)
		put(fmt.Sprintf("%d.ndjson.gz", i), zipped(t, data))
		all = append(all, texts(data))
	}
	found, err := backfill.Prefix{Bucket: bucket, Prefix: "in/"}.List(t.Context(), objects)
	if err != nil || len(found.Objects) != 4 {
		t.Fatalf("%+v, %v", found, err)
	}
	id := y.job(t, 3, backfill.Limits{Rows: 20_000}, found.Objects...)
	edited := y.editing(t)
	defer edited()

	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		y.fresh()
		sum, err := RunJob(ctx, y.Deps, JobOptions{Topic: "t", ID: id})
		cancel()
		if ExitCode(err) != ExitRetry || sum.Rows == 0 {
			t.Fatalf("told to end: %+v, %v", sum, err)
		}
		hard, kill := context.WithTimeout(t.Context(), time.Second)
		d := y.Deps
		d.Metrics = nil
		_, err = newJobRunner(d).run(hard, t.Context(), JobOptions{Topic: "t", ID: id})
		kill()
		if ExitCode(err) != ExitRetry {
			t.Fatalf("killed: %v", err)
		}
	}
	y.change(t, id, func(s *backfill.State) error { s.Limits.Rows = 0; return nil })
	y.fills(t, BackfillOptions{Period: time.Second})
	until(t, "the job is done", func() bool { return y.state(t, id).Phase == backfill.Done })
	edited()
	if sum := y.state(t, id).Summary; sum.Rows != 3*each+6000 || sum.Objects != 4 || sum.Failed+sum.Rejected != 0 {
		t.Errorf("%+v", sum)
	}
	y.holds(t, all...)
}
