package seaweed_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/spillway-mq/spillway/infra/devstack/devtest"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/filertest"
	"github.com/spillway-mq/spillway/internal/filer/seaweed"
)

// gateway is the real S3 gateway.
type gateway struct{ *s3.Client }

func s3Gateway(t testing.TB) gateway {
	i := devtest.Weed(t).Info.S3
	return gateway{s3.New(s3.Options{
		BaseEndpoint: &i.URL, UsePathStyle: true, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider(i.AccessKey, i.SecretKey, ""),
	})}
}

func (g gateway) MakeBucket(t *testing.T, versions bool) string {
	t.Helper()
	bucket := "o-" + strings.ToLower(rand.Text()[:12])
	if _, err := g.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		t.Fatal(err)
	}
	if versions {
		g.version(t, bucket, types.BucketVersioningStatusEnabled)
	}
	return bucket
}

func (g gateway) version(t *testing.T, bucket string, status types.BucketVersioningStatus) {
	t.Helper()
	_, err := g.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: &bucket, VersioningConfiguration: &types.VersioningConfiguration{Status: status},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// partSize is where Put begins to upload in parts.
const partSize = 8 << 20

func (g gateway) Put(ctx context.Context, bucket, key string, data []byte, attrs filer.Attrs) (string, error) {
	meta := map[string]string{"other": "theirs"}
	for k, v := range attrs {
		meta["spillway-"+strings.ToLower(k)] = v
	}
	tags := aws.String("colour=blue")
	if len(data) > partSize {
		return g.putParts(ctx, &s3.CreateMultipartUploadInput{Bucket: &bucket, Key: &key, Metadata: meta, Tagging: tags, ContentType: aws.String("text/x-odd")}, data)
	}
	out, err := g.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &bucket, Key: &key, Body: bytes.NewReader(data), Metadata: meta, Tagging: tags, ContentType: aws.String("text/x-odd"),
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.VersionId), nil
}

func (g gateway) putParts(ctx context.Context, in *s3.CreateMultipartUploadInput, data []byte) (string, error) {
	up, err := g.CreateMultipartUpload(ctx, in)
	if err != nil {
		return "", err
	}
	var parts []types.CompletedPart
	for len(data) > 0 {
		part, number := data[:min(partSize, len(data))], int32(len(parts)+1)
		data = data[len(part):]
		out, err := g.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: in.Bucket, Key: in.Key, UploadId: up.UploadId, PartNumber: &number, Body: bytes.NewReader(part),
		})
		if err != nil {
			return "", err
		}
		parts = append(parts, types.CompletedPart{ETag: out.ETag, PartNumber: &number})
	}
	out, err := g.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: in.Bucket, Key: in.Key, UploadId: up.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err != nil {
		return "", err
	}
	return aws.ToString(out.VersionId), nil
}

func (g gateway) Delete(ctx context.Context, n filer.ObjectName) error {
	_, err := g.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &n.Bucket, Key: &n.Key, VersionId: version(n)})
	return err
}

func version(n filer.ObjectName) *string {
	if n.Version == "" {
		return nil
	}
	return &n.Version
}

func (g gateway) Get(ctx context.Context, n filer.ObjectName) (seen filertest.Seen, err error) {
	out, err := g.GetObject(ctx, &s3.GetObjectInput{Bucket: &n.Bucket, Key: &n.Key, VersionId: version(n)})
	if err != nil {
		return seen, err
	}
	data, err := io.ReadAll(out.Body)
	if err := errors.Join(err, out.Body.Close()); err != nil {
		return seen, err
	}
	head, err := g.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &n.Bucket, Key: &n.Key, VersionId: version(n)})
	if err != nil {
		return seen, err
	}
	tags, err := g.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &n.Bucket, Key: &n.Key, VersionId: version(n)})
	if err != nil {
		return seen, err
	}
	if aws.ToString(out.ETag) != aws.ToString(head.ETag) || aws.ToInt64(head.ContentLength) != int64(len(data)) {
		return seen, fmt.Errorf("get and head differ: %s and %s, %d bytes and %d", *out.ETag, *head.ETag, len(data), *head.ContentLength)
	}
	seen = filertest.Seen{
		Size: int64(len(data)), ETag: strings.Trim(aws.ToString(head.ETag), `"`), Version: aws.ToString(head.VersionId),
		Modified: aws.ToTime(head.LastModified), Data: data, Rest: map[string]string{"type": aws.ToString(head.ContentType)},
	}
	for k, v := range head.Metadata {
		if k == "other" || k == "spillway-sha256" {
			seen.Rest["meta "+k] = v
		}
	}
	for _, tag := range tags.TagSet {
		seen.Rest["tag "+*tag.Key] = *tag.Value
	}
	seen.Rest["storage"] = string(head.StorageClass) + aws.ToString(head.Expiration) + aws.ToString(head.ChecksumCRC32)
	return seen, nil
}

func TestObjects(t *testing.T) {
	c := dial(t, seaweed.Config{})
	filertest.RunObjects(t, c, c, s3Gateway(t))
}
