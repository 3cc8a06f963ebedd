package object_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/object"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weed is the stack's S3 gateway, with a bucket for this test.
type weed struct {
	*object.Store
	api    *s3.Client // past the code under test
	bucket string
}

func onWeed(t *testing.T) weed {
	t.Helper()
	w := weed{Store: open(t, weedConfig(t)), bucket: "t-" + strings.ToLower(rand.Text()[:12])}
	c := weedConfig(t)
	w.api = s3.New(s3.Options{
		BaseEndpoint: &c.Endpoint, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, ""),
	})
	if _, err := w.api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &w.bucket}); err != nil {
		t.Fatal(err)
	}
	return w
}

func weedConfig(t *testing.T) object.Config {
	t.Helper()
	i := devtest.Weed(t).Info.S3
	return object.Config{Endpoint: i.URL, AccessKey: i.AccessKey, SecretKey: i.SecretKey}
}

func open(t *testing.T, c object.Config) *object.Store {
	t.Helper()
	s, err := object.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func (w weed) name(key string) object.Name { return object.Name{Bucket: w.bucket, Key: key} }

func (w weed) put(t *testing.T, key, data string) object.Info {
	t.Helper()
	info, err := w.Put(t.Context(), w.name(key), strings.NewReader(data), int64(len(data)), object.PutOptions{})
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return info
}

func read(t *testing.T, s *object.Store, n object.Name, off int64, ifMatch string) (string, object.Info, error) {
	t.Helper()
	body, info, err := s.Get(t.Context(), n, off, ifMatch)
	if err != nil {
		return "", info, err
	}
	defer func() { _ = body.Close() }()
	data, err := io.ReadAll(body)
	return string(data), info, err
}

// TestInfo: what is known of an object after a Put, and what is kept with it.
func TestInfo(t *testing.T) {
	w := onWeed(t)
	for _, data := range []string{"", "some bytes"} {
		sum := sha256.Sum256([]byte(data))
		o := object.PutOptions{ContentType: "text/x-odd", SHA256: sum[:]}
		put, err := w.Put(t.Context(), w.name("k"+data), strings.NewReader(data), int64(len(data)), o)
		if err != nil {
			t.Fatal(err)
		}
		head, err := w.Head(t.Context(), w.bucket, "k"+data, "")
		if err != nil || head.ETag != put.ETag || head.Size != int64(len(data)) || !bytes.Equal(head.SHA256, sum[:]) ||
			head.ContentType != o.ContentType || head.Modified.IsZero() || head.Version != "" {
			t.Errorf("%q: %+v, %v", data, head, err)
		}
		got, info, err := read(t, w.Store, w.name("k"+data), 0, "")
		if err != nil || got != data || !bytes.Equal(info.SHA256, sum[:]) {
			t.Errorf("%q: %q, %+v, %v", data, got, info, err)
		}
	}
	head, err := w.Head(t.Context(), w.bucket, w.foreign(t), "")
	sum := sha256.Sum256([]byte("foreign"))
	if err != nil || !bytes.Equal(head.SHA256, sum[:]) {
		t.Errorf("the endpoint's own checksum: %x, %v", head.SHA256, err)
	}
}

// foreign puts an object with S3's own SHA-256, as other clients do.
func (w weed) foreign(t *testing.T) string {
	t.Helper()
	key := "foreign"
	_, err := w.api.PutObject(t.Context(), &s3.PutObjectInput{
		Bucket: &w.bucket, Key: &key, Body: strings.NewReader(key), ChecksumAlgorithm: types.ChecksumAlgorithmSha256,
	})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func noise(size int) []byte {
	data := make([]byte, size)
	_, _ = mathrand.NewChaCha8([32]byte{1}).Read(data)
	return data
}

// TestMultipart: large objects go in parts, and come back from any byte on.
func TestMultipart(t *testing.T) {
	w := onWeed(t)
	for size, offsets := range map[int][]int64{
		object.PartSize:     {object.PartSize - 1},
		object.PartSize + 1: {1, object.PartSize},
		64 << 20:            {0, object.PartSize - 1, 64<<20 - 1},
	} {
		data := noise(size)
		sum := sha256.Sum256(data)
		put, err := w.Put(t.Context(), w.name("big"), bytes.NewReader(data), int64(size), object.PutOptions{SHA256: sum[:]})
		if err != nil {
			t.Fatal(err)
		}
		if parts := strings.Contains(put.ETag, "-"); parts != (size > object.PartSize) {
			t.Errorf("%d bytes: ETag %q", size, put.ETag)
		}
		for _, off := range offsets {
			body, info, err := w.Get(t.Context(), w.name("big"), off, put.ETag)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, data[off:]) || info.Size != int64(size) || !bytes.Equal(info.SHA256, sum[:]) {
				t.Errorf("%d bytes from %d: %d bytes, %+v, %v", size, off, len(got), info, err)
			}
			_ = body.Close()
		}
	}
	w.noUploads(t)
}

func (w weed) noUploads(t *testing.T) {
	t.Helper()
	out, err := w.api.ListMultipartUploads(t.Context(), &s3.ListMultipartUploadsInput{Bucket: &w.bucket})
	if err != nil || len(out.Uploads) != 0 {
		t.Errorf("uploads left over: %d, %v", len(out.Uploads), err)
	}
}

// TestAbsent tells an object that is missing from a bucket that is.
func TestAbsent(t *testing.T) {
	w := onWeed(t)
	ctx := t.Context()
	for range 2 { // the second time, the bucket is known
		_, err := w.Head(ctx, w.bucket, "no", "")
		if !errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrNoBucket) || errors.Is(err, object.ErrDeleted) {
			t.Errorf("head: %v", err)
		}
	}
	if _, _, err := w.Get(ctx, w.name("no"), 0, ""); !errors.Is(err, object.ErrNotFound) || errors.Is(err, object.ErrNoBucket) {
		t.Errorf("get: %v", err)
	}
	const bucket = "there-is-no-such-bucket"
	n := object.Name{Bucket: bucket, Key: "k"}
	_, head := w.Head(ctx, bucket, "k", "")
	_, _, get := w.Get(ctx, n, 0, "")
	_, put := w.Put(ctx, n, strings.NewReader("x"), 1, object.PutOptions{})
	var list error
	for _, err := range w.List(ctx, bucket, "", "") {
		list = err
	}
	for op, err := range map[string]error{"head": head, "get": get, "put": put, "list": list} {
		if !errors.Is(err, object.ErrNoBucket) || !errors.Is(err, object.ErrNotFound) || !strings.Contains(err.Error(), bucket) {
			t.Errorf("%s: %v", op, err)
		}
	}
	for o, err := range w.List(ctx, w.bucket, "", "") {
		t.Errorf("an empty bucket has %v, %v", o, err)
	}
}

// TestChanged: conditions, and offsets beyond the end.
func TestChanged(t *testing.T) {
	w := onWeed(t)
	old := w.put(t, "k", "one")
	if _, err := w.Put(t.Context(), w.name("k"), strings.NewReader("x"), 1, object.PutOptions{IfNoneMatch: true}); !errors.Is(err, object.ErrChanged) {
		t.Errorf("put over: %v", err)
	}
	big := int64(object.PartSize + 1)
	if _, err := w.Put(t.Context(), w.name("k"), bytes.NewReader(make([]byte, big)), big, object.PutOptions{IfNoneMatch: true}); !errors.Is(err, object.ErrChanged) {
		t.Errorf("put over in parts: %v", err)
	}
	w.noUploads(t)
	if _, err := w.Put(t.Context(), w.name("new"), strings.NewReader("x"), 1, object.PutOptions{IfNoneMatch: true}); err != nil {
		t.Errorf("put new: %v", err)
	}
	if got, _, err := read(t, w.Store, w.name("k"), 1, `"`+old.ETag+`"`); err != nil || got != "ne" {
		t.Errorf("the same: %q, %v", got, err)
	}
	w.put(t, "k", "another")
	for _, etag := range []string{old.ETag, "odd\r\nX-Header: 1", `a"b`, strings.Repeat("e", 5000)} {
		if _, _, err := w.Get(t.Context(), w.name("k"), 0, etag); !errors.Is(err, object.ErrChanged) {
			t.Errorf("ETag %.20q: %v", etag, err)
		}
	}
	for _, off := range []int64{7, 8, 1 << 40} {
		if _, _, err := w.Get(t.Context(), w.name("k"), off, ""); !errors.Is(err, object.ErrChanged) {
			t.Errorf("from %d: %v", off, err)
		}
	}
	if _, _, err := w.Get(t.Context(), w.name("k"), -1, ""); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("from -1: %v", err)
	}
}

// TestForbidden: wrong keys, and none.
func TestForbidden(t *testing.T) {
	w := onWeed(t)
	w.put(t, "k", "secret")
	c := weedConfig(t)
	for name, c := range map[string]object.Config{
		"another secret": {Endpoint: c.Endpoint, AccessKey: c.AccessKey, SecretKey: "wrong-secret-key"},
		"another key":    {Endpoint: c.Endpoint, AccessKey: "NOBODY", SecretKey: "wrong-secret-key"},
		"none":           {Endpoint: c.Endpoint, Anonymous: true},
	} {
		s := open(t, c)
		_, head := s.Head(t.Context(), w.bucket, "k", "")
		_, _, get := s.Get(t.Context(), w.name("k"), 0, "")
		_, put := s.Put(t.Context(), w.name("k"), strings.NewReader("x"), 1, object.PutOptions{})
		var list error
		for _, err := range s.List(t.Context(), w.bucket, "", "") {
			list = err
		}
		for op, err := range map[string]error{"head": head, "get": get, "put": put, "list": list} {
			if !errors.Is(err, object.ErrForbidden) || strings.Contains(err.Error(), "wrong-secret-key") {
				t.Errorf("%s, %s: %v", name, op, err)
			}
		}
	}
}

// TestList: pages, prefixes, and going on after a key.
func TestList(t *testing.T) {
	w := onWeed(t)
	var keys []string
	for _, dir := range []string{"a/", "b/"} {
		for i := range 12 {
			keys = append(keys, dir+string(rune('a'+i)))
		}
	}
	for _, key := range keys {
		w.put(t, key, key)
	}
	list := func(prefix, after string) (got []string) {
		for o, err := range w.List(t.Context(), w.bucket, prefix, after) {
			if err != nil {
				t.Fatal(err)
			}
			if o.Size != 3 || o.ETag == "" || o.Modified.IsZero() {
				t.Errorf("%+v", o)
			}
			got = append(got, o.Key)
		}
		return got
	}
	if got := list("", ""); !slices.Equal(got, keys) {
		t.Errorf("all: %q", got)
	}
	if got := list("b/", "b/c"); !slices.Equal(got, keys[15:]) {
		t.Errorf("after b/c: %q", got)
	}
	for o, err := range w.List(t.Context(), w.bucket, "", "") {
		if err != nil || o.Key != keys[0] {
			t.Errorf("the first: %q, %v", o.Key, err)
		}
		break // and no more requests
	}
}

// TestVersions: a version is read though it is not the latest, and a deleted
// object is told from one that never was.
func TestVersions(t *testing.T) {
	w := onWeed(t)
	_, err := w.api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &w.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	one, two := w.put(t, "k", "one"), w.put(t, "k", "the other")
	if one.Version == "" || one.Version == two.Version {
		t.Fatalf("versions %q and %q", one.Version, two.Version)
	}
	n := w.name("k")
	n.Version = one.Version
	if got, info, err := read(t, w.Store, n, 0, one.ETag); err != nil || got != "one" || info.Version != one.Version {
		t.Errorf("the first: %q, %+v, %v", got, info, err)
	}
	if head, err := w.Head(t.Context(), w.bucket, "k", ""); err != nil || head.Version != two.Version {
		t.Errorf("the latest: %+v, %v", head, err)
	}
	if _, err := w.Put(t.Context(), n, strings.NewReader("x"), 1, object.PutOptions{}); !errors.Is(err, object.ErrInvalid) {
		t.Errorf("put a version: %v", err)
	}
	if _, err := w.Head(t.Context(), w.bucket, "k", "no-such-version"); !errors.Is(err, object.ErrNotFound) {
		t.Errorf("another version: %v", err)
	}
	if _, err := w.api.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &w.bucket, Key: aws.String("k")}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Head(t.Context(), w.bucket, "k", ""); !errors.Is(err, object.ErrDeleted) || !errors.Is(err, object.ErrNotFound) {
		t.Errorf("head of the deleted: %v", err)
	}
	if _, _, err := w.Get(t.Context(), w.name("k"), 0, ""); !errors.Is(err, object.ErrDeleted) {
		t.Errorf("get of the deleted: %v", err)
	}
	if got, _, err := read(t, w.Store, n, 0, ""); err != nil || got != "one" {
		t.Errorf("the first, still: %q, %v", got, err)
	}
}
