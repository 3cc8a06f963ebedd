package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spillway-mq/spillway/internal/topic"
)

// aboutAllow is what help says of the list of buckets.
const aboutAllow = `Records may refer to objects on S3 (spillway submit), of the buckets on the topic's
list alone: --allow names a bucket, or bucket/prefix for the objects whose keys
begin so; "photos/2026" allows photos/2026/cat and photos/2026-old, "photos/2026/"
the first only. A reference to anything else is committed as a rejected record,
and read --fetch does not read what the list does not allow.
`

// referenceFlags are those of references beside the list.
func referenceFlags(f *pflag.FlagSet, endpoint *string, removals *bool) {
	f.StringVar(endpoint, "endpoint", "", `URL of the S3 endpoint that has these buckets; "": as everybody's settings say`)
	f.BoolVar(removals, "record-removals", false, "make records of S3 events that tell of removed objects")
}

// parseAllow reads the buckets of a flag that may be repeated. One that is empty
// is none.
func parseAllow(flag string, given []string) (list []string, err error) {
	if len(given) == 1 && given[0] == "" {
		return nil, nil
	}
	for _, g := range given {
		entry, bad := topic.ParseBucket(g)
		if bad == nil && strings.HasSuffix(entry, "*") {
			bad = &topic.BucketError{Entry: g, Reason: "a prefix is the beginning of keys as it is: leave the * out"}
		}
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", flag, bad))
		}
		list = append(list, entry)
	}
	return list, err
}

// allowedByDefault is the list of a topic that is made without one: large values
// are uploaded there.
func (a *app) allowedByDefault() []string {
	if a.cfg.S3Bucket == "" {
		return nil
	}
	return []string{a.cfg.S3Bucket}
}

// referenceLines say what records of a topic may refer to.
func referenceLines(d topic.Definition) []string {
	if len(d.Buckets) == 0 {
		return []string{fmt.Sprintf("to no bucket (spillway topic set %s --allow BUCKET)", d.Name)}
	}
	lines := make([]string, 0, len(d.Buckets)+2)
	for _, entry := range d.Buckets {
		lines = append(lines, "to s3://"+entry)
	}
	where := "at the endpoint of the settings (--s3)"
	if d.Endpoint != "" {
		where = "at " + d.Endpoint
	}
	lines = append(lines, where)
	if d.RecordRemovals {
		lines = append(lines, "events of removed objects become records")
	}
	return lines
}
