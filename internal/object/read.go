package object

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Head looks at an object. A version of "" is the latest.
func (s *Store) Head(ctx context.Context, bucket, key, version string) (Info, error) {
	n := Name{bucket, key, version}
	if err := n.Check(); err != nil {
		return Info{}, fmt.Errorf("head %s: %w", quote(n), err)
	}
	out, err := s.api.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &bucket, Key: &key, VersionId: optional(version), ChecksumMode: types.ChecksumModeEnabled,
	})
	if err != nil {
		return Info{}, s.absent(ctx, n, fail(ctx, "head", n, err))
	}
	if out.ContentLength == nil {
		return Info{}, &UnavailableError{Op: "head", Name: n, Err: errors.New("the answer has no size")}
	}
	found, err := versionOf(out.VersionId)
	if err != nil {
		return Info{}, &UnavailableError{Op: "head", Name: n, Err: err}
	}
	return Info{
		Size: *out.ContentLength, ETag: unquote(out.ETag), Version: found,
		ContentType: aws.ToString(out.ContentType), SHA256: digestOf(out.ChecksumSHA256, out.Metadata),
		Modified: aws.ToTime(out.LastModified), Pins: pinsOf(out.Metadata),
	}, nil
}

// absent finds out whether a HEAD, whose answers have no text, met no object or
// not even a bucket.
func (s *Store) absent(ctx context.Context, n Name, err error) error {
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrDeleted) || s.hasBucket(ctx, "head", n) {
		return err
	}
	return failed("head", n, ErrNoBucket, "404")
}

// hasBucket is false if the endpoint says that there is no such bucket. Without an
// answer, whoever asks will meet the reason again.
func (s *Store) hasBucket(ctx context.Context, op string, n Name) bool {
	if _, ok := s.known.Load(n.Bucket); ok {
		return true
	}
	_, err := s.api.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &n.Bucket})
	if err == nil {
		s.known.Store(n.Bucket, true)
		return true
	}
	return !errors.Is(fail(ctx, op, n, err), ErrNotFound)
}

// Get reads an object from byte off on. With ifMatch, it must have this ETag. The
// bytes come as the endpoint sends them: what reads the body to io.EOF has all of
// them, checked against the endpoint's own checksum if there is one and off is 0.
// Errors of the body are those of this package; it is not read again by itself.
// The caller closes it; only ctx bounds how long a slow but steady one may take.
func (s *Store) Get(ctx context.Context, n Name, off int64, ifMatch string) (io.ReadCloser, Info, error) {
	if err := n.Check(); err != nil {
		return nil, Info{}, fmt.Errorf("get %s: %w", quote(n), err)
	}
	in := &s3.GetObjectInput{Bucket: &n.Bucket, Key: &n.Key, VersionId: optional(n.Version), ChecksumMode: types.ChecksumModeEnabled}
	switch {
	case off < 0:
		return nil, Info{}, failed("get", n, ErrInvalid, "the offset is negative")
	case off > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", off))
	}
	if ifMatch != "" {
		etag := strings.Trim(ifMatch, `"`)
		if len(etag) > maxVersion || !printable(etag) || strings.Contains(etag, `"`) {
			return nil, Info{}, failed("get", n, ErrChanged, "no object has such an ETag")
		}
		in.IfMatch = aws.String(`"` + etag + `"`)
	}
	out, err := s.api.GetObject(ctx, in)
	if err != nil {
		return nil, Info{}, fail(ctx, "get", n, err)
	}
	info := Info{
		ETag: unquote(out.ETag), ContentType: aws.ToString(out.ContentType),
		SHA256: digestOf(out.ChecksumSHA256, out.Metadata), Modified: aws.ToTime(out.LastModified),
	}
	if info.Version, err = versionOf(out.VersionId); err == nil {
		info.Size, err = sizeOf(out, off)
	}
	if err != nil {
		_ = out.Body.Close()
		return nil, Info{}, &UnavailableError{Op: "get", Name: n, Err: err}
	}
	return &body{ctx: ctx, name: n, from: out.Body}, info, nil
}

// sizeOf is the whole object's size. An endpoint that does not heed ranges is
// found here, before its bytes are taken for others.
func sizeOf(out *s3.GetObjectOutput, off int64) (int64, error) {
	if off == 0 && out.ContentRange == nil {
		if out.ContentLength == nil {
			return 0, errors.New("the answer has no size")
		}
		return *out.ContentLength, nil
	}
	var first, last, size int64
	_, err := fmt.Sscanf(aws.ToString(out.ContentRange), "bytes %d-%d/%d", &first, &last, &size)
	if err != nil || first != off || last != size-1 {
		return 0, fmt.Errorf("asked for the bytes from %d on, and got %q", off, clip(aws.ToString(out.ContentRange)))
	}
	return size, nil
}

// body turns the errors of a stream into ours.
type body struct {
	ctx  context.Context
	name Name
	from io.ReadCloser
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case strings.HasPrefix(err.Error(), "checksum did not match"): // the SDK's error has no public type
		return n, failed("get", b.name, ErrCorrupt, clip(err.Error()))
	}
	return n, fail(b.ctx, "get", b.name, err)
}

func (b *body) Close() error { return b.from.Close() }

// maxEmpty is how many pages without a key a listing may have in a row.
const maxEmpty = 100

// errNoList: any well-formed page would pass as a listing of nothing.
var errNoList = errors.New("the answer is not S3's: it is no listing")

// List lists the objects whose keys begin with prefix and come after the key
// after, in the order that the endpoint gives them, page by page as they are
// asked for. After an error it ends.
func (s *Store) List(ctx context.Context, bucket, prefix, after string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		n := Name{Bucket: bucket, Key: prefix}
		if err := checkList(n, after); err != nil {
			yield(Object{}, fmt.Errorf("list %s: %w", quote(n), err))
			return
		}
		in := &s3.ListObjectsV2Input{Bucket: &bucket, Prefix: optional(prefix), StartAfter: optional(after)}
		for empty := 0; ; {
			out, err := s.api.ListObjectsV2(ctx, in)
			if err == nil && out.IsTruncated == nil {
				err = errNoList
			}
			if err != nil {
				yield(Object{}, fail(ctx, "list", n, err))
				return
			}
			for i := range out.Contents {
				if !yield(objectOf(&out.Contents[i]), nil) {
					return
				}
			}
			if !*out.IsTruncated {
				return
			}
			if empty++; len(out.Contents) > 0 {
				empty = 0
			}
			next := aws.ToString(out.NextContinuationToken)
			if next == "" || next == aws.ToString(in.ContinuationToken) || empty > maxEmpty {
				yield(Object{}, &UnavailableError{Op: "list", Name: n, Err: errors.New("the listing does not go on, and does not end")})
				return
			}
			in.ContinuationToken = &next
		}
	}
}

func checkList(n Name, after string) error {
	if err := checkBucket(n.Bucket); err != nil {
		return err
	}
	if len(n.Key) > MaxKey || len(after) > MaxKey {
		return &NameError{"prefix", "it is longer than any key"}
	}
	if err := checkText("prefix", n.Key); err != nil {
		return err
	}
	return checkText("prefix", after)
}

func objectOf(o *types.Object) Object {
	return Object{Key: aws.ToString(o.Key), Info: Info{
		Size: aws.ToInt64(o.Size), ETag: unquote(o.ETag), Modified: aws.ToTime(o.LastModified),
	}}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func unquote(etag *string) string {
	return strings.Trim(strings.TrimPrefix(aws.ToString(etag), "W/"), `"`)
}

// errVersion: S3's versions are such that requests can name them.
var errVersion = errors.New("the answer is not S3's: it has a version that no request can name")

// versionOf: "null" is the version of objects in buckets without versions.
func versionOf(v *string) (string, error) {
	s := aws.ToString(v)
	switch {
	case s == "null":
		return "", nil
	case !isVersion(s):
		return "", errVersion
	}
	return s, nil
}

// digestOf prefers the endpoint's own digest of the whole object to the one that
// whoever put it has written beside.
func digestOf(checksum *string, meta map[string]string) []byte {
	if sum, err := base64.StdEncoding.DecodeString(aws.ToString(checksum)); err == nil && len(sum) == 32 {
		return sum
	}
	if sum, err := hex.DecodeString(meta[sha256Meta]); err == nil && len(sum) == 32 {
		return sum
	}
	return nil
}

// pinsOf leaves of an object's metadata what are pins.
func pinsOf(meta map[string]string) map[string]string {
	pins := map[string]string{}
	for name, value := range meta {
		if strings.HasPrefix(name, pinMeta) {
			pins[name] = value
		}
	}
	return pins
}
