package refcheck

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weed is a topic on a real filer, and its bucket on the filer's S3 gateway.
type weed struct {
	t      testing.TB
	s3     *object.Store
	api    *s3.Client // past the code under test
	filer  *seaweed.Client
	topic  *segment.Topic
	seg    *segment.Segment
	bucket string
	seq    uint64
}

func onWeed(t testing.TB, versions bool) *weed {
	t.Helper()
	info := devtest.Weed(t).Info
	w := &weed{t: t, bucket: "c-" + strings.ToLower(rand.Text()[:12])}
	var err error
	w.s3, err = object.Open(t.Context(), object.Config{Endpoint: info.S3.URL, AccessKey: info.S3.AccessKey, SecretKey: info.S3.SecretKey})
	w.ok(err)
	t.Cleanup(w.s3.Close)
	w.filer, err = seaweed.Dial(t.Context(), seaweed.Config{Filer: info.Filer})
	w.ok(err)
	t.Cleanup(func() { w.ok(w.filer.Close()) })
	w.api = s3.New(s3.Options{
		BaseEndpoint: &info.S3.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(info.S3.AccessKey, info.S3.SecretKey, ""),
	})
	_, err = w.api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &w.bucket})
	w.ok(err)
	if versions {
		_, err = w.api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
			Bucket: &w.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
		})
		w.ok(err)
	}
	store := segment.NewStore(w.filer, "spillway")
	w.topic, err = store.CreateTopic(t.Context(), topic.Definition{
		Name: "t" + strings.ToLower(rand.Text()[:12]), Key: topic.KeyHeader, FlushAge: topic.Duration(time.Second), Lanes: "default",
		Buckets: []string{w.bucket},
	}, 1, time.Now())
	w.ok(err)
	segs, err := w.topic.Segments(t.Context())
	w.ok(err)
	w.seg = segs[0]
	return w
}

func (w *weed) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *weed) put(key, data string) record.Ref {
	w.t.Helper()
	sum := sha256.Sum256([]byte(data))
	n := object.Name{Bucket: w.bucket, Key: key}
	_, err := w.s3.Put(w.t.Context(), n, strings.NewReader(data), int64(len(data)), object.PutOptions{SHA256: sum[:]})
	w.ok(err)
	info, err := w.s3.Head(w.t.Context(), n.Bucket, n.Key, "")
	w.ok(err)
	return ref.From(n, info)
}

// putAgain puts an object again as the client does with uploads that are too old.
func (w *weed) putAgain(key, data string) {
	w.t.Helper()
	n := object.Name{Bucket: w.bucket, Key: key}
	info, err := w.s3.Head(w.t.Context(), n.Bucket, n.Key, "")
	w.ok(err)
	_, err = w.s3.Put(w.t.Context(), n, strings.NewReader(data), int64(len(data)), object.PutOptions{SHA256: info.SHA256, Pins: info.Pins})
	w.ok(err)
}

func (w *weed) remove(key string) {
	w.t.Helper()
	w.ok(w.s3.Delete(w.t.Context(), object.Name{Bucket: w.bucket, Key: key}, ""))
}

func (w *weed) commit(refs ...record.Ref) {
	w.t.Helper()
	set := &record.Set{}
	for _, f := range refs {
		w.seq++
		w.ok(set.Append(&record.Record{Time: time.Now(), Position: topic.Position{Sequence: w.seq}, Ref: &f}, 1))
	}
	_, err := w.seg.Append(w.t.Context(), segment.Input{
		Source: "lane", Set: set,
		Checkpoint: func(context.Context) (topic.Position, error) { return topic.Position{}, nil },
		Holds:      func(context.Context, segment.SourcePosition) error { return nil },
	})
	w.ok(err)
}

func (w *weed) pins() *pin.Pins { return &pin.Pins{Filer: w.filer, Now: time.Now} }

func (w *weed) checker() *Checker {
	return &Checker{Topic: w.topic, Objects: w.s3, Pins: w.pins(), Filer: w.filer, Now: time.Now}
}

func (w *weed) call(did *[]string) Call {
	return Call{
		Settle: func(context.Context) error { return nil },
		Tell: func(d Deed) error {
			*did = append(*did, string(d.Done)+" "+strings.TrimPrefix(d.URL, "s3://"+w.bucket+"/")+" "+d.Reason)
			return nil
		},
	}
}

// check returns what is found, as "word key".
func (w *weed) check() (found []string) {
	w.t.Helper()
	c := w.checker()
	c.Found = func(f Finding) error {
		word := string(f.State)
		if f.Kind != Dangling {
			word = string(f.Kind)
		}
		found = append(found, word+" "+strings.TrimPrefix(f.URL, "s3://"+w.bucket+"/"))
		return nil
	}
	_, err := c.Check(w.t.Context())
	w.ok(err)
	return found
}

func (w *weed) adopt() (did []string) {
	w.t.Helper()
	a := &Adopter{Checker: w.checker(), Call: w.call(&did), Unpinned: true, Pending: func(Finding) {}}
	w.ok(a.Adopt(w.t.Context()))
	return did
}

// TestOnWeed: what S3 does to objects, and the states that follow from it, with and
// without versions.
func TestOnWeed(t *testing.T) {
	for _, versions := range []bool{false, true} {
		t.Run(fmt.Sprintf("versions %v", versions), func(t *testing.T) {
			w := onWeed(t, versions)
			w.commit(w.put("good", "good"), w.put("a+b c%2B/🐟", "odd"), w.put("gone", "gone"), w.put("over", "aaaa"), w.put("again", "same"))
			equal(t, "adopted", w.adopt(), "pinned good ", "pinned a+b c%2B/🐟 ", "pinned gone ", "pinned over ", "pinned again ")
			equal(t, "all is well", w.check())
			w.remove("gone")
			w.put("over", "bbbb")
			w.put("again", "same")
			if !versions {
				equal(t, "without versions", w.check(), "missing gone", "changed over", "unpinned again")
				equal(t, "adopted again", w.adopt(), "pinned again ")
				w.putAgain("again", "same")
				equal(t, "put again with its pins", w.check(), "missing gone", "changed over")
				return
			}
			// Records name versions, and these are still there.
			equal(t, "with versions", w.check())
			latest := record.Ref{URL: "s3://" + w.bucket + "/gone"}
			w.commit(latest)
			equal(t, "the latest version", w.check(), "deleted gone")
		})
	}
}

// TestDropOnWeed: orphans go, and what is pinned while it is dropped has its pin, or
// is not found.
func TestDropOnWeed(t *testing.T) {
	w := onWeed(t, false)
	const n = 24
	prefix := Prefix(w.topic.Name)
	refs := make([]record.Ref, n)
	for i := range refs {
		refs[i] = w.put(fmt.Sprintf("%s%02d", prefix, i), strings.Repeat("x", i))
	}
	w.commit(w.put(prefix+"named", "named"))
	w.put("elsewhere", "x")
	var did []string
	d := &Dropper{Checker: w.checker(), Call: w.call(&did), Remover: w.filer, Logger: slog.New(slog.DiscardHandler)}
	begun := make(chan struct{})
	tell := d.Tell
	d.Tell = func(deed Deed) error {
		if len(did) == 0 {
			close(begun)
		}
		return tell(deed)
	}
	var g errgroup.Group
	pinned := make([]bool, n)
	g.Go(func() error { // from the other end, so that they meet
		<-begun
		for i := n - 1; i >= 0; i-- {
			name := object.Name{Bucket: w.bucket, Key: fmt.Sprintf("%s%02d", prefix, i)}
			err := w.pins().Pin(t.Context(), name, object.Info{Size: refs[i].Size, ETag: refs[i].ETag}, pin.Holder{Topic: w.topic.Name, Incarnation: w.topic.Incarnation})
			pinned[i] = err == nil
			if err != nil && !errors.Is(err, object.ErrNotFound) {
				return err
			}
		}
		return nil
	})
	g.Go(func() error { return d.Drop(t.Context()) })
	w.ok(g.Wait())
	kept := 0
	for i := range refs {
		_, err := w.s3.Head(t.Context(), w.bucket, fmt.Sprintf("%s%02d", prefix, i), "")
		if (err == nil) != pinned[i] {
			t.Errorf("%d: pinned %v, %v", i, pinned[i], err)
		}
		if pinned[i] {
			kept++
		}
	}
	t.Logf("%d of %d were pinned in time", kept, n)
	w.put(prefix+"last", "x")
	did, d.Tell = nil, tell
	w.ok(d.Drop(t.Context()))
	if deleted := strings.Count(strings.Join(did, "\n"), "deleted "); deleted != 1 || len(did) != kept+1 {
		t.Errorf("%q", did)
	}
	for _, key := range []string{prefix + "named", "elsewhere"} {
		if _, err := w.filer.Look(t.Context(), filer.ObjectName{Bucket: w.bucket, Key: key}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// BenchmarkCheck checks references to different objects, all valid and pinned.
func BenchmarkCheck(b *testing.B) {
	w := onWeed(b, false)
	const n = 2000
	refs := make([]record.Ref, n)
	var g errgroup.Group
	g.SetLimit(16)
	for i := range refs {
		g.Go(func() error { refs[i] = w.put(fmt.Sprintf("k%05d", i), "x"); return nil })
	}
	w.ok(g.Wait())
	w.commit(refs...)
	w.adopt()
	for b.Loop() {
		if found := w.check(); len(found) != 0 {
			b.Fatalf("%q", found[0])
		}
	}
	b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "references/s")
}
