package table

import (
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/topic"
)

// segmentOf is the segment that a data file belongs to by its path,
// ".../data/<segment>/<name>.parquet"; "" if it is none of ours.
func segmentOf(url string) topic.SegmentID {
	if !strings.HasSuffix(url, ".parquet") {
		return ""
	}
	dir := path.Dir(url)
	if id := path.Base(dir); path.Base(path.Dir(dir)) == "data" && segmentID.MatchString(id) {
		return topic.SegmentID(id)
	}
	return ""
}

// segmentsIn gives the segments that the table itself knows to be in it: those of
// the property. If somebody took that away, or wrote something else there, it is
// made again from what the table names and what its snapshots say they added. It
// is never taken as empty while there are snapshots.
func segmentsIn(ice *icetable.Table, files *fileIO) ([]topic.SegmentID, error) {
	meta := ice.Metadata()
	if set, ok := parseSegments(meta.Properties()[propSegments]); ok {
		return set, nil
	}
	found, err := segmentsNamed(ice, files)
	return slices.Sorted(maps.Keys(found)), err
}

// segmentsNamed gives the segments that the table holds by the files that it names, and
// by what its snapshots say they added: a rewrite names other files. It costs more the
// more there is.
func segmentsNamed(ice *icetable.Table, files *fileIO) (map[topic.SegmentID]bool, error) {
	meta := ice.Metadata()
	found := map[topic.SegmentID]bool{}
	for s := range ancestors(meta) {
		if s.Summary == nil {
			continue
		}
		ids, _ := parseSegments(s.Summary.Properties[propSegments])
		for _, id := range ids {
			found[id] = true
		}
	}
	for f, err := range dataFilesOf(meta.CurrentSnapshot(), files) {
		if err != nil {
			return nil, err
		}
		if id := segmentOf(f.FilePath()); id != "" {
			found[id] = true
		}
	}
	return found, nil
}

// ancestors are the head of a table's main branch and the snapshots before it, as
// far back as the metadata goes.
func ancestors(meta icetable.Metadata) iter.Seq[icetable.Snapshot] {
	return func(yield func(icetable.Snapshot) bool) {
		seen := map[int64]bool{}
		for s := meta.CurrentSnapshot(); s != nil && !seen[s.SnapshotID]; s = parentOf(meta, s) {
			seen[s.SnapshotID] = true
			if !yield(*s) {
				return
			}
		}
	}
}
