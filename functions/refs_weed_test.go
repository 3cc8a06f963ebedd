package functions

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
)

// TestWeedLateObject: a reference is submitted before its object exists. The worker
// commits it as pending; when the object comes, the token that the worker has put
// leads to the pin on the object's entry.
func TestWeedLateObject(t *testing.T) {
	t.Parallel()
	stack := devtest.Stack(t)
	i := stack.Info.S3
	b, _ := newWeedBench(t, stack, "late")
	bucket := "late-" + strings.ToLower(rand.Text()[:12])
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
	top := b.referring(t, "t", bucket)
	b.refs(t, RefsOptions{Period: time.Hour, RetryAfter: time.Second})

	const key = "a+b c%2B.txt"
	b.submit(t, "t", bucket, key)
	if items := b.read(t, "t"); len(items) != 1 || !items[0].Pending || items[0].Rejected != "" {
		t.Fatalf("%+v", items)
	}
	until(t, "the reference is open", func() bool { return len(b.followed(t, top).Open) == 1 })
	name := object.Name{Bucket: bucket, Key: key}
	if _, err := objects.Put(t.Context(), name, strings.NewReader("late"), 4, object.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the token is done", func() bool { return b.waiting(t) == 0 })
	if s := b.followed(t, top); len(s.Open)+len(s.GivenUp) != 0 {
		t.Errorf("%+v", s)
	}
	pins, ok := b.Judge.Pins.(*pin.Pins)
	if !ok {
		t.Fatal("the judge has no pins")
	}
	marks, err := pins.Held(t.Context(), name)
	if err != nil || len(marks) != 1 || marks[0].Holder != (pin.Holder{Topic: "t", Incarnation: top.Incarnation}) {
		t.Errorf("pins %+v, %v", marks, err)
	}
	b.verify(t, "t")

	// What was right when it was committed is pinned by the worker, and nobody looks
	// again.
	b.submit(t, "t", bucket, key)
	if items := b.read(t, "t"); len(items) != 2 || items[1].Pending {
		t.Errorf("%+v", items)
	}
	again, err := pins.Held(t.Context(), name)
	if err != nil || len(again) != 1 || again[0] == marks[0] {
		t.Errorf("pins %+v, before that %+v, %v", again, marks, err)
	}
	if n := b.waiting(t); n != 0 {
		t.Errorf("%d tokens", n)
	}
}
