package object

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// Scheme starts the text form of every name.
const Scheme = "s3://"

// MaxKey is how many bytes a key has at most.
const MaxKey = 1024

// maxVersion bounds version ids and ETags: S3's have at most 1,024 bytes.
const maxVersion = 1024

// Name names an object, or one version of it.
type Name struct {
	Bucket, Key string
	Version     string // empty: the latest
}

// String is "s3://bucket/key", with the key as it is. It leaves the version out.
func (n Name) String() string { return Scheme + n.Bucket + "/" + n.Key }

// NameError says why a name is none. It matches [ErrInvalid].
type NameError struct {
	Part   string // "bucket", "key", or "version"
	Reason string
}

func (e *NameError) Error() string { return e.Part + ": " + e.Reason }

// Is makes it match ErrInvalid.
func (e *NameError) Is(target error) bool { return target == ErrInvalid }

// Check says whether an object can have this name: a bucket by S3's rules, and a
// key of 1 to 1,024 bytes of UTF-8 without control characters and without "." and
// ".." between slashes of either kind, which servers and their file systems would
// resolve into another object's name. Its errors are *NameError.
func (n Name) Check() error {
	if err := checkBucket(n.Bucket); err != nil {
		return err
	}
	if err := checkKey(n.Key); err != nil {
		return err
	}
	if !isVersion(n.Version) {
		return &NameError{"version", "want at most 1024 printable ASCII characters"}
	}
	return nil
}

func checkKey(key string) error {
	switch {
	case key == "":
		return &NameError{"key", "it is empty"}
	case len(key) > MaxKey:
		return &NameError{"key", fmt.Sprintf("it has %d bytes, and S3 takes at most %d", len(key), MaxKey)}
	}
	return checkText("key", key)
}

// checkText holds for keys, and for the beginnings of keys.
func checkText(part, text string) error {
	if !utf8.ValidString(text) {
		return &NameError{part, "it is not valid UTF-8"}
	}
	for i, r := range text {
		// U+FFFE and U+FFFF are the others that XML, and so S3, cannot carry.
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffe' || r == '\uffff' {
			return &NameError{part, fmt.Sprintf("control character %U at byte %d", r, i)}
		}
	}
	slashes := func(r rune) bool { return r == '/' || r == '\\' } // SeaweedFS takes one for the other
	for segment := range strings.FieldsFuncSeq(text, slashes) {
		if segment == "." || segment == ".." {
			return &NameError{part, fmt.Sprintf("it has a segment %q, which would name another object", segment)}
		}
	}
	return nil
}

// reserved ends of bucket names make clients talk to other hosts.
var reserved = []string{"--x-s3", "--ol-s3", "-s3alias", "--table-s3", ".mrap"}

func checkBucket(bucket string) error {
	if len(bucket) < 3 || len(bucket) > 63 {
		return &NameError{"bucket", fmt.Sprintf("it has %d characters, and S3 wants 3 to 63", len(bucket))}
	}
	for i := range len(bucket) {
		c := bucket[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (c != '-' && c != '.' || i == 0 || i == len(bucket)-1) {
			return &NameError{"bucket", "S3 wants lower-case letters, digits, and between them hyphens and dots"}
		}
	}
	if strings.Contains(bucket, "..") {
		return &NameError{"bucket", "it has two dots in a row"}
	}
	if _, err := netip.ParseAddr(bucket); err == nil {
		return &NameError{"bucket", "it looks like an IP address"}
	}
	for _, end := range reserved {
		if strings.HasSuffix(bucket, end) {
			return &NameError{"bucket", fmt.Sprintf("S3 reserves names that end with %q", end)}
		}
	}
	if strings.HasPrefix(bucket, "xn--") {
		return &NameError{"bucket", `S3 reserves names that begin with "xn--"`}
	}
	return nil
}

func isVersion(s string) bool { return len(s) <= maxVersion && printable(s) }

func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}
