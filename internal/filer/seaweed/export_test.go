package seaweed

import (
	"net/http"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
)

// SpyOnHTTP shows every HTTP request before it is sent.
func (c *Client) SpyOnHTTP(see func(*http.Request)) {
	c.http.Transport = spy{c.http.Transport, see}
}

type spy struct {
	http.RoundTripper
	see func(*http.Request)
}

func (s spy) RoundTrip(r *http.Request) (*http.Response, error) {
	s.see(r)
	return s.RoundTripper.RoundTrip(r)
}

// RPC is the filer's bare gRPC side.
func (c *Client) RPC() filer_pb.SeaweedFilerClient { return c.rpc }

// S3ETag is the ETag that the S3 gateway gives an entry.
func S3ETag(e *filer_pb.Entry) string { return s3ETag(e) }
