package seaweed

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/filer"
)

// ttlOf is the TTL of a path by definition: of the rules that it begins with, the
// longest that names one.
func ttlOf(rules []*filer_pb.FilerConf_PathConf, path string) string {
	best, ttl := -1, ""
	for _, r := range rules {
		if n := len(r.LocationPrefix); r.Ttl != "" && n > best && strings.HasPrefix(path, r.LocationPrefix) {
			best, ttl = n, r.Ttl
		}
	}
	return ttl
}

// TestExpiringLocations: a folder is said to expire if and only if the rules give
// a TTL to a file in it.
func TestExpiringLocations(t *testing.T) {
	const dir = "/a/b/"
	name := func(t *rapid.T) string { return rapid.StringMatching(`/?([ab]?/){0,3}[ab]?`).Draw(t, "prefix") }
	rapid.Check(t, func(t *rapid.T) {
		var rules []*filer_pb.FilerConf_PathConf
		for range rapid.IntRange(0, 5).Draw(t, "rules") {
			p := name(t)
			if slices.ContainsFunc(rules, func(r *filer_pb.FilerConf_PathConf) bool { return r.LocationPrefix == p }) {
				continue
			}
			rules = append(rules, &filer_pb.FilerConf_PathConf{LocationPrefix: p, Ttl: rapid.SampledFrom([]string{"", "0m", "0", "3d", "7"}).Draw(t, "ttl")})
		}
		// A file just below each prefix, and one below dir, meet every rule.
		paths := []string{dir + "~"}
		for _, r := range rules {
			paths = append(paths, r.LocationPrefix+"~")
		}
		want := false
		for _, p := range paths {
			ttl := ttlOf(rules, p)
			want = want || strings.HasPrefix(p, dir) && ttl != "" && !endless(ttl)
		}
		got := expiringLocations(rules, dir)
		if len(got) > 0 != want {
			t.Fatalf("%v of %v", got, rules)
		}
		for _, e := range got {
			if e.Rule == "" || e.What == "" {
				t.Fatalf("%+v says nothing", e)
			}
		}
	})
}

// FuzzLocations and FuzzLifecycle: whatever stands where rules should stand is
// rules or an error.
func FuzzLocations(f *testing.F) {
	for _, s := range []string{``, `{}`, `null`, `{"locations":[null]}`, `{"version":2,"locations":[{"locationPrefix":"/buckets/","ttl":"7d","fsync":true}]}`,
		`{"locations":[{"locationPrefix":"/a"},{"locationPrefix":"/a","ttl":"0m"}]}`, `{"locations":[{"ttl":"` + strings.Repeat("9", 400) + `d"}]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := parseLocations(data)
		if err != nil {
			if !errors.Is(err, filer.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		for _, e := range expiringLocations(rules, "/buckets/b/topics/") {
			if e.Rule == "" || e.What == "" {
				t.Errorf("%+v says nothing", e)
			}
		}
	})
}

func FuzzLifecycle(f *testing.F) {
	for _, s := range []string{``, ` `, `<LifecycleConfiguration/>`, `<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Rule><Status>Enabled</Status>` +
		`<Filter><Prefix>topics/</Prefix></Filter><Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>`,
		strings.Repeat("<a>", 20000), `<!DOCTYPE x [<!ENTITY a "b">]><LifecycleConfiguration>&a;</LifecycleConfiguration>`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rules, err := parseLifecycle(text)
		if err != nil {
			return
		}
		for i, r := range rules {
			if what := r.expires("topics/"); what != "" && (r.Status != "Enabled" || r.name(i) == "") {
				t.Errorf("%+v: %s", r, what)
			}
		}
	})
}
