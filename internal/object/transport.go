package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// maxAnswer bounds answers that are no object's bytes: a page of a listing is
	// under 4 MiB. maxError bounds those that are errors, which the SDK keeps.
	maxAnswer = 8 << 20
	maxError  = 64 << 10
	// maxHeader bounds the headers of an answer: an object's metadata has 2 KB.
	maxHeader   = 64 << 10
	dialTimeout = 5 * time.Second
	// slowAnswer is how much longer than [Config].Timeout the answer to a write may
	// take: S3 needs minutes to put together an object of many parts.
	slowAnswer = 10
)

// guard is the [http.RoundTripper] between the SDK and an endpoint that may do
// anything. It gives an attempt up that makes no progress for the timeout: no
// byte of the request goes out, no header and no byte of the object comes in.
// Other answers must be there as a whole in that time, and are cut off at
// maxAnswer or maxError.
type guard struct {
	next    http.RoundTripper
	timeout time.Duration
}

// newHTTP returns a client that follows no redirect: what is signed for one host
// and one name is meant for no other.
func newHTTP(timeout time.Duration) *http.Client {
	next := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: min(dialTimeout, timeout), KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:    min(2*dialTimeout, timeout),
		ExpectContinueTimeout:  time.Second,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeader,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
	}
	return &http.Client{
		Transport:     &guard{next: next, timeout: timeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (g *guard) CloseIdleConnections() {
	if c, ok := g.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// stalledError is a timeout of one attempt, which the SDK then tries again.
type stalledError struct{ after time.Duration }

func (e *stalledError) Error() string { return fmt.Sprintf("no progress for %s", e.after) }

// Timeout makes it a [net.Error]'s timeout.
func (e *stalledError) Timeout() bool { return true }

var errTooBig = errors.New("the answer is too big")

func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	stalled := &stalledError{g.timeout}
	a := &attempt{ctx: ctx, timeout: g.timeout, cancel: func() { cancel(context.Canceled) }}
	a.timer = time.AfterFunc(g.timeout, func() { cancel(stalled) })
	resp, err := g.next.RoundTrip(a.watch(req.WithContext(ctx)))
	if err != nil {
		return nil, a.end(err)
	}
	body := &answerBody{attempt: a, from: resp.Body, left: maxAnswer}
	if resp.StatusCode >= http.StatusMultipleChoices {
		body.left = maxError
	}
	switch {
	case isObject(req, resp):
		body.left, body.endless = 0, true
		a.timer.Stop()
	case req.Method == http.MethodGet || req.Method == http.MethodHead:
		a.timer.Reset(g.timeout)
	default:
		a.timer.Reset(slowAnswer * g.timeout)
	}
	resp.Body = body
	return resp, nil
}

// isObject tells answers that are an object's bytes. Of our requests only listings
// are GETs besides, and they have a list-type.
func isObject(req *http.Request, resp *http.Response) bool {
	return req.Method == http.MethodGet && !req.URL.Query().Has("list-type") &&
		(resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent)
}

// attempt is one request with its timer.
type attempt struct {
	ctx     context.Context
	timeout time.Duration
	timer   *time.Timer
	cancel  func()
}

// watch makes the request's body restart the timer as it goes out.
func (a *attempt) watch(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	req.Body = &requestBody{attempt: a, ReadCloser: req.Body}
	if again := req.GetBody; again != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			if err != nil {
				return nil, err
			}
			return &requestBody{attempt: a, ReadCloser: body}, nil
		}
	}
	return req
}

// why is err, or that the attempt has stalled, which shows as a cancellation.
func (a *attempt) why(err error) error {
	var stalled *stalledError
	if errors.As(context.Cause(a.ctx), &stalled) {
		return stalled
	}
	return err
}

func (a *attempt) end(err error) error {
	a.timer.Stop()
	err = a.why(err)
	a.cancel()
	return err
}

type requestBody struct {
	*attempt
	io.ReadCloser
}

func (b *requestBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(b.timeout)
	}
	return n, err
}

// answerBody is the body of an answer: an object's, whose timer runs only while
// somebody reads, or another one's, with a bound for its size.
type answerBody struct {
	*attempt
	from    io.ReadCloser
	endless bool
	left    int64
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.endless {
		b.timer.Reset(b.timeout)
		defer b.timer.Stop()
	} else {
		if b.left == 0 {
			return 0, errTooBig
		}
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.from.Read(p)
	b.left -= int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.why(err)
	}
	return n, err
}

func (b *answerBody) Close() error {
	err := b.from.Close()
	_ = b.end(nil)
	return err
}
