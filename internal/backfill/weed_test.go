package backfill

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weed is a topic on a real filer, and a bucket on the filer's S3 gateway.
type weed struct {
	testing.TB
	store  *segment.Store
	topic  *segment.Topic
	s3     *object.Store
	bucket string
}

func onWeed(t testing.TB, versions bool) *weed {
	t.Helper()
	info := devtest.Weed(t).Info
	w := &weed{TB: t, bucket: "b-" + strings.ToLower(rand.Text()[:12])}
	var err error
	w.s3, err = object.Open(t.Context(), object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey})
	w.ok(err)
	t.Cleanup(w.s3.Close)
	f, err := seaweed.Dial(t.Context(), seaweed.Config{Filer: info.Filer})
	w.ok(err)
	t.Cleanup(func() { w.ok(f.Close()) })
	api := s3.New(s3.Options{
		BaseEndpoint: &info.S3.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(info.S3.AccessKey, info.S3.SecretKey, ""),
	})
	_, err = api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &w.bucket})
	w.ok(err)
	if versions {
		_, err = api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
			Bucket: &w.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		w.ok(err)
	}
	w.store = segment.NewStore(f, "spillway")
	w.topic, err = w.store.CreateTopic(t.Context(), topic.Definition{
		Name: "t" + strings.ToLower(rand.Text()[:12]), Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
	}, 1, time.Now())
	w.ok(err)
	return w
}

func (w *weed) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *weed) put(key, data string) {
	w.Helper()
	_, err := w.s3.Put(w.Context(), object.Name{Bucket: w.bucket, Key: key}, strings.NewReader(data), int64(len(data)), object.PutOptions{})
	w.ok(err)
}

// TestOnWeed: a job of a prefix and one of a manifest, made, worked on and listed on
// a real filer, with ETags that reading with If-Match takes.
func TestOnWeed(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("versions %v", versions), func(t *testing.T) {
			w := onWeed(t, versions)
			for _, key := range []string{"in/a+b c.csv", "in/deep/ä.ndjson", "in/empty.csv", "in/z.csv.gz"} {
				w.put(key, strings.Repeat("x", len(key)%12*100))
			}
			w.put("in/empty.csv", "")
			w.put("in/folder/", "")
			found, err := Prefix{Bucket: w.bucket, Prefix: "in/", Filter: Filter{Exclude: []string{"*.gz"}}}.List(t.Context(), w.s3)
			w.ok(err)
			if diff := cmp.Diff([]string{"in/a+b c.csv", "in/deep/ä.ndjson", "in/empty.csv"}, keys(found.Objects)); diff != "" || found.Left.Filtered != 1 {
				t.Fatal(found.Left, diff)
			}
			w.put("m", fmt.Sprintf("s3://%s/in/deep/ä.ndjson\ns3://%s/in/a+b c.csv\n", w.bucket, w.bucket))
			named, err := Manifest(t.Context(), w.s3, "s3://"+w.bucket+"/m", Filter{})
			w.ok(err)
			jobs := Of(w.store, w.topic)
			for _, l := range []Listing{found, named} {
				w.work(jobs, l)
			}
			for _, o := range named.Objects {
				if (o.Version != "") != versions {
					t.Errorf("version %q", o.Version)
				}
			}
			if _, err := Manifest(t.Context(), w.s3, "s3://"+w.bucket+"/none", Filter{}); !errors.Is(err, object.ErrNotFound) {
				t.Error(err)
			}
			n := 0
			for l, err := range jobs.List(t.Context()) {
				w.ok(errors.Join(err, l.Err))
				n++
			}
			if n != 2 {
				t.Errorf("%d jobs", n)
			}
		})
	}
}

func (w *weed) work(jobs *Jobs, l Listing) {
	w.Helper()
	for _, o := range l.Objects {
		body, info, err := w.s3.Get(w.Context(), o.Name(), 0, o.ETag)
		w.ok(err)
		w.ok(body.Close())
		if info.Size != o.Size {
			w.Errorf("%s has %d bytes, not %d", o, info.Size, o.Size)
		}
	}
	read, err := Formats(Read{}, l.Objects, As{})
	w.ok(err)
	made, err := jobs.Create(w.Context(), Job{By: "test", Read: read, Sources: Divide(l.Objects, "", 2)})
	w.ok(err)
	got, err := jobs.Load(w.Context(), made.ID)
	if diff := cmp.Diff(made, got); err != nil || diff != "" {
		w.Error(err, diff)
	}
	s, err := jobs.Update(w.Context(), made.ID, func(s *State) error { return s.Claim(time.Now(), "r", "h") })
	if err != nil || s.Runner == nil {
		w.Errorf("%+v, %v", s, err)
	}
	if p, err := jobs.Progress(w.Context(), made); err != nil || p.Total != uint64(len(l.Objects)) {
		w.Errorf("%+v, %v", p, err)
	}
}

// TestLargeOnWeed: a job of 100,000 objects, by two at once.
func TestLargeOnWeed(t *testing.T) {
	w := onWeed(t, false)
	jobs := Of(w.store, w.topic)
	job := draft(100_000, MaxSources)
	job.ID = jobs.DerivedID("large")
	var g errgroup.Group
	made := make([]error, 2)
	for i := range made {
		g.Go(func() error { _, made[i] = jobs.Create(t.Context(), job); return nil })
	}
	w.ok(g.Wait())
	if errors.Is(made[0], ErrJobExists) == errors.Is(made[1], ErrJobExists) {
		t.Fatal(made)
	}
	got, err := jobs.Load(t.Context(), job.ID)
	w.ok(err)
	if n, _ := got.Objects(); n != 100_000 {
		t.Errorf("%d objects", n)
	}
	e, err := w.store.Filer.Lookup(t.Context(), jobs.jobPath(job.ID))
	w.ok(err)
	t.Logf("%d bytes in %d blobs", e.Size, len(e.Blobs))
	if e.ID == "" || e.Size < filer.InlineLimit {
		t.Errorf("%+v", e)
	}
}

// BenchmarkJob makes and loads a job of 100,000 objects.
func BenchmarkJob(b *testing.B) {
	w := onWeed(b, false)
	jobs := Of(w.store, w.topic)
	job := draft(100_000, MaxSources)
	b.Run("create", func(b *testing.B) {
		for b.Loop() {
			_, err := jobs.Create(b.Context(), job)
			w.ok(err)
		}
	})
	made, err := jobs.Create(b.Context(), job)
	w.ok(err)
	b.Run("load", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, err := jobs.Load(b.Context(), made.ID)
			w.ok(err)
		}
	})
	b.Run("progress", func(b *testing.B) {
		for b.Loop() {
			_, err := jobs.Progress(b.Context(), made)
			w.ok(err)
		}
	})
}

// BenchmarkList lists 1,000 jobs, whose files are large.
func BenchmarkList(b *testing.B) {
	w := onWeed(b, false)
	jobs := Of(w.store, w.topic)
	var g errgroup.Group
	g.SetLimit(16)
	for range 1000 {
		g.Go(func() error { _, err := jobs.Create(b.Context(), draft(2000, 2)); return err })
	}
	w.ok(g.Wait())
	for b.Loop() {
		n := 0
		for l, err := range jobs.List(b.Context()) {
			w.ok(errors.Join(err, l.Err))
			n++
		}
		if n != 1000 {
			b.Fatal(n)
		}
	}
}
