package ref_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
	"github.com/spillway-mq/spillway/internal/ref"
)

// TestParse: a key is what follows the bucket, byte for byte.
func TestParse(t *testing.T) {
	for url, want := range map[string]ref.Name{
		"s3://bucket/k":                   {Bucket: "bucket", Key: "k"},
		"s3://my.bucket-1/a/b/":           {Bucket: "my.bucket-1", Key: "a/b/"},
		"s3://bucket/a+b c%2B.txt":        {Bucket: "bucket", Key: "a+b c%2B.txt"},
		"s3://bucket/k?versionId=1#x&y":   {Bucket: "bucket", Key: "k?versionId=1#x&y"},
		"s3://bucket/user@host:80/🐟":      {Bucket: "bucket", Key: "user@host:80/🐟"},
		"s3://bucket//lead/.../x..y/.z":   {Bucket: "bucket", Key: "/lead/.../x..y/.z"},
		"s3://bucket/%2e%2e/%00":          {Bucket: "bucket", Key: "%2e%2e/%00"},
		"s3://bucket/https://a/b":         {Bucket: "bucket", Key: "https://a/b"},
		"s3://bucket/" + long(1024):       {Bucket: "bucket", Key: long(1024)},
		"s3://b3t/X-Amz-Signature=secret": {Bucket: "b3t", Key: "X-Amz-Signature=secret"},
	} {
		got, err := ref.Parse(url)
		if err != nil || got != want || got.String() != url {
			t.Errorf("%q: %+v, %v", url, got, err)
		}
	}
}

func long(n int) string { return strings.Repeat("k", n) }

// TestHostile: what is no name is refused with what to do instead, on one short
// line, without what may be secret.
func TestHostile(t *testing.T) {
	for url, hint := range map[string]string{
		"":                       "want s3://bucket/key",
		"bucket/key":             "want s3://bucket/key",
		"/bucket/key":            "want s3://bucket/key",
		"file:///etc/passwd":     "want s3://bucket/key",
		"gs://bucket/key":        "want s3://bucket/key",
		"s3:/bucket/key":         "want s3://bucket/key",
		"S3://bucket/key":        `write the scheme as "s3://"`,
		"s3a://bucket/key":       `write the scheme as "s3://"`,
		"http://host/bucket/key": "the endpoint's setting",
		"https://hush@host/x":    "the endpoint's setting",
		"https://b.s3.amazonaws.com/k?X-Amz-Algorithm=A&X-Amz-Signature=hush":       "presigned",
		"https://b.s3.amazonaws.com/k?AWSAccessKeyId=A&Expires=1&Signature=hush":    "presigned",
		"http://127.0.0.1:8333/b/k?x-amz-signature=hush&X-Amz-Security-Token=hush2": "presigned",
		"s3://":                      "names a bucket and no object",
		"s3://bucket":                "names a bucket and no object",
		"s3://bucket/":               "names a bucket and no object",
		"s3:///key":                  "bucket: ",
		"s3://b/../x":                "bucket: ",
		"s3://bu/k":                  "bucket: ",
		"s3://Bucket/k":              "bucket: ",
		"s3://buck_et/k":             "bucket: ",
		"s3://bucket:9000/k":         "bucket: ",
		"s3://10.0.0.1/k":            "bucket: ",
		"s3://../k":                  "bucket: ",
		"s3://hush:hush@bucket/k":    "credentials do not belong",
		"s3://bucket/../x":           "segment",
		"s3://bucket/a/./x":          "segment",
		"s3://bucket/a/..":           "segment",
		`s3://bucket/a\..\..\x`:      "segment",
		"s3://bucket/a\nb":           "control character",
		"s3://bucket/a\x00":          "control character",
		"s3://bucket/a\u009bb":       "control character",
		"s3://bucket/a\xc3":          "UTF-8",
		"s3://bucket/" + long(1025):  "1025 bytes",
		"s3://bucket/" + long(1<<20): "bytes",
		long(1 << 20):                "want s3://bucket/key",
	} {
		n, err := ref.Parse(url)
		var bad *ref.ParseError
		if !errors.As(err, &bad) || n != (ref.Name{}) {
			t.Errorf("%.60q: %+v, %v", url, n, err)
			continue
		}
		text := err.Error()
		if !strings.Contains(text, hint) || strings.Contains(text, "hush") || len(text) > 700 || strings.ContainsAny(text, "\n\x00\u009b") {
			t.Errorf("%.60q: %s", url, text)
		}
		if ref.StateOf(err) != ref.Missing {
			t.Errorf("%.60q: %s", url, ref.StateOf(err))
		}
	}
}

// FuzzParse: whatever is parsed is a name that gives the same text and passes its
// own check; whatever is not is a *ParseError.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"s3://bucket/k", "s3://bucket/a/../b", "s3://u:p@bucket/k", "https://h/k?X-Amz-Signature=1", "s3://b\xff/k", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, url string) {
		n, err := ref.Parse(url)
		if err != nil {
			var bad *ref.ParseError
			if !errors.As(err, &bad) || len(err.Error()) > 1000 {
				t.Fatalf("%q: %v", url, err)
			}
			return
		}
		if n.String() != url || n.Check() != nil || n.Version != "" {
			t.Fatalf("%q: %+v", url, n)
		}
	})
}

func names() *rapid.Generator[ref.Name] {
	return rapid.Custom(func(t *rapid.T) ref.Name {
		return ref.Name{
			Bucket: rapid.StringMatching(`[a-z0-9][a-z0-9-]{1,61}[a-z0-9]`).Draw(t, "bucket"),
			Key:    rapid.StringN(1, 300, object.MaxKey).Draw(t, "key"),
		}
	}).Filter(func(n ref.Name) bool { return n.Check() == nil })
}

// TestRoundTrip: every name has one text, and no two names share one.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := names().Draw(t, "a"), names().Draw(t, "b")
		got, err := ref.Parse(a.String())
		if err != nil || got != a {
			t.Fatalf("%+v: %+v, %v", a, got, err)
		}
		if (a == b) != (a.String() == b.String()) {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func infos() *rapid.Generator[object.Info] {
	return rapid.Custom(func(t *rapid.T) object.Info {
		info := object.Info{
			Size:        rapid.Int64Min(0).Draw(t, "size"),
			ETag:        rapid.StringMatching(`[0-9a-f]{32}(-[0-9]{1,4})?`).Draw(t, "etag"),
			Version:     rapid.StringMatching(`[a-z0-9]{0,8}`).Draw(t, "version"),
			ContentType: rapid.SampledFrom([]string{"", "text/csv"}).Draw(t, "type"),
			Modified:    time.Unix(rapid.Int64Range(0, 1e9).Draw(t, "modified"), 0),
		}
		if rapid.Bool().Draw(t, "digest") {
			info.SHA256 = rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "sha256")
		}
		return info
	})
}

// TestFrom: the reference to an object is about that object, and what it leaves
// open makes no difference.
func TestFrom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, info := names().Draw(t, "name"), infos().Draw(t, "info")
		f := ref.From(n, info)
		want := record.Ref{URL: n.String(), Size: info.Size, ETag: info.ETag, Version: info.Version, ContentType: info.ContentType, SHA256: info.SHA256}
		if d := cmp.Diff(want, f); d != "" {
			t.Fatal(d)
		}
		for _, open := range []func(){func() { f.ETag = `"` + f.ETag + `"` }, func() { f.ETag = "" }, func() { f.Version = "" }, func() { f.SHA256 = nil }, func() { f.Size = 0 }} {
			if err := ref.Compare(f, info); err != nil {
				t.Fatal(err)
			}
			if rapid.Bool().Draw(t, "leave open") {
				open()
			}
		}
	})
	n := ref.Name{Bucket: "bucket", Key: "k", Version: "v1"}
	if f := ref.From(n, object.Info{}); f.Version != "v1" {
		t.Errorf("the version that was asked for: %+v", f)
	}
}

func digest(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// TestCompare: what is compared, and what is forgiven.
func TestCompare(t *testing.T) {
	is := object.Info{Size: 10, ETag: "e", Version: "v", SHA256: digest(1)}
	for _, c := range []struct {
		name string
		f    record.Ref
		is   object.Info
		what string
	}{
		{"nothing said", record.Ref{}, is, ""},
		{"all said", record.Ref{Size: 10, ETag: "e", Version: "v", SHA256: digest(1)}, is, ""},
		{"quoted", record.Ref{ETag: `"e"`}, is, ""},
		{"weak", record.Ref{ETag: `W/"e"`}, object.Info{ETag: "e"}, ""},
		{"another size", record.Ref{Size: 11, ETag: "e"}, is, "size"},
		{"empty by now", record.Ref{Size: 11}, object.Info{}, "size"},
		{"no longer empty", record.Ref{ETag: "d41d"}, is, "etag"},
		{"another ETag", record.Ref{Size: 10, ETag: "f"}, is, "etag"},
		{"no ETag by now", record.Ref{Size: 10, ETag: "f"}, object.Info{Size: 10}, "etag"},
		{"another ETag, the same bytes", record.Ref{Size: 10, ETag: "f", SHA256: digest(1)}, is, ""},
		{"another ETag, a digest that the endpoint does not know", record.Ref{Size: 10, ETag: "f", SHA256: digest(1)}, object.Info{Size: 10, ETag: "e"}, "etag"},
		{"another ETag, the same digest, no size", record.Ref{ETag: "f", SHA256: digest(1)}, is, "etag"},
		{"another digest", record.Ref{Size: 10, ETag: "e", SHA256: digest(2)}, is, "sha256"},
		{"another version", record.Ref{Version: "w"}, is, "version"},
		{"a version in a bucket without", record.Ref{Version: "w"}, object.Info{}, "version"},
		{"null is no version", record.Ref{Version: "null"}, object.Info{}, ""},
		{"null, and a version", record.Ref{Version: "null"}, is, ""},
	} {
		err := ref.Compare(c.f, c.is)
		var m *ref.MismatchError
		switch {
		case c.what == "" && err == nil:
		case c.what == "" || !errors.As(err, &m) || m.What != c.what || ref.StateOf(err) != ref.Changed:
			t.Errorf("%s: %v, want %q", c.name, err, c.what)
		}
	}
}

// TestStates: one word for every error.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		err  error
		want ref.State
	}{
		{nil, ref.Valid},
		{&ref.MismatchError{What: "size"}, ref.Changed},
		{object.ErrChanged, ref.Changed},
		{object.ErrCorrupt, ref.Changed},
		{object.ErrNotFound, ref.Missing},
		{object.ErrNoBucket, ref.Missing},
		{object.ErrInvalid, ref.Pending},
		{&object.NameError{}, ref.Missing},
		{&ref.ParseError{}, ref.Missing},
		{object.ErrDeleted, ref.Deleted},
		{object.ErrForbidden, ref.Pending},
		{&object.UnavailableError{Err: io.EOF}, ref.Pending},
		{t.Context().Err(), ref.Valid},
		{io.ErrClosedPipe, ref.Pending},
	} {
		if c.err != nil {
			c.err = fmt.Errorf("wrapped: %w", c.err)
		}
		if got := ref.StateOf(c.err); got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
}
