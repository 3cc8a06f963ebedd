package table

import (
	"regexp"
	"slices"
	"strings"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Properties of our tables. propSegments is a property of the table, and in
// snapshots' summaries says what they added.
const (
	propTopic       = "spillway.topic"
	propIncarnation = "spillway.incarnation"
	propSegments    = "spillway.segments"
	propCommit      = "spillway.commit" // only in summaries: which call made the snapshot
)

// properties are what a new table has.
func properties(t Topic) iceberg.Properties {
	return iceberg.Properties{
		propTopic:       t.Name,
		propIncarnation: t.Incarnation,

		// The files belong to the log. Nobody may delete them because the table
		// does not name them any more.
		icetable.GCEnabledKey: "false",
		// Both keep the time of a commit flat.
		icetable.ManifestMergeEnabledKey:             "true",
		icetable.ManifestMinMergeCountKey:            "10",
		icetable.MetadataDeleteAfterCommitEnabledKey: "true",
		icetable.MetadataPreviousVersionsMaxKey:      "5",
		// Bounds of values and headers prune nothing and take room in manifests.
		icetable.DefaultWriteMetricsModeKey:                              "truncate(16)",
		icetable.MetricsModeColumnConfPrefix + ".value":                  "none",
		icetable.MetricsModeColumnConfPrefix + "._headers.element.name":  "none",
		icetable.MetricsModeColumnConfPrefix + "._headers.element.value": "none",
		icetable.MetricsModeColumnConfPrefix + "._ref.sha256":            "none",
		icetable.MetricsModeColumnConfPrefix + "._ref.etag":              "none",
		icetable.MetricsModeColumnConfPrefix + "._ref.version":           "none",
	}
}

// sortOrder is the order of rows in files, which a rewrite should keep: records of
// a key are in order in a segment.
func sortOrder() icetable.SortOrder {
	by := func(column int) icetable.SortField {
		return icetable.SortField{
			SourceIDs: []int{column}, Transform: iceberg.IdentityTransform{},
			Direction: icetable.SortASC, NullOrder: icetable.NullsFirst,
		}
	}
	order, err := icetable.NewSortOrder(1, []icetable.SortField{by(columnSegment), by(columnOffset)})
	if err != nil {
		return icetable.UnsortedSortOrder // a claim the less; tests see that it does not happen
	}
	return order
}

// segmentID matches what topic.NewSegmentID makes.
var segmentID = regexp.MustCompile(`^[0-9]{8,20}-[0-9]{2,}-[a-z0-9]{1,32}$`)

// parseSegments reads a set of segments. It is not ok if there is none, or if
// somebody wrote something else: then it says nothing.
func parseSegments(s string) (ids []topic.SegmentID, ok bool) {
	for id := range strings.SplitSeq(s, ",") {
		if !segmentID.MatchString(id) {
			return nil, false
		}
		ids = append(ids, topic.SegmentID(id))
	}
	return ids, true
}

// formatSegments writes a set of segments, sorted.
func formatSegments(ids []topic.SegmentID) string {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(id))
	}
	return b.String()
}
