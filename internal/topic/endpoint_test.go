package topic_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/topic"
)

func TestParseEndpoint(t *testing.T) {
	for want, same := range map[string][]string{
		"":                        {""},
		"http://127.0.0.1:8333":   {"http://127.0.0.1:8333", "http://127.0.0.1:8333/", "HTTP://127.0.0.1:08333"},
		"http://s3.example":       {"http://s3.example:80", "http://S3.Example/", "http://s3.example:", "Http://s3.example:0080/"},
		"https://s3.example":      {"https://s3.example:443/"},
		"https://s3.example:80":   {"https://s3.example:80"},
		"http://s3.example:443":   {"http://s3.example:443"},
		"http://[::1]:8333":       {"http://[0:0:0:0:0:0:0:1]:8333", "http://[::1]:8333/"},
		"http://[2001:db8::a]":    {"http://[2001:DB8:0::A]:80"},
		"http://my_minio-1.local": {"http://My_Minio-1.local"},
	} {
		for _, give := range same {
			if got, err := topic.ParseEndpoint(give); err != nil || got != want {
				t.Errorf("%q: got %q, error %v, want %q", give, got, err, want)
			}
			if d := (topic.Definition{Endpoint: want}); !d.ServedBy(give) {
				t.Errorf("%q is not served by %q", want, give)
			}
		}
	}
	for _, give := range []string{
		"127.0.0.1:8333", "s3.example", "ftp://h", "s3://bucket", "http://", "http:///", "https:h", "http://h/bucket", "http://h//", "http://h?", "http://h#",
		"http://h/?x=1", "http://h/#f", "http://user:geheim@h", "http://geheim@h/", "http://h:0", "http://h:65536", "http://h:x", "http://h:-1",
		"http://a b", "http://a;b", "http://a,b", "http://h\x00", "http://h\n", "http://[::1", "http://::1", "http://[::1]x", "http://\xff", "http://bücher.example", "http://\u212a", "http://[fe80::1%25en0]:80",
		"http://%zz", " http://h", "http://h ", "http://" + strings.Repeat("geheim", 1<<20), "http://geheim%/",
	} {
		got, err := topic.ParseEndpoint(give)
		if _, ok := errors.AsType[*topic.EndpointError](err); !ok || got != "" || len(err.Error()) > 300 || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%.60q: got %q, error %v", give, got, err)
		}
	}
}

func TestServedBy(t *testing.T) {
	for _, c := range []struct {
		topic, settings string
		want            bool
	}{
		{"", "", true},
		{"", "http://h", true},
		{"", "nonsense", true},
		{"http://h", "", false}, // AWS's own, or whatever the environment says
		{"http://h", "http://h/", true},
		{"http://h", "https://h", false},
		{"http://h", "http://h:8333", false},
		{"http://h", "http://h.example", false},
		{"http://h", "nonsense", false},
		{"http://h", "http://h/bucket", false},
	} {
		if got := (topic.Definition{Endpoint: c.topic}).ServedBy(c.settings); got != c.want {
			t.Errorf("a topic at %q with settings for %q: %v", c.topic, c.settings, got)
		}
	}
}

// FuzzParseEndpoint: what is taken is kept as a URL of printable characters that
// reads as itself.
func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{"", "http://h", "HTTPS://H:443/", "http://[::1]:1", "http://[fe80::1%25en0]:80", "http://%41", "http://h:", "http://a.b.:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := topic.ParseEndpoint(s)
		if err != nil || s == "" {
			return
		}
		again, err := topic.ParseEndpoint(got)
		if err != nil || again != got || len(got) > 310 {
			t.Errorf("%q: %q, then %q, error %v", s, got, again, err)
		}
		if strings.Trim(got, "abcdefghijklmnopqrstuvwxyz0123456789.-_:/[]") != "" || strings.Count(got, "/") != 2 {
			t.Errorf("%q: %q", s, got)
		}
	})
}
