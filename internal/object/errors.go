package object

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// Errors that callers decide by. The text of each has bucket and key in it. They
// are definite: asking again gives the same until somebody changes something.
// [UnavailableError] is the other kind.
var (
	// ErrNotFound: there is no such object, or no such version of it.
	ErrNotFound = errors.New("there is no such object")
	// ErrNoBucket: there is not even the bucket. It matches ErrNotFound too.
	ErrNoBucket error = &absence{"there is no such bucket"}
	// ErrDeleted: the object was deleted, which a bucket with versions remembers.
	// It matches ErrNotFound too.
	ErrDeleted error = &absence{"the object was deleted"}
	// ErrForbidden: the credentials are wrong, too old, none, or have no right.
	ErrForbidden = errors.New("access is denied")
	// ErrChanged: the object is not the one asked for (another ETag, or it ends
	// before the offset), or a Put with IfNoneMatch met one. After a Put it can be
	// the Put's own object, if the answer to an earlier try was lost.
	ErrChanged = errors.New("the object is another one")
	// ErrCorrupt: bytes and checksum differ, on the way there or back.
	ErrCorrupt = errors.New("the bytes do not have their checksum")
	// ErrInvalid: the request can never succeed (an impossible name, a size over
	// S3's limit, something that the endpoint does not implement).
	ErrInvalid = errors.New("the request is invalid")
)

// absence is a particular way of not being there.
type absence struct{ text string }

func (e *absence) Error() string { return e.text }

// Is makes it match ErrNotFound.
func (e *absence) Is(target error) bool { return target == ErrNotFound }

// UnavailableError says that the endpoint gave no usable answer: it is down, too
// slow, overloaded, wants us elsewhere, or does not speak S3. Whether a Put has
// taken effect is unknown. Requests were tried up to [Tries] times before it;
// whoever can wait may call again.
type UnavailableError struct {
	Op     string // "head", "get", "put", "list"
	Name   Name   // what it was about; of a listing, Key is the prefix
	Status int    // the HTTP status; 0: none came
	Err    error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("%s %s: the S3 endpoint is unavailable: %v", e.Op, quote(e.Name), e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// fail turns what the SDK returns into one of our errors. A context that has
// ended is reported as that, whatever the endpoint did.
func fail(ctx context.Context, op string, n Name, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", op, quote(n), ctx.Err())
	}
	a := answerOf(err)
	if kind := a.kind(); kind != nil {
		return failed(op, n, kind, a.detail())
	}
	return &UnavailableError{Op: op, Name: n, Status: a.status, Err: errors.New(a.detail())}
}

// failed is an error of a definite kind.
func failed(op string, n Name, kind error, detail string) error {
	if detail == "" {
		return fmt.Errorf("%s %s: %w", op, quote(n), kind)
	}
	return fmt.Errorf("%s %s: %w (%s)", op, quote(n), kind, detail)
}

// answer is what an endpoint said instead of doing what it was asked for.
type answer struct {
	status int
	code   string // S3's word for it
	header http.Header
	err    error
}

func answerOf(err error) answer {
	a := answer{err: err}
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) && resp.Response != nil && resp.Response.Response != nil {
		a.status, a.header = resp.Response.StatusCode, resp.Response.Header
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		a.code = api.ErrorCode()
	}
	return a
}

// codes are those whose status alone does not tell what they mean.
var codes = map[string]error{
	"NoSuchBucket":                 ErrNoBucket,
	"ExpiredToken":                 ErrForbidden,
	"InvalidToken":                 ErrForbidden,
	"InvalidAccessKeyId":           ErrForbidden,
	"AuthorizationHeaderMalformed": ErrForbidden,
	"BadDigest":                    ErrCorrupt,
	"InvalidDigest":                ErrCorrupt,
	"XAmzContentSHA256Mismatch":    ErrCorrupt,
	"XAmzContentChecksumMismatch":  ErrCorrupt,
}

// kind is the error that callers decide by; nil: there was no usable answer.
func (a answer) kind() error {
	for _, own := range []error{ErrInvalid, ErrCorrupt} {
		if errors.Is(a.err, own) {
			return own
		}
	}
	if kind := codes[a.code]; kind != nil {
		return kind
	}
	marker := a.header.Get("X-Amz-Delete-Marker") == "true"
	switch s := a.status; {
	case marker && (s == http.StatusNotFound || s == http.StatusMethodNotAllowed):
		return ErrDeleted
	case a.code == "NoSuchUpload", s == http.StatusRequestTimeout, s == http.StatusTooManyRequests:
		return nil // of an upload whose completion has lost its answer, or too slow
	case s == http.StatusNotFound:
		return ErrNotFound
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		return ErrForbidden
	case s == http.StatusPreconditionFailed, s == http.StatusRequestedRangeNotSatisfiable, a.code == "ConditionalRequestConflict":
		return ErrChanged
	case s == http.StatusNotImplemented, s >= 400 && s < 500 && s != http.StatusConflict:
		return ErrInvalid
	}
	return nil
}

// detail says what happened without anything that the request carried: it has
// S3's code, and not the message, in which a server may put what it likes.
func (a answer) detail() string {
	switch {
	case a.status >= 300 && a.status < 400:
		to, err := url.Parse(a.header.Get("Location"))
		if err != nil || to.Host == "" {
			return fmt.Sprintf("%d, a redirect, which is not followed", a.status)
		}
		return fmt.Sprintf("%d, a redirect to %s, which is not followed", a.status, clip(to.Host))
	case a.status >= 400 && a.code != "":
		return fmt.Sprintf("%d %s", a.status, clip(a.code))
	case a.status >= 400:
		return fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	}
	var noAnswer *url.Error
	if errors.As(a.err, &noAnswer) {
		return clip(noAnswer.Err.Error())
	}
	var garbage *smithy.DeserializationError
	if errors.As(a.err, &garbage) {
		return "the answer is not S3's: " + clip(garbage.Err.Error())
	}
	return clip(innermost(a.err).Error())
}

// innermost peels the SDK's layers, which repeat what our messages say already.
func innermost(err error) error {
	var tries *retry.MaxAttemptsError
	if errors.As(err, &tries) {
		err = tries.Err
	}
	var resp *smithyhttp.ResponseError
	if errors.As(err, &resp) {
		err = resp.Err
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err
}

// quote keeps what others named short and on one line in messages.
func quote(n Name) string {
	s := strconv.Quote(n.String())
	return clip(s[1 : len(s)-1])
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s), "")
}
