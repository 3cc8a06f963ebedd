package topic

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxBuckets is how many entries a topic's list of buckets has at most.
const MaxBuckets = 64

// maxPrefix is how many bytes a key of S3 has at most.
const maxPrefix = 1024

// Allows says whether records of the topic may refer to an object. A topic
// without a list allows nothing.
func (d Definition) Allows(bucket, key string) bool {
	for _, entry := range d.Buckets {
		b, prefix, _ := strings.Cut(entry, "/")
		if b == bucket && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// BucketError tells that an entry of a topic's list of buckets is none, or that
// it cannot be taken off the list.
type BucketError struct{ Entry, Reason string }

func (e *BucketError) Error() string {
	return fmt.Sprintf("allowed bucket %.80q: %s", e.Entry, e.Reason)
}

// ParseBucket reads an entry as people write it, which may begin with "s3://", and
// returns it as lists keep it. The error is a [*BucketError].
func ParseBucket(s string) (string, error) {
	entry := strings.TrimPrefix(s, "s3://")
	if b, prefix, _ := strings.Cut(entry, "/"); prefix == "" {
		entry = b
	}
	return entry, checkEntry(entry)
}

// CheckBuckets accepts lists of buckets as they are kept. It tells all that is
// wrong with one, in errors that are [*BucketError].
func CheckBuckets(list []string) error {
	if len(list) > MaxBuckets {
		return fmt.Errorf("%d allowed buckets: want at most %d", len(list), MaxBuckets)
	}
	var errs []error
	for _, entry := range list {
		errs = append(errs, checkEntry(entry))
	}
	return errors.Join(errs...)
}

// Allow puts an entry on the list of buckets.
func (d *Definition) Allow(entry string) { d.AllowOnly(append(slices.Clone(d.Buckets), entry)...) }

// AllowOnly replaces the list of buckets. The same entries give the same list.
func (d *Definition) AllowOnly(entries ...string) {
	if d.Buckets = nil; len(entries) > 0 {
		d.Buckets = slices.Compact(slices.Sorted(slices.Values(entries)))
	}
}

// Disallow takes an entry off the list of buckets, and those below it: nothing
// below it is allowed then. A [*BucketError] tells of an entry that allows more
// than this one, and it with that; the list is as it was then.
func (d *Definition) Disallow(entry string) error {
	var rest []string
	for _, e := range d.Buckets {
		switch {
		case covers(entry, e):
		case covers(e, entry):
			return &BucketError{entry, fmt.Sprintf("%.80q on the list allows it too, and more: disallow that, and allow of it what is wanted", e)}
		default:
			rest = append(rest, e)
		}
	}
	d.Buckets = rest
	return nil
}

// covers tells whether all that b allows is allowed by a.
func covers(a, b string) bool {
	bucketA, prefixA, _ := strings.Cut(a, "/")
	bucketB, prefixB, _ := strings.Cut(b, "/")
	return bucketA == bucketB && strings.HasPrefix(prefixB, prefixA)
}

func checkEntry(entry string) error {
	bucket, prefix, _ := strings.Cut(entry, "/")
	reason := wrongBucket(bucket)
	if reason == "" {
		reason = wrongPrefix(prefix)
	}
	if reason != "" {
		return &BucketError{entry, reason}
	}
	return nil
}

// reservedEnds of bucket names make clients talk to other hosts.
var reservedEnds = []string{"--x-s3", "--ol-s3", "-s3alias", "--table-s3", ".mrap"}

// wrongBucket has S3's rules for names. Package object, which this one does not
// know, has the same; a test holds the two equal.
func wrongBucket(bucket string) string {
	if len(bucket) < 3 || len(bucket) > 63 {
		return fmt.Sprintf("the bucket's name has %d characters, and S3 wants 3 to 63", len(bucket))
	}
	for i := range len(bucket) {
		c := bucket[i]
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (c != '-' && c != '.' || i == 0 || i == len(bucket)-1) {
			return "S3 wants names of lower-case letters, digits, and between them hyphens and dots"
		}
	}
	if strings.Contains(bucket, "..") {
		return "the bucket's name has two dots in a row"
	}
	if _, err := netip.ParseAddr(bucket); err == nil {
		return "the bucket's name looks like an IP address"
	}
	for _, end := range reservedEnds {
		if strings.HasSuffix(bucket, end) {
			return fmt.Sprintf("S3 reserves names that end with %q", end)
		}
	}
	if strings.HasPrefix(bucket, "xn--") {
		return `S3 reserves names that begin with "xn--"`
	}
	return ""
}

// wrongPrefix has the rules for keys, but for their end: a segment "." or ".."
// would name another object.
func wrongPrefix(prefix string) string {
	if len(prefix) > maxPrefix {
		return fmt.Sprintf("the prefix has %d bytes, and keys have at most %d", len(prefix), maxPrefix)
	}
	if !utf8.ValidString(prefix) {
		return "the prefix is not valid UTF-8"
	}
	for i, r := range prefix {
		if r < ' ' || r >= 0x7f && r < 0xa0 || r == '\ufffe' || r == '\uffff' {
			return fmt.Sprintf("control character %U at byte %d of the prefix", r, i)
		}
	}
	slashes := func(r rune) bool { return r == '/' || r == '\\' }
	for segment := range strings.FieldsFuncSeq(prefix, slashes) {
		if segment == "." || segment == ".." {
			return fmt.Sprintf("the prefix has a segment %q, and no key has one", segment)
		}
	}
	return ""
}
