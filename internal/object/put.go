package object

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Put makes an object of the first size bytes of body, whole or not at all: in
// one request up to [PartSize], else in parts of that size (larger ones if there
// would be over 10,000), of which a few are on their way at a time. It copies
// none of them, and reads body several times: to sign, to check, to send. Each
// request has a checksum that the endpoint compares. Parts of an upload that fails
// are thrown away, if the endpoint can still be reached; a lifecycle rule for
// incomplete uploads does it otherwise. A bucket that was not there is not made by
// it, even where the endpoint would (SeaweedFS does).
//
// On nil the object is there, as durable as the endpoint makes it. After an
// *UnavailableError it may be there or come to be; a Put of the same bytes under
// the same name settles that. Errors of body are returned as they are, wrapped.
func (s *Store) Put(ctx context.Context, n Name, body io.ReaderAt, size int64, o PutOptions) (Info, error) {
	if err := checkPut(n, size, o); err != nil {
		return Info{}, err
	}
	if !s.hasBucket(ctx, "put", n) {
		return Info{}, failed("put", n, ErrNoBucket, "")
	}
	put := s.putParts
	if size <= PartSize {
		put = s.putWhole
	}
	info, err := put(ctx, n, &source{body, size}, o)
	if err != nil {
		return Info{}, putError(ctx, n, err)
	}
	info.Size, info.ContentType, info.SHA256 = size, o.ContentType, bytes.Clone(o.SHA256)
	return info, nil
}

func checkPut(n Name, size int64, o PutOptions) error {
	if err := n.Check(); err != nil {
		return fmt.Errorf("put %s: %w", quote(n), err)
	}
	switch {
	case n.Version != "":
		return failed("put", n, ErrInvalid, "the endpoint chooses the version")
	case size < 0 || size > MaxSize:
		return failed("put", n, ErrInvalid, fmt.Sprintf("%d bytes, and S3 takes 0 to %d", size, int64(MaxSize)))
	case o.SHA256 != nil && len(o.SHA256) != sha256.Size:
		return failed("put", n, ErrInvalid, fmt.Sprintf("a SHA-256 has 32 bytes, this one %d", len(o.SHA256)))
	}
	return nil
}

// putError tells errors of the bytes, which are the caller's, from those of the
// endpoint.
func putError(ctx context.Context, n Name, err error) error {
	var own *sourceError
	if errors.As(err, &own) {
		return fmt.Errorf("put %s: %w", quote(n), own.Err)
	}
	return fail(ctx, "put", n, err)
}

func (s *Store) putWhole(ctx context.Context, n Name, from *source, o PutOptions) (Info, error) {
	if err := from.verify(o.SHA256); err != nil {
		return Info{}, err
	}
	out, err := s.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &n.Bucket, Key: &n.Key, Body: from.part(0, from.size), ContentLength: &from.size,
		ContentType: optional(o.ContentType), Metadata: o.metadata(), IfNoneMatch: o.ifNoneMatch(),
		ChecksumAlgorithm: types.ChecksumAlgorithmCrc32,
	})
	if err == nil && out.ETag == nil {
		err = errNotS3
	}
	if err != nil {
		return Info{}, err
	}
	return putInfo(out.ETag, out.VersionId), nil
}

// putInfo is what the answer says of an object that is there by now. A version that
// no request can name is left out: whoever looks at the object meets it again.
func putInfo(etag, version *string) Info {
	info := Info{ETag: unquote(etag)}
	info.Version, _ = versionOf(version)
	return info
}

// errNotS3: a web server of another kind says 200 to anything.
var errNotS3 = errors.New("the answer is not S3's: it has no ETag or upload id")

func (o PutOptions) metadata() map[string]string {
	meta := pinsOf(o.Pins)
	if o.SHA256 != nil {
		meta[sha256Meta] = hex.EncodeToString(o.SHA256)
	}
	return meta
}

func (o PutOptions) ifNoneMatch() *string {
	if !o.IfNoneMatch {
		return nil
	}
	return aws.String("*")
}

// source is the bytes to be put.
type source struct {
	at   io.ReaderAt
	size int64
}

// sourceError is an error of the bytes to be put.
type sourceError struct{ Err error }

func (e *sourceError) Error() string { return e.Err.Error() }
func (e *sourceError) Unwrap() error { return e.Err }

// verify compares the digest of the bytes with want, if there is one.
func (s *source) verify(want []byte) error {
	if want == nil {
		return nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, s.part(0, s.size)); err != nil {
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, want) {
		return &sourceError{fmt.Errorf("%w: their SHA-256 is %x, not %x", ErrCorrupt, got, want)}
	}
	return nil
}

// part is some of the bytes, or a *sourceError if they are not all there.
func (s *source) part(off, size int64) *part { return &part{io.NewSectionReader(s.at, off, size)} }

type part struct{ section *io.SectionReader }

func (p *part) Seek(off int64, whence int) (int64, error) { return p.section.Seek(off, whence) }

func (p *part) Read(b []byte) (int, error) {
	n, err := p.section.Read(b)
	if err == nil {
		return n, nil
	}
	if !errors.Is(err, io.EOF) {
		return n, &sourceError{fmt.Errorf("read the bytes: %w", err)}
	}
	if pos, _ := p.section.Seek(0, io.SeekCurrent); pos < p.section.Size() {
		return n, &sourceError{fmt.Errorf("read the bytes: %d are missing: %w", p.section.Size()-pos, io.ErrUnexpectedEOF)}
	}
	return n, io.EOF
}
