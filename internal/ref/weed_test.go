package ref_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

func TestMain(m *testing.M) { devtest.Main(m) }

// weed is the stack's S3 gateway with a bucket for this test.
type weed struct {
	*object.Store
	api    *s3.Client // past the code under test
	bucket string
}

func onWeed(t *testing.T) weed {
	t.Helper()
	i := devtest.Weed(t).Info.S3
	store, err := object.Open(t.Context(), object.Config{Endpoint: i.URL, AccessKey: i.AccessKey, SecretKey: i.SecretKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	w := weed{Store: store, bucket: "r-" + strings.ToLower(rand.Text()[:12])}
	w.api = s3.New(s3.Options{
		BaseEndpoint: &i.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	})
	if _, err := w.api.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &w.bucket}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w weed) put(t *testing.T, data []byte) {
	t.Helper()
	sum := sha256.Sum256(data)
	_, err := w.Put(t.Context(), ref.Name{Bucket: w.bucket, Key: "k"}, bytes.NewReader(data), int64(len(data)), object.PutOptions{SHA256: sum[:]})
	if err != nil {
		t.Fatal(err)
	}
}

// inParts puts the same bytes in two parts, as another client may, so that the
// ETag is another one.
func (w weed) inParts(t *testing.T, data []byte, meta map[string]string) {
	t.Helper()
	key := "k"
	begun, err := w.api.CreateMultipartUpload(t.Context(), &s3.CreateMultipartUploadInput{Bucket: &w.bucket, Key: &key, Metadata: meta})
	if err != nil {
		t.Fatal(err)
	}
	done := &types.CompletedMultipartUpload{}
	for i, part := range [][]byte{data[:5<<20], data[5<<20:]} {
		number := int32(i) + 1
		out, err := w.api.UploadPart(t.Context(), &s3.UploadPartInput{
			Bucket: &w.bucket, Key: &key, UploadId: begun.UploadId, PartNumber: &number, Body: bytes.NewReader(part),
		})
		if err != nil {
			t.Fatal(err)
		}
		done.Parts = append(done.Parts, types.CompletedPart{PartNumber: &number, ETag: out.ETag})
	}
	_, err = w.api.CompleteMultipartUpload(t.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: &w.bucket, Key: &key, UploadId: begun.UploadId, MultipartUpload: done,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// check compares what a HEAD and a reader find with want.
func (w weed) check(t *testing.T, what string, f record.Ref, want ref.State) {
	t.Helper()
	info, err := w.Head(t.Context(), w.bucket, "k", f.Version)
	if err == nil {
		err = ref.Compare(f, info)
	}
	if got := ref.StateOf(err); got != want {
		t.Errorf("%s: the head says %s, want %s: %v", what, got, want, err)
	}
	r := ref.NewReader(t.Context(), w, f)
	n, err := io.Copy(io.Discard, r)
	if got := ref.StateOf(err); got != want || err == nil && n != info.Size {
		t.Errorf("%s: the reader says %s, want %s: %d bytes, %v", what, got, want, n, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestStatesOfAnObject: what happens to an object is seen, and is what it is.
func TestStatesOfAnObject(t *testing.T) {
	w := onWeed(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 6<<16)
	sum := sha256.Sum256(data)
	w.put(t, data)
	info, err := w.Head(t.Context(), w.bucket, "k", "")
	if err != nil {
		t.Fatal(err)
	}
	f := ref.From(ref.Name{Bucket: w.bucket, Key: "k"}, info)
	bare := f
	bare.SHA256 = nil
	w.check(t, "as it was", f, ref.Valid)
	w.put(t, data)
	w.check(t, "put once more", f, ref.Valid)
	w.inParts(t, data, map[string]string{"spillway-sha256": hex.EncodeToString(sum[:])})
	w.check(t, "put once more in parts", f, ref.Valid)
	w.check(t, "put once more in parts, unproven", bare, ref.Changed)
	w.inParts(t, data, nil)
	w.check(t, "put once more in parts, without a digest", f, ref.Changed)
	w.put(t, data[:len(data)-1])
	w.check(t, "truncated", f, ref.Changed)
	w.put(t, append(data[:len(data)-1:len(data)-1], 'x'))
	w.check(t, "overwritten", f, ref.Changed)
	w.put(t, nil)
	w.check(t, "emptied", f, ref.Changed)
	w.delete(t)
	w.check(t, "deleted", f, ref.Missing)
	w.put(t, data)
	w.check(t, "back", f, ref.Valid)
	bare.URL = strings.Replace(f.URL, w.bucket, "no-such-bucket", 1)
	w.bucket = "no-such-bucket"
	w.check(t, "no bucket", bare, ref.Missing)
}

func (w weed) delete(t *testing.T) {
	t.Helper()
	key := "k"
	if _, err := w.api.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &w.bucket, Key: &key}); err != nil {
		t.Fatal(err)
	}
}

// TestVersionsOfAnObject: a reference with a version outlives what is put later,
// and a delete marker.
func TestVersionsOfAnObject(t *testing.T) {
	w := onWeed(t)
	_, err := w.api.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &w.bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.put(t, []byte("one"))
	info, err := w.Head(t.Context(), w.bucket, "k", "")
	if err != nil {
		t.Fatal(err)
	}
	one := ref.From(ref.Name{Bucket: w.bucket, Key: "k"}, info)
	latest := one
	latest.Version = ""
	w.check(t, "the first", one, ref.Valid)
	w.put(t, []byte("two"))
	w.check(t, "the first, after the second", one, ref.Valid)
	w.check(t, "the latest, after the second", latest, ref.Changed)
	w.delete(t)
	w.check(t, "the first, after the delete", one, ref.Valid)
	w.check(t, "the latest, after the delete", latest, ref.Deleted)
}

// TestChangedWhileRead: bytes of two objects never come as one.
func TestChangedWhileRead(t *testing.T) {
	w := onWeed(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	w.put(t, data)
	info, err := w.Head(t.Context(), w.bucket, "k", "")
	if err != nil {
		t.Fatal(err)
	}
	f := ref.From(ref.Name{Bucket: w.bucket, Key: "k"}, info)
	r := ref.NewReader(t.Context(), breaking{w.Store, func() { w.put(t, bytes.ToUpper(data)) }}, f)
	n, err := io.Copy(io.Discard, r)
	if ref.StateOf(err) != ref.Changed || n >= int64(len(data)) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// breaking is a store whose connections break after some bytes of the object.
type breaking struct {
	*object.Store
	then func()
}

func (b breaking) Get(ctx context.Context, n ref.Name, off int64, ifMatch string) (io.ReadCloser, object.Info, error) {
	body, info, err := b.Store.Get(ctx, n, off, ifMatch)
	if err != nil || off > 0 {
		return body, info, err
	}
	return &brokenBody{ReadCloser: body, left: 1000, then: b.then}, info, nil
}

type brokenBody struct {
	io.ReadCloser
	left int
	then func()
}

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		b.then()
		return 0, broken
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
