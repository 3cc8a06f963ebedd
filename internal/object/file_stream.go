package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	// FileTries is how often a [File] asks for a byte that does not come, with waits
	// between; each request is made up to [Tries] times.
	FileTries = 5
	fileWait  = 250 * time.Millisecond
	// fileProgress is how many bytes have to come before a body that breaks off again
	// counts as the first.
	fileProgress = 64 << 10
)

// ChangedError tells that an object is not the one that a File is of. It matches
// ErrChanged.
type ChangedError struct {
	Name         Name
	Want, Found  string // ETags; Found is empty if it is not known
	Size, Actual int64  // in bytes; Actual is below 0 if it is not known
}

func (e *ChangedError) Error() string {
	s := fmt.Sprintf("get %s: %v: its ETag should be %q", quote(e.Name), ErrChanged, clip(e.Want))
	if e.Found != "" {
		s += fmt.Sprintf(" and is %q", clip(e.Found))
	}
	if e.Actual >= 0 && e.Actual != e.Size {
		s += fmt.Sprintf(", its size should be %d and is %d", e.Size, e.Actual)
	}
	return s
}

// Is makes it match ErrChanged.
func (e *ChangedError) Is(target error) bool { return target == ErrChanged }

// stream gives the bytes from pos to to, by as many requests as it takes.
type stream struct {
	file   *File
	pos    int64
	to     int64
	body   io.ReadCloser // nil: none is open
	broken error         // what the last body ended with, too early
	tries  int           // without progress
	came   int64         // bytes since the last try
}

// fetch reads all of p, or fails.
func (f *File) fetch(p []byte, off int64) (int, error) {
	s := &stream{file: f, pos: off, to: off + int64(len(p))}
	defer s.close()
	n, err := io.ReadFull(s, p)
	if off == f.front {
		f.front += int64(n)
	} else {
		f.front = -1
	}
	return n, err
}

// Read is as io.Reader has it.
func (s *stream) Read(p []byte) (n int, err error) {
	if p = p[:min(int64(len(p)), s.to-s.pos)]; len(p) == 0 {
		return 0, io.EOF
	}
	for n == 0 {
		if err := s.open(); err != nil {
			return 0, err
		}
		n, err = s.body.Read(p)
		s.pos, s.came = s.pos+int64(n), s.came+int64(n)
		if (err != nil || n == 0) && s.pos < s.to {
			s.close()
			s.broken = s.file.unusable(err)
		}
	}
	return n, nil
}

func (s *stream) close() {
	if s.body != nil {
		_ = s.body.Close() // all that it had to say was read, or does not matter
	}
	s.body = nil
}

// open makes sure that there is a body, which gives what comes at pos.
func (s *stream) open() error {
	for s.body == nil {
		if s.broken != nil {
			if err := s.again(); err != nil {
				return err
			}
		}
		s.body, s.broken = s.file.get(s.pos, s.to)
	}
	return nil
}

// again waits before the next try, or gives what is the end of it.
func (s *stream) again() error {
	if s.came >= fileProgress {
		s.tries = 0
	}
	s.came = 0
	if s.tries++; s.tries >= FileTries || !mayPass(s.broken) {
		err := s.broken
		s.tries, s.broken = 0, nil // whoever can wait may call again
		return err
	}
	s.file.store.log.Debug("an object's bytes have to be asked for again", "bucket", s.file.name.Bucket, "key", s.file.name.Key,
		"offset", s.pos, "try", s.tries, "error", s.broken)
	if s.tries == 1 {
		return nil
	}
	return s.file.rest(s.file.wait << (s.tries - 2))
}

func mayPass(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable)
}

// rest waits, and fails if the File's context ends.
func (f *File) rest(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-f.ctx.Done():
		return fail(f.ctx, "get", f.name, f.ctx.Err())
	}
}

// unusable makes an error of a body that ended too early, where it is none yet.
func (f *File) unusable(err error) error {
	switch {
	case err == nil:
		err = io.ErrNoProgress
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	default:
		return err // body made it
	}
	return &UnavailableError{Op: "get", Name: f.name, Err: err}
}

// get asks for the bytes from from to to.
func (f *File) get(from, to int64) (io.ReadCloser, error) {
	if err := f.name.Check(); err != nil {
		return nil, fmt.Errorf("get %s: %w", quote(f.name), err)
	}
	in := &s3.GetObjectInput{
		Bucket: &f.name.Bucket, Key: &f.name.Key, VersionId: optional(f.name.Version),
		Range: aws.String(fmt.Sprintf("bytes=%d-%d", from, to-1)),
	}
	if f.etag != "" {
		if len(f.etag) > maxVersion || !printable(f.etag) {
			return nil, failed("get", f.name, ErrChanged, "no object has such an ETag")
		}
		in.IfMatch = aws.String(`"` + f.etag + `"`)
	}
	out, err := f.store.api.GetObject(f.ctx, in)
	if err != nil {
		return nil, f.refused(fail(f.ctx, "get", f.name, err))
	}
	if err := f.check(out, from, to); err != nil {
		_ = out.Body.Close()
		return nil, err
	}
	return &body{ctx: f.ctx, name: f.name, from: out.Body}, nil
}

// check compares an answer with what was asked for. That the bytes are those of the
// object and of the range is nowhere else to be seen: an endpoint may heed neither.
func (f *File) check(out *s3.GetObjectOutput, from, to int64) error {
	bad := func(format string, a ...any) error {
		return &UnavailableError{Op: "get", Name: f.name, Err: fmt.Errorf(format, a...)}
	}
	first, last, size := int64(0), aws.ToInt64(out.ContentLength)-1, aws.ToInt64(out.ContentLength)
	if out.ContentLength == nil {
		return bad("the answer has no size")
	}
	if out.ContentRange != nil {
		if _, err := fmt.Sscanf(*out.ContentRange, "bytes %d-%d/%d", &first, &last, &size); err != nil {
			return bad("the answer has the range %q", clip(*out.ContentRange))
		}
	}
	etag := unquote(out.ETag)
	switch {
	case etag == "":
		return bad("the answer has no ETag")
	case f.etag != "" && etag != f.etag, size != f.size:
		return &ChangedError{Name: f.name, Want: f.etag, Found: etag, Size: f.size, Actual: size}
	case first != from || last != to-1 || *out.ContentLength != to-from:
		return bad("asked for the bytes %d to %d, and got %d bytes, said to be %d to %d", from, to-1, *out.ContentLength, first, last)
	}
	f.etag = etag
	return nil
}

// refused finds out which object is there instead, or whether not even the bucket is.
func (f *File) refused(err error) error {
	switch {
	case errors.Is(err, ErrNotFound) && !errors.Is(err, ErrDeleted) && !f.store.hasBucket(f.ctx, "get", f.name):
		return failed("get", f.name, ErrNoBucket, "404")
	case !errors.Is(err, ErrChanged):
		return err
	}
	changed := &ChangedError{Name: f.name, Want: f.etag, Size: f.size, Actual: -1}
	info, lookErr := f.store.Head(f.ctx, f.name.Bucket, f.name.Key, f.name.Version)
	switch {
	case errors.Is(lookErr, ErrNotFound):
		return lookErr
	case lookErr != nil:
		return changed
	}
	if info.ETag == f.etag && info.Size == f.size {
		return &UnavailableError{Op: "get", Name: f.name, Err: errors.New("the endpoint says that the object has changed, and that it has not")}
	}
	changed.Found, changed.Actual = info.ETag, info.Size
	return changed
}

// Check looks whether the object is still the one that the File is of, for files
// that reading does not ask for: those of no bytes.
func (f *File) Check(ctx context.Context) error {
	info, err := f.store.Head(ctx, f.name.Bucket, f.name.Key, f.name.Version)
	if err == nil && (info.Size != f.size || f.etag != "" && info.ETag != f.etag) {
		err = &ChangedError{Name: f.name, Want: f.etag, Found: info.ETag, Size: f.size, Actual: info.Size}
	}
	return err
}
