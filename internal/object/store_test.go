package object_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/object"
)

// TestConfig: what cannot be used is named, without what may be secret in it.
func TestConfig(t *testing.T) {
	for field, configs := range map[string][]object.Config{
		"endpoint": {
			{Endpoint: "localhost:8333"}, {Endpoint: "ftp://host"}, {Endpoint: "http://"}, {Endpoint: "http://user:pass-word@host"},
			{Endpoint: "http://host/path"}, {Endpoint: "http://host?x=pass-word"}, {Endpoint: "http://pass-word\x7f"},
		},
		"keys":          {{AccessKey: "a"}, {SecretKey: "s"}, {AccessKey: "a", SecretKey: "s", Anonymous: true}},
		"session token": {{SessionToken: "pass-word"}},
		"timeout":       {{Timeout: -time.Second}},
	} {
		for _, c := range configs {
			_, err := object.Open(t.Context(), c)
			var bad *object.ConfigError
			if !errors.As(err, &bad) || bad.Field != field || strings.Contains(err.Error(), "pass-word") {
				t.Errorf("%s: %v", field, err)
			}
		}
	}
}

// TestEnvironment: without keys, the AWS environment has them; with keys, it has
// no say.
func TestEnvironment(t *testing.T) {
	var authorization, path string
	s := func(c object.Config) *object.Store {
		t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
		t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
		t.Setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "env-secret")
		t.Setenv("AWS_REGION", "eu-test-1")
		t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
		c.Endpoint = server(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1")
			authorization, path = r.Header.Get("Authorization"), r.URL.Path
		})
		return open(t, c)
	}
	for _, c := range []struct {
		config object.Config
		want   []string
	}{
		{object.Config{}, []string{"ENVKEY/", "/eu-test-1/"}},
		{object.Config{Region: "own"}, []string{"ENVKEY/", "/own/"}},
		{object.Config{AccessKey: "OWNKEY", SecretKey: "s"}, []string{"OWNKEY/", "/us-east-1/"}},
		{object.Config{Anonymous: true}, []string{""}},
	} {
		if _, err := s(c.config).Head(t.Context(), name.Bucket, name.Key, ""); err != nil {
			t.Error(err)
		}
		for _, want := range c.want {
			if !strings.Contains(authorization, want) || want == "" && authorization != "" {
				t.Errorf("%+v: %q, want %q", c.config, authorization, want)
			}
		}
		if path != "/bucket/the/key" {
			t.Errorf("path %q", path)
		}
	}
}

// TestNames: impossible names never reach the endpoint.
func TestNames(t *testing.T) {
	s := endpoint(t, time.Minute, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("a request: %s", r.URL) })
	for _, n := range []object.Name{
		{Bucket: "", Key: "k"}, {Bucket: "ab", Key: "k"}, {Bucket: strings.Repeat("b", 64), Key: "k"},
		{Bucket: "Upper", Key: "k"}, {Bucket: "-ab", Key: "k"}, {Bucket: "ab.", Key: "k"}, {Bucket: "a..b", Key: "k"},
		{Bucket: "127.0.0.1", Key: "k"}, {Bucket: "a/b", Key: "k"}, {Bucket: "...", Key: "k"}, {Bucket: "a_b", Key: "k"},
		{Bucket: "arn:aws:s3:us-west-2:1:accesspoint/x", Key: "k"}, {Bucket: "zone--usw2-az1--x-s3", Key: "k"},
		{Bucket: "point-s3alias", Key: "k"}, {Bucket: "a.mrap", Key: "k"}, {Bucket: "xn--a", Key: "k"},
		{Bucket: "bucket", Key: ""}, {Bucket: "bucket", Key: strings.Repeat("k", 1025)}, {Bucket: "bucket", Key: "a/../b"},
		{Bucket: "bucket", Key: ".."}, {Bucket: "bucket", Key: "./a"}, {Bucket: "bucket", Key: "a/."}, {Bucket: "bucket", Key: `a\..\b`}, {Bucket: "bucket", Key: "a\x00b"},
		{Bucket: "bucket", Key: "a\nb"}, {Bucket: "bucket", Key: "a\x7f"}, {Bucket: "bucket", Key: "a\u0085"}, {Bucket: "bucket", Key: "a\xff"},
		{Bucket: "bucket", Key: "a\uffff"}, {Bucket: "bucket", Key: "k", Version: "a b"}, {Bucket: "bucket", Key: "k", Version: strings.Repeat("v", 1025)},
	} {
		_, head := s.Head(t.Context(), n.Bucket, n.Key, n.Version)
		_, _, get := s.Get(t.Context(), n, 0, "")
		_, put := s.Put(t.Context(), n, strings.NewReader(""), 0, object.PutOptions{})
		for op, err := range map[string]error{"head": head, "get": get, "put": put} {
			var bad *object.NameError
			if !errors.As(err, &bad) || !errors.Is(err, object.ErrInvalid) {
				t.Errorf("%s %+v: %v", op, n, err)
			}
		}
	}
	for _, c := range [][3]string{{"Upper", "", ""}, {"bucket", "../", ""}, {"bucket", "", "\x00"}, {"bucket", strings.Repeat("p", 1025), ""}} {
		for _, err := range s.List(t.Context(), c[0], c[1], c[2]) {
			if !errors.Is(err, object.ErrInvalid) {
				t.Errorf("list %q: %v", c, err)
			}
		}
	}
}

// TestPartSize: no object has more parts than S3 takes.
func TestPartSize(t *testing.T) {
	for _, size := range []int64{object.PartSize + 1, 10_000 * object.PartSize, 10_000*object.PartSize + 1, object.MaxSize - 1, object.MaxSize} {
		part := object.PartSizeOf(size)
		if part < object.PartSize || (size+part-1)/part > 10_000 || part > 5<<30 {
			t.Errorf("%d bytes: parts of %d", size, part)
		}
	}
}

// TestNoCredentials: an endpoint of one's own without keys anywhere is told at once,
// without asking for the role of a machine at AWS.
func TestNoCredentials(t *testing.T) {
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", t.TempDir()+"/none")
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server(t, func(http.ResponseWriter, *http.Request) {
		t.Error("the machine's role was asked for")
	}))
	_, err := object.Open(t.Context(), object.Config{Endpoint: "http://127.0.0.1:1"})
	var bad *object.ConfigError
	if !errors.As(err, &bad) || bad.Field != "keys" {
		t.Errorf("no credentials: %v", err)
	}
}
