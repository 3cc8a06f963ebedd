package segment

import (
	"path"
	"strings"
)

// DataDir is the folder of the segment's data files. It belongs to the topic's
// incarnation, whether a table names the files or not.
func (s *Segment) DataDir() string { return path.Join(s.topic.Dir(), "data", string(s.ID)) }

// DataPath is where a data file of that name is.
func (s *Segment) DataPath(name string) string { return path.Join(s.DataDir(), name) }

// DataURL is the same file as an S3 object.
func (s *Segment) DataURL(name string) string {
	return "s3://" + strings.TrimPrefix(s.DataPath(name), "/buckets/")
}
