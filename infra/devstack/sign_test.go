package devstack

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// s3Put puts a small object, signed by AWS's scheme (version 4) if there is a key,
// and returns the status.
func s3Put(t *testing.T, url, access, secret string) int {
	t.Helper()
	const body = "signed"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body))
	must(t, err)
	if access != "" {
		sign(req, body, access, secret)
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	must(t, err)
	t.Logf("%s %s", resp.Status, text)
	return resp.StatusCode
}

func sign(req *http.Request, body, access, secret string) {
	now := time.Now().UTC()
	sum := sha256.Sum256([]byte(body))
	digest, stamp := hex.EncodeToString(sum[:]), now.Format("20060102T150405Z")
	req.Header.Set("X-Amz-Date", stamp)
	req.Header.Set("X-Amz-Content-Sha256", digest)
	const headers = "host;x-amz-content-sha256;x-amz-date"
	canonical := fmt.Sprintf("PUT\n%s\n\nhost:%s\nx-amz-content-sha256:%s\nx-amz-date:%s\n\n%s\n%s",
		req.URL.EscapedPath(), req.URL.Host, digest, stamp, headers, digest)
	scope := now.Format("20060102") + "/us-east-1/s3/aws4_request"
	hashed := sha256.Sum256([]byte(canonical))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(hashed[:])
	key := []byte("AWS4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	req.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
		access, scope, headers, mac(key, text)))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
