package pin_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/pin"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weed is a real filer with its S3 gateway, and a bucket for this test.
type weed struct {
	*pin.Pins
	objects *object.Store
	api     *s3.Client // past the code under test
	bucket  string
}

func onWeed(tb testing.TB) weed {
	tb.Helper()
	i := devtest.Weed(tb).Info
	c, err := seaweed.Dial(tb.Context(), seaweed.Config{Filer: i.Filer})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	objects, err := object.Open(tb.Context(), object.Config{Endpoint: i.S3.URL, AccessKey: i.S3.AccessKey, SecretKey: i.S3.SecretKey})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(objects.Close)
	w := weed{&pin.Pins{Filer: c, Now: time.Now}, objects, s3.New(s3.Options{
		BaseEndpoint: &i.S3.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(i.S3.AccessKey, i.S3.SecretKey, ""),
	}), "p-" + filer.Token(10)}
	if _, err := w.api.CreateBucket(tb.Context(), &s3.CreateBucketInput{Bucket: &w.bucket}); err != nil {
		tb.Fatal(err)
	}
	return w
}

func (w weed) name(key string) object.Name { return object.Name{Bucket: w.bucket, Key: key} }

func (w weed) put(ctx context.Context, key string, data []byte) error {
	_, err := w.objects.Put(ctx, w.name(key), bytes.NewReader(data), int64(len(data)), object.PutOptions{})
	return err
}

func (w weed) head(tb testing.TB, key string) object.Info {
	tb.Helper()
	info, err := w.objects.Head(tb.Context(), w.bucket, key, "")
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = mathrand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// TestAfterHead pins what a HEAD has described, of all sizes and odd keys, with
// versions and without, and S3 shows the same object afterwards.
func TestAfterHead(t *testing.T) {
	w := onWeed(t)
	for _, versions := range []bool{false, true} {
		if versions {
			_, err := w.api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
				Bucket: &w.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
			})
			ok(t, err)
		}
		for key, size := range map[string]int{
			"empty": 0, "a+b c%2B.txt": 10, "emoji 🐟/ÿ": 200_000, "two//slashes": 11, "/leading": 12, `back\slash`: 13, "dir/": 14, "parts": object.PartSize + 1,
		} {
			ok(t, w.put(t.Context(), key, noise(size)))
			before := w.head(t, key)
			if err := w.Pin(t.Context(), w.name(key), before, orders); err != nil {
				t.Errorf("%q: %v", key, err)
				continue
			}
			after := w.head(t, key)
			if before.Size != after.Size || before.ETag != after.ETag || before.Version != after.Version || !before.Modified.Equal(after.Modified) ||
				before.ContentType != after.ContentType || !bytes.Equal(before.SHA256, after.SHA256) {
				t.Errorf("%q: before %+v, after %+v", key, before, after)
			}
			marks, err := w.Held(t.Context(), w.name(key))
			if err != nil || len(marks) != 1 || marks[0].Holder != orders {
				t.Fatalf("%q is held by %+v, %v", key, marks, err)
			}
			body, _, err := w.objects.Get(t.Context(), w.name(key), 0, before.ETag)
			ok(t, err)
			data, err := io.ReadAll(body)
			if err := errors.Join(err, body.Close()); err != nil || !bytes.Equal(data, noise(size)) {
				t.Errorf("%q: %d other bytes, %v", key, len(data), err)
			}
			ok(t, w.Unpin(t.Context(), w.name(key), marks[0]))
		}
	}
}

// TestErrorsOnWeed: what became of an object between HEAD and pin.
func TestErrorsOnWeed(t *testing.T) {
	w := onWeed(t)
	ok(t, w.put(t.Context(), "k", []byte("bytes")))
	info := w.head(t, "k")
	if err := w.Pin(t.Context(), object.Name{Bucket: "no-such-" + w.bucket, Key: "k"}, info, orders); !errors.Is(err, pin.ErrElsewhere) {
		t.Errorf("elsewhere: %v", err)
	}
	ok(t, w.put(t.Context(), "k", []byte("bytes"))) // the same again
	ok(t, w.Pin(t.Context(), w.name("k"), info, orders))
	ok(t, w.put(t.Context(), "k", []byte("other")))
	if err := w.Pin(t.Context(), w.name("k"), info, orders); !errors.Is(err, object.ErrChanged) {
		t.Errorf("changed: %v", err)
	}
	_, err := w.api.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &w.bucket, Key: aws.String("k")})
	ok(t, err)
	if err := w.Pin(t.Context(), w.name("k"), info, orders); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("deleted: %v", err)
	}
}

// TestManyOnWeed: an object with all the holders that it can have, of the longest
// names, is still an object that a HEAD and a GET are answered for.
func TestManyOnWeed(t *testing.T) {
	w := onWeed(t)
	ok(t, w.put(t.Context(), "k", []byte("bytes")))
	info := w.head(t, "k")
	for i := range pin.MaxHolders {
		h := pin.Holder{Topic: strings.Repeat("t", 100), Incarnation: fmt.Sprintf("%032d", i)}
		ok(t, w.Pin(t.Context(), w.name("k"), info, h))
	}
	if err := w.Pin(t.Context(), w.name("k"), info, orders); !errors.Is(err, pin.ErrTooMany) {
		t.Errorf("one more: %v", err)
	}
	if now := w.head(t, "k"); now.ETag != info.ETag {
		t.Errorf("now %+v", now)
	}
	body, _, err := w.objects.Get(t.Context(), w.name("k"), 0, info.ETag)
	ok(t, err)
	ok(t, body.Close())
}

// TestRaceOnWeed: eight pin one object at once, for the same holder and for
// others, while it is put again and again. Everybody succeeds, and what is pinned
// last is pinned.
func TestRaceOnWeed(t *testing.T) {
	w := onWeed(t)
	data := noise(3000)
	ok(t, w.put(t.Context(), "k", data))
	info := w.head(t, "k")
	var done atomic.Bool
	var pins, refused, puts atomic.Int64
	var g, over errgroup.Group
	for i := range 8 {
		h := orders
		if i%2 == 1 {
			h = pin.Holder{Topic: "t", Incarnation: fmt.Sprintf("i%d", i)}
		}
		g.Go(func() error {
			for range 25 {
				switch err := w.Pin(t.Context(), w.name("k"), info, h); {
				case errors.Is(err, filer.ErrConflict):
					refused.Add(1)
				case err != nil:
					return err
				}
				pins.Add(1)
			}
			return nil
		})
	}
	over.Go(func() error {
		for !done.Load() {
			if err := w.put(t.Context(), "k", data); err != nil {
				return err
			}
			puts.Add(1)
		}
		return nil
	})
	err := g.Wait()
	done.Store(true)
	ok(t, errors.Join(err, over.Wait()))
	t.Logf("%d pins, %d refused after %d overwrites", pins.Load(), refused.Load(), puts.Load())
	if refused.Load() > 0 {
		t.Errorf("%d of %d pins met others at each try", refused.Load(), pins.Load())
	}
	ok(t, w.Pin(t.Context(), w.name("k"), info, orders))
	marks, err := w.Held(t.Context(), w.name("k"))
	if err != nil || len(marks) == 0 || marks[len(marks)-1].Holder != orders {
		t.Errorf("held by %+v, %v", marks, err)
	}
}

// TestUnpinRaceOnWeed: an unpin never takes away a mark newer than the one that
// it was told of.
func TestUnpinRaceOnWeed(t *testing.T) {
	w := onWeed(t)
	ok(t, w.put(t.Context(), "k", []byte("bytes")))
	info := w.head(t, "k")
	for range 100 {
		ok(t, w.Pin(t.Context(), w.name("k"), info, orders))
		marks, err := w.Held(t.Context(), w.name("k"))
		ok(t, err)
		var g errgroup.Group
		g.Go(func() error { return w.Pin(t.Context(), w.name("k"), info, orders) })
		g.Go(func() error {
			err := w.Unpin(t.Context(), w.name("k"), marks[0])
			if errors.Is(err, filer.ErrConflict) {
				return nil
			}
			return err
		})
		ok(t, g.Wait())
		if now, err := w.Held(t.Context(), w.name("k")); err != nil || len(now) != 1 || now[0] == marks[0] {
			t.Fatalf("held by %+v, %v", now, err)
		}
	}
}

// BenchmarkPin pins objects after their HEAD, each another one.
func BenchmarkPin(b *testing.B) {
	const objects = 200
	w := onWeed(b)
	for i := range objects {
		if err := w.put(b.Context(), fmt.Sprint(i), []byte(strings.Repeat("x", i))); err != nil {
			b.Fatal(err)
		}
	}
	infos := make([]object.Info, objects)
	for i := range infos {
		infos[i] = w.head(b, fmt.Sprint(i))
	}
	for _, at := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d at once", at), func(b *testing.B) {
			var g errgroup.Group
			g.SetLimit(at)
			for i := range b.N {
				g.Go(func() error { return w.Pin(b.Context(), w.name(fmt.Sprint(i%objects)), infos[i%objects], orders) })
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pins/s")
		})
	}
}
