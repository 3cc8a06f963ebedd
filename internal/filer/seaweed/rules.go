package seaweed

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seaweedfs/seaweedfs/weed/pb/filer_pb"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/spillway-mq/spillway/internal/filer"
)

const (
	// pathRules is where `fs.configure` keeps the rules of paths.
	pathRules = "/etc/seaweedfs/filer.conf"
	// lifecycleKey is the attribute of a bucket's folder that holds what S3's
	// PutBucketLifecycleConfiguration was given.
	lifecycleKey = "s3-bucket-lifecycle-configuration-xml"
	// maxRules bounds what is read of either.
	maxRules = 8 << 20
)

// Expiries implements [filer.Store]. Files on a filer vanish in two ways: their
// bytes, when they are written to volumes with a TTL, which rules of paths
// decide; and the files, when a lifecycle rule of their bucket finds them old.
// Rules that only end uploads or old versions do not count, nor do those for
// objects with tags: our files have none.
func (c *Client) Expiries(ctx context.Context, dir string) ([]filer.Expiry, error) {
	if err := filer.CheckPath(dir); err != nil {
		return nil, fmt.Errorf("rules of %q: %w", dir, err)
	}
	locations, err := c.locationRules(ctx)
	if err != nil {
		return nil, fmt.Errorf("rules of %s: %w", dir, err)
	}
	found := expiringLocations(locations, dir+"/")
	rest, inBucket := strings.CutPrefix(dir+"/", "/buckets/")
	if !inBucket {
		return found, nil
	}
	bucket, key, _ := strings.Cut(rest, "/")
	rules, err := c.lifecycle(ctx, bucket)
	if err != nil {
		return nil, fmt.Errorf("rules of %s: %w", dir, err)
	}
	for i, r := range rules {
		if what := r.expires(key); what != "" {
			found = append(found, filer.Expiry{Rule: fmt.Sprintf("lifecycle rule %s of bucket %s", r.name(i), bucket), What: what})
		}
	}
	return found, nil
}

// locationRules reads the rules of paths. None is no error.
func (c *Client) locationRules(ctx context.Context) ([]*filer_pb.FilerConf_PathConf, error) {
	e, err := c.Lookup(ctx, pathRules)
	if errors.Is(err, filer.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r, err := c.Open(ctx, e, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // read-only
	data, err := io.ReadAll(io.LimitReader(r, maxRules+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", pathRules, err)
	case len(data) > maxRules:
		return nil, fmt.Errorf("%s: %w: larger than %d bytes", pathRules, filer.ErrCorrupt, maxRules)
	}
	return parseLocations(data)
}

// parseLocations reads rules of paths. Of two for one prefix the later counts.
func parseLocations(data []byte) ([]*filer_pb.FilerConf_PathConf, error) {
	if len(data) == 0 {
		return nil, nil
	}
	conf := &filer_pb.FilerConf{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, conf); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", pathRules, filer.ErrCorrupt, err)
	}
	last := map[string]*filer_pb.FilerConf_PathConf{}
	for _, r := range conf.Locations {
		last[r.GetLocationPrefix()] = r
	}
	return slices.DeleteFunc(conf.Locations, func(r *filer_pb.FilerConf_PathConf) bool { return last[r.GetLocationPrefix()] != r }), nil
}

// expiringLocations are the rules that give files below dir a TTL. Rules hold
// for all paths that begin with their prefix; of several the longest that names
// a TTL wins, and one of "0m" takes it back.
func expiringLocations(rules []*filer_pb.FilerConf_PathConf, dir string) []filer.Expiry {
	rules = slices.Clone(rules)
	slices.SortFunc(rules, func(a, b *filer_pb.FilerConf_PathConf) int {
		return cmp.Or(cmp.Compare(len(a.LocationPrefix), len(b.LocationPrefix)), strings.Compare(a.LocationPrefix, b.LocationPrefix))
	})
	var above *filer_pb.FilerConf_PathConf // the one that holds for dir itself
	var found []filer.Expiry
	for _, r := range rules {
		switch {
		case r.Ttl == "":
		case strings.HasPrefix(dir, r.LocationPrefix):
			above = r
		case strings.HasPrefix(r.LocationPrefix, dir) && !endless(r.Ttl):
			found = append(found, locationExpiry(r))
		}
	}
	if above != nil && !endless(above.Ttl) {
		found = append([]filer.Expiry{locationExpiry(above)}, found...)
	}
	return found
}

func locationExpiry(r *filer_pb.FilerConf_PathConf) filer.Expiry {
	return filer.Expiry{Rule: fmt.Sprintf("rule for %s in %s", r.LocationPrefix, pathRules), What: "ttl " + r.Ttl}
}

// endless tells whether a TTL is none at all: a count of 0, whatever the unit.
func endless(ttl string) bool {
	n, err := strconv.Atoi(strings.TrimRight(ttl, "mhdwMy"))
	return err == nil && n == 0
}

// lifecycleRule is as much of an S3 lifecycle rule as tells what it deletes.
type lifecycleRule struct {
	ID     string  `xml:"ID"`
	Status string  `xml:"Status"`
	Prefix *string `xml:"Prefix"` // of before there were filters
	Filter struct {
		Prefix *string    `xml:"Prefix"`
		Tag    []struct{} `xml:"Tag"`
		And    struct {
			Prefix *string    `xml:"Prefix"`
			Tag    []struct{} `xml:"Tag"`
		} `xml:"And"`
	} `xml:"Filter"`
	Expiration struct {
		Days string `xml:"Days"`
		Date string `xml:"Date"`
	} `xml:"Expiration"`
}

func (r lifecycleRule) name(i int) string {
	if r.ID != "" {
		return strconv.Quote(r.ID)
	}
	return fmt.Sprintf("number %d", i+1)
}

// expires says what the rule does to objects whose keys begin with key, "" if
// nothing.
func (r lifecycleRule) expires(key string) string {
	if r.Status != "Enabled" || len(r.Filter.Tag)+len(r.Filter.And.Tag) > 0 {
		return ""
	}
	prefix := ""
	for _, p := range []*string{r.Prefix, r.Filter.Prefix, r.Filter.And.Prefix} {
		if p != nil && *p != "" {
			prefix = *p
		}
	}
	if !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key) {
		return ""
	}
	switch days, date := strings.TrimSpace(r.Expiration.Days), strings.TrimSpace(r.Expiration.Date); {
	case days != "" && days != "0":
		return "expiration after " + days + " days"
	case date != "":
		return "expiration on " + date
	}
	return ""
}

// lifecycle reads a bucket's lifecycle rules as S3 clients set them. A bucket
// that does not exist has none.
func (c *Client) lifecycle(ctx context.Context, bucket string) ([]lifecycleRule, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	resp, err := c.rpc.LookupDirectoryEntry(ctx, &filer_pb.LookupDirectoryEntryRequest{Directory: "/buckets", Name: bucket})
	if err != nil {
		if err = callError(ctx, err); errors.Is(err, filer.ErrNotFound) {
			return nil, nil
		}
		return nil, fmt.Errorf("look up bucket %s: %w", bucket, err)
	}
	rules, err := parseLifecycle(resp.GetEntry().GetExtended()[lifecycleKey])
	if err != nil {
		return nil, fmt.Errorf("lifecycle rules of bucket %s: %w: %w", bucket, filer.ErrCorrupt, err)
	}
	return rules, nil
}

func parseLifecycle(text []byte) ([]lifecycleRule, error) {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return nil, nil
	case len(text) > maxRules:
		return nil, fmt.Errorf("larger than %d bytes", maxRules)
	}
	var conf struct {
		XMLName xml.Name        `xml:"LifecycleConfiguration"`
		Rules   []lifecycleRule `xml:"Rule"`
	}
	err := xml.Unmarshal(text, &conf)
	return conf.Rules, err
}
