// Package ref is references: records whose payload is an object. It names the
// object, compares it with what the reference says, and reads and verifies it.
// docs/FORMAT.md, "References", is the specification.
package ref

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/record"
)

// Name names the object of a reference.
type Name = object.Name

// ParseError says why a text names no object.
type ParseError struct {
	URL    string // as given, as far as it holds no secrets
	Reason string
}

func (e *ParseError) Error() string { return fmt.Sprintf("reference %q: %s", e.URL, e.Reason) }

// Parse reads "s3://bucket/key". The key is what follows the bucket's slash, byte
// for byte: nothing is decoded, and "?", "#" and "%" are characters like others,
// so that each name has one text, which [Name.String] gives back. [Name.Check] has
// the rules of names. A version has no place in the text. Errors are *ParseError.
func Parse(url string) (Name, error) {
	rest, ok := strings.CutPrefix(url, object.Scheme)
	if !ok {
		return Name{}, &ParseError{shown(url), wrongScheme(url)}
	}
	bucket, key, _ := strings.Cut(rest, "/")
	switch {
	case strings.Contains(bucket, "@"):
		return Name{}, &ParseError{shown(url), "credentials do not belong into a reference; give them to the endpoint's settings"}
	case key == "":
		return Name{}, &ParseError{shown(url), "it names a bucket and no object; want s3://bucket/key"}
	}
	n := Name{Bucket: bucket, Key: key}
	if err := n.Check(); err != nil {
		return Name{}, &ParseError{shown(url), err.Error()}
	}
	return n, nil
}

func wrongScheme(url string) string {
	lower := strings.ToLower(url)
	scheme, _, ok := strings.Cut(lower, "://")
	switch {
	case strings.Contains(lower, "x-amz-signature=") || strings.Contains(lower, "&signature="):
		return "it is a presigned URL, which stops working after a while; name the object itself, s3://bucket/key, and give the endpoint's settings credentials"
	case ok && (scheme == "http" || scheme == "https"):
		return "it names a host, which is the endpoint's setting; name the object as s3://bucket/key"
	case ok && (scheme == "s3" || scheme == "s3a" || scheme == "s3n"):
		return `write the scheme as "s3://", in small letters`
	}
	return "want s3://bucket/key"
}

// shown is the beginning of a URL without a query and credentials.
func shown(url string) string {
	url, _, cut := strings.Cut(url, "?")
	if scheme, rest, ok := strings.Cut(url, "://"); ok {
		authority, path, _ := strings.Cut(rest, "/")
		if at := strings.LastIndex(authority, "@"); at >= 0 {
			url = scheme + "://…" + authority[at:] + "/" + path
		}
	}
	const most = 120
	if len(url) > most {
		url, cut = url[:most], true
	}
	if cut {
		url += "…"
	}
	return strings.ToValidUTF8(url, "\ufffd")
}

// From makes the reference to an object as it is now.
func From(n Name, info object.Info) record.Ref {
	version := n.Version
	if version == "" {
		version = info.Version
	}
	return record.Ref{
		URL: n.String(), Size: info.Size, ETag: info.ETag, Version: version,
		ContentType: info.ContentType, SHA256: bytes.Clone(info.SHA256),
	}
}

// NameOf is the object that a reference is about, with its version. Errors are
// *ParseError.
func NameOf(f record.Ref) (Name, error) {
	n, err := Parse(f.URL)
	if err != nil {
		return Name{}, err
	}
	n.Version = versionOf(f.Version)
	if err := n.Check(); err != nil {
		return Name{}, &ParseError{shown(f.URL), err.Error()}
	}
	return n, nil
}

// versionOf: "null" is what S3 calls the version of an object that has none.
func versionOf(v string) string {
	if v == "null" {
		return ""
	}
	return v
}
