package filer

import (
	"fmt"
	"net/netip"
	"net/textproto"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	// MaxName is the longest name of a file or directory, in bytes.
	MaxName = 255
	// MaxPath is the longest path, in bytes.
	MaxPath = 4096
	// MaxInline is the largest inline content that a Store takes. Content
	// between [InlineLimit] and this is possible, but makes listings heavy.
	MaxInline = 1 << 20
	// MaxBlob is the largest blob that a Store takes.
	MaxBlob = 16 << 20

	bucketsDir  = "/buckets/"
	bucketRunes = "abcdefghijklmnopqrstuvwxyz0123456789.-"
	idAttr      = "Entry-Id" // holds File.ID, so it is no name for a File's attribute
)

// CheckPath tells whether p can name a file or directory: absolute, clean (so
// nothing like ".." leads out of where the caller thinks it is), valid UTF-8
// without control characters, names of at most [MaxName] bytes, and a valid
// bucket name where it lies below /buckets. All Store implementations call it
// first. The error is an [ErrInvalid].
func CheckPath(p string) error {
	switch {
	case len(p) > MaxPath:
		return fmt.Errorf("%w: path of %d bytes", ErrInvalid, len(p))
	case !strings.HasPrefix(p, "/") || path.Clean(p) != p:
		return fmt.Errorf("%w: path %q is not absolute and clean", ErrInvalid, p)
	case p == "/":
		return fmt.Errorf("%w: path is the root", ErrInvalid)
	case !utf8.ValidString(p):
		return fmt.Errorf("%w: path %q is not UTF-8", ErrInvalid, p)
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%w: path %q has control characters", ErrInvalid, p)
	}
	for name := range strings.SplitSeq(p[1:], "/") {
		if len(name) > MaxName {
			return fmt.Errorf("%w: name of %d bytes in a path", ErrInvalid, len(name))
		}
	}
	if rest, ok := strings.CutPrefix(p, bucketsDir); ok {
		bucket, _, _ := strings.Cut(rest, "/")
		return checkBucket(bucket)
	}
	return nil
}

// checkBucket holds the S3 rules for bucket names. A filer applies them only
// after it has written the entry, so a bad name must not get that far.
func checkBucket(name string) error {
	if strings.HasPrefix(name, ".") { // the filer's own, such as .uploads
		return nil
	}
	bad := func(why string) error { return fmt.Errorf("%w: bucket name %q %s", ErrInvalid, name, why) }
	alnum := func(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
	switch {
	case len(name) < 3 || len(name) > 63:
		return bad("is not of 3 to 63 characters")
	case strings.ContainsFunc(name, func(r rune) bool { return !strings.ContainsRune(bucketRunes, r) }):
		return bad("has other characters than a-z, 0-9, dot and hyphen")
	case !alnum(name[0]) || !alnum(name[len(name)-1]) || strings.Contains(name, ".."):
		return bad("has dots or hyphens in the wrong place")
	case strings.HasPrefix(name, "xn--") || strings.HasSuffix(name, "-s3alias") || name == "filemeta":
		return bad("is reserved")
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return bad("is an IP address")
	}
	return nil
}

// CheckWrite is [CheckPath] and [CheckFile].
func CheckWrite(path string, f File) error {
	if err := CheckPath(path); err != nil {
		return err
	}
	return CheckFile(f)
}

// CheckFile tells whether f can be written: it has an ID, not both content and
// blobs, nothing too large, and attributes that survive as HTTP headers. All
// Store implementations call it. The error is an [ErrInvalid].
func CheckFile(f File) error {
	switch {
	case f.ID == "" || !printable(f.ID):
		return fmt.Errorf("%w: file without a proper ID: %q", ErrInvalid, f.ID)
	case len(f.Content) > 0 && len(f.Blobs) > 0:
		return fmt.Errorf("%w: file with both content and blobs", ErrInvalid)
	case len(f.Content) > MaxInline:
		return fmt.Errorf("%w: inline content of %d bytes", ErrInvalid, len(f.Content))
	}
	for _, b := range f.Blobs {
		if b.ID == "" || b.Size < 1 {
			return fmt.Errorf("%w: file with an empty blob %q", ErrInvalid, b.ID)
		}
	}
	for name, value := range f.Attrs {
		if err := checkAttr(name, value); err != nil {
			return err
		}
	}
	return nil
}

func checkAttr(name, value string) error {
	if name == idAttr || name == "" || textproto.CanonicalMIMEHeaderKey(name) != name || !token(name) {
		return fmt.Errorf("%w: attribute name %q", ErrInvalid, name)
	}
	if !printable(value) {
		return fmt.Errorf("%w: value of attribute %s is not printable ASCII", ErrInvalid, name)
	}
	return nil
}

// token tells whether a name is of letters, digits and hyphens only.
func token(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-'
	})
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
