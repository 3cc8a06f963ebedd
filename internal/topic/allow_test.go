package topic_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		list        string // separated by spaces
		bucket, key string
		want        bool
	}{
		{"", "photos", "cat", false},
		{"photos", "photos", "cat", true},
		{"photos", "photos", "", true},
		{"photos", "photos2", "cat", false},
		{"photos", "photo", "scat", false},
		{"photos", "Photos", "cat", false},
		{"photos", "", "photos/cat", false},
		{"photos/", "photos", "cat", true},
		{"photos/2026/", "photos", "2026/cat", true},
		{"photos/2026/", "photos", "2026/", true},
		{"photos/2026/", "photos", "2026", false},
		{"photos/2026/", "photos", "20260/cat", false},
		{"photos/2026/", "photos", "/2026/cat", false},
		{"photos/2026", "photos", "20260/cat", true}, // bytes, not folders
		{"photos/é", "photos", "é/cat", true},
		{"photos/é", "photos", "e\u0301/cat", false},
		{"photos/a%2F", "photos", "a/cat", false},
		{"photos/a", "photos", "A/cat", false},
		{"films photos/2026/ photos/2025/", "photos", "2025/cat", true},
		{"films photos/2026/ photos/2025/", "photos", "2024/cat", false},
		{"films photos/2026/ photos/2025/", "films", "2024/cat", true},
	} {
		d := topic.Definition{Name: "t", Buckets: strings.Fields(c.list)}
		if got := d.Allows(c.bucket, c.key); got != c.want {
			t.Errorf("%q allows %q in %q: %v", c.list, c.key, c.bucket, got)
		}
	}
}

// sameName fails if a name and the entry of a list with the same bucket and the
// same beginning of a key are not both good or both bad.
func sameName(t interface{ Errorf(string, ...any) }, bucket, prefix string) {
	name := object.Name{Bucket: bucket, Key: prefix}
	if prefix == "" {
		name.Key = "k"
	}
	want, got := name.Check(), topic.CheckBuckets([]string{bucket + "/" + prefix})
	if (want == nil) != (got == nil) {
		t.Errorf("%q and %q: the object's name: %v; the list: %v", bucket, prefix, want, got)
	}
	if got != nil && (len(got.Error()) > 600 || !errors.As(got, new(*topic.BucketError))) {
		t.Errorf("%q and %q: %v", bucket, prefix, got)
	}
}

// TestSameNames: what may be on a list is what S3 names can be, and the beginnings
// of keys of such names.
func TestSameNames(t *testing.T) {
	for c := range rune(0x120) {
		sameName(t, "photos", "a"+string(c)+"b")
		if c != '/' { // which ends the bucket
			sameName(t, "pho"+string(c)+"tos", "")
			sameName(t, "photos"+string(c), "")
			sameName(t, string(c)+"photos", "")
		}
	}
	for _, end := range []string{"--x-s3", "--ol-s3", "-s3alias", "--table-s3", ".mrap", "--other-s3", "..a", "-.a"} {
		sameName(t, "photos"+end, "")
	}
	for _, start := range []string{"xn--", "a..", "a-.", "sthree-", "amzn-s3-demo-"} {
		sameName(t, start+"photos", "")
	}
	for _, n := range []int{0, 1, 2, 3, 62, 63, 64, 1023, 1024, 1025, 1 << 20} {
		sameName(t, strings.Repeat("x", n), "")
		sameName(t, "photos", strings.Repeat("x", n))
		sameName(t, "photos", strings.Repeat("é", n/2))
	}
	for _, odd := range []string{".", "..", "...", ".a", "\ufffd", "\ufffe", "\uffff", "\xff", "\xed\xa0\x80", "\U0001f600"} {
		for _, before := range []string{"", "/", "\\", "a", "a/", "a\\"} {
			for _, after := range []string{"", "/", "\\", "a", "/a", "\\a"} {
				sameName(t, "photos", before+odd+after)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bucket := rapid.StringMatching(`[a-z0-9.-]{0,65}|(\d{1,3}\.){3}\d{1,3}|[ -.0-~]{1,9}`).Draw(t, "bucket") // no slash
		sameName(t, bucket, rapid.OneOf(rapid.StringMatching(`[a./\\]{0,8}`), rapid.String()).Draw(t, "prefix"))
	})
}

func TestParseBucket(t *testing.T) {
	for give, want := range map[string]string{
		"photos": "photos", "photos/": "photos", "s3://photos": "photos", "s3://photos/2026/": "photos/2026/",
		"photos/a b+c%2B,d": "photos/a b+c%2B,d", "photos//": "photos//", "photos/.git": "photos/.git", "photos/日本": "photos/日本",
	} {
		if got, err := topic.ParseBucket(give); err != nil || got != want {
			t.Errorf("%q: got %q, error %v", give, got, err)
		}
	}
	for _, give := range []string{
		"", "/", "s3://", "s3:///k", "S3://photos", "https://h/photos", "ph", strings.Repeat("x", 64), "Photos", "photos ", "ph_otos", "-photos", "a..b",
		"10.0.0.1", "photos/..", "photos/./a", `photos/a\..\b`, "photos/\n", "photos/\xff", "photos/" + strings.Repeat("x", 1025), "user:pw@photos/x", "*",
		strings.Repeat("s3://", 1<<20),
	} {
		_, err := topic.ParseBucket(give)
		if bad, ok := errors.AsType[*topic.BucketError](err); !ok || bad.Reason == "" || len(err.Error()) > 600 {
			t.Errorf("%.80q: error %.1000v", give, err)
		}
	}
}

func TestTooManyBuckets(t *testing.T) {
	var list []string
	for i := range topic.MaxBuckets {
		list = append(list, fmt.Sprintf("bucket-%d", i))
	}
	if err := topic.CheckBuckets(list); err != nil {
		t.Error(err)
	}
	if err := topic.CheckBuckets(append(list, "one-more")); err == nil || len(err.Error()) > 600 {
		t.Errorf("error %v", err)
	}
	if err := topic.CheckBuckets([]string{"x", "photos", "Y"}); err == nil || !strings.Contains(err.Error(), `"x"`) || !strings.Contains(err.Error(), `"Y"`) {
		t.Errorf("error %v", err)
	}
}

// TestDisallow: nothing below what was taken off the list is allowed any more, all
// else is allowed as before, or there is an error and nothing has changed.
func TestDisallow(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) string {
		e := rapid.SampledFrom([]string{"photos", "photos2", "films"}).Draw(t, "bucket")
		if prefix := rapid.StringMatching(`[ab]{0,3}`).Draw(t, "prefix"); prefix != "" {
			e += "/" + prefix
		}
		return e
	})
	rapid.Check(t, func(t *rapid.T) {
		d := topic.Definition{Name: "t"}
		d.AllowOnly(rapid.SliceOfN(entry, 0, 5).Draw(t, "list")...)
		gone := entry.Draw(t, "gone")
		goneBucket, gonePrefix, _ := strings.Cut(gone, "/")
		before := d
		err := d.Disallow(gone)
		if err != nil && (!slices.Equal(d.Buckets, before.Buckets) || !d.Allows(goneBucket, gonePrefix)) {
			t.Fatalf("%q without %q: %q, error %v", before.Buckets, gone, d.Buckets, err)
		}
		for _, bucket := range []string{"photos", "photos2", "films"} {
			key := rapid.StringMatching(`[ab]{0,5}`).Draw(t, "key")
			want := before.Allows(bucket, key)
			if err == nil && bucket == goneBucket && strings.HasPrefix(key, gonePrefix) {
				want = false
			}
			if d.Allows(bucket, key) != want {
				t.Fatalf("%q without %q: %q allows %q in %q: %v", before.Buckets, gone, d.Buckets, key, bucket, !want)
			}
		}
	})
}

// TestLists: the same entries are the same list, and a list is nobody else's.
func TestLists(t *testing.T) {
	given := []string{"photos", "films", "photos"}
	var a, b topic.Definition
	a.AllowOnly(given...)
	for _, e := range []string{"films", "photos", "films"} {
		b.Allow(e)
	}
	want := []string{"films", "photos"}
	if diff := cmp.Diff([][]string{want, want}, [][]string{a.Buckets, b.Buckets}); diff != "" || given[0] != "photos" {
		t.Errorf("given %q (-want +got)\n%s", given, diff)
	}
	c := a
	c.Allow("a-bucket")
	if err := c.Disallow("photos"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(want, a.Buckets); diff != "" {
		t.Errorf("a copy's change (-want +got)\n%s", diff)
	}
	if c.AllowOnly([]string{}...); c.Buckets != nil {
		t.Errorf("nothing is %#v", c.Buckets)
	}
}
