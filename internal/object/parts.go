package object

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"
)

// The SDK's transfer manager is not used: it keeps every part on its way in
// memory once more, and reports failures through the global logger.

const (
	parallel     = 4 // parts of one upload at a time
	maxParts     = 10_000
	abortTimeout = 10 * time.Second
)

// partSize divides an object into at most maxParts parts.
func partSize(size int64) int64 {
	const mib = 1 << 20
	least := (size + maxParts - 1) / maxParts
	return max(PartSize, (least+mib-1)/mib*mib)
}

// upload is a multipart upload that was begun.
type upload struct {
	api   *s3.Client
	name  Name
	id    *string
	from  *source
	parts []types.CompletedPart
}

func (s *Store) putParts(ctx context.Context, n Name, from *source, o PutOptions) (Info, error) {
	begun, err := s.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: &n.Bucket, Key: &n.Key, ContentType: optional(o.ContentType), Metadata: o.metadata(),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err == nil && begun.UploadId == nil {
		err = errNotS3
	}
	if err != nil {
		return Info{}, err
	}
	size := partSize(from.size)
	u := &upload{api: s.api, name: n, id: begun.UploadId, from: from}
	u.parts = make([]types.CompletedPart, (from.size+size-1)/size)
	err = u.send(ctx, size, o.SHA256)
	if err == nil {
		var info Info
		if info, err = u.complete(ctx, o); err == nil {
			return info, nil
		}
	}
	if failure := u.abort(ctx); failure != nil {
		s.log.Warn("parts of an upload that failed are left over", "bucket", n.Bucket, "key", n.Key, "error", answerOf(failure).detail())
	}
	return Info{}, err
}

// send uploads all parts, and compares the digest of the whole beside.
func (u *upload) send(ctx context.Context, size int64, digest []byte) error {
	g, all := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	g.Go(func() error { return u.from.verify(digest) })
	for i := range u.parts {
		if all.Err() != nil {
			break
		}
		g.Go(func() error { return u.part(all, i, size) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

func (u *upload) part(ctx context.Context, i int, size int64) error {
	off, number := int64(i)*size, aws.Int32(int32(i)+1)
	size = min(size, u.from.size-off)
	out, err := u.api.UploadPart(ctx, &s3.UploadPartInput{
		Bucket: &u.name.Bucket, Key: &u.name.Key, UploadId: u.id, PartNumber: number,
		Body: u.from.part(off, size), ContentLength: &size, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err == nil && out.ETag == nil {
		err = errNotS3
	}
	if err != nil {
		return err
	}
	u.parts[i] = types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32: out.ChecksumCRC32}
	return nil
}

func (u *upload) complete(ctx context.Context, o PutOptions) (Info, error) {
	out, err := u.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.name.Bucket, Key: &u.name.Key, UploadId: u.id, IfNoneMatch: o.ifNoneMatch(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: u.parts},
	})
	if err == nil && out.ETag == nil {
		err = errNotS3
	}
	if err != nil {
		return Info{}, err
	}
	return putInfo(out.ETag, out.VersionId), nil
}

// abort throws the parts away, even if ctx has ended. After a completion whose
// answer was lost it changes nothing.
func (u *upload) abort(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	_, err := u.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.name.Bucket, Key: &u.name.Key, UploadId: u.id,
	})
	if answerOf(err).code == "NoSuchUpload" {
		return nil
	}
	return err
}
