package table

import (
	"context"
	"encoding/binary"
	"iter"
	"maps"
	"time"

	"github.com/apache/iceberg-go"

	"github.com/spillway-mq/spillway/internal/topic"
)

// Description is what a table is now.
type Description struct {
	Name        string
	UUID        string
	Location    string
	Metadata    string // URL of the metadata file that is in force
	Topic       string
	Incarnation string
	Snapshot    int64 // 0: none yet
	Snapshots   int
	At          time.Time // when it last changed
	Rows        int64
	Files       int64
	Bytes       int64
	Columns     []Column
	Properties  map[string]string
	Pending     []topic.SegmentID // in the table, and their record not yet seen by a commit
}

// Column is a column of a table.
type Column struct {
	ID       int
	Name     string
	Type     string
	Required bool
}

// Describe tells what the table is now.
func (t *Table) Describe(ctx context.Context) (Description, error) {
	ice, files, err := t.load(ctx)
	if err != nil {
		return Description{}, err
	}
	meta := ice.Metadata()
	d := Description{
		Name: t.Name(), UUID: t.uuid, Location: meta.Location(), Metadata: ice.MetadataLocation(),
		Topic: t.topic.Name, Incarnation: t.topic.Incarnation,
		Snapshots: len(meta.Snapshots()), At: time.UnixMilli(meta.LastUpdatedMillis()).UTC(),
		Properties: maps.Clone(map[string]string(meta.Properties())),
	}
	for _, f := range meta.CurrentSchema().Fields() {
		d.Columns = append(d.Columns, Column{f.ID, f.Name, f.Type.String(), f.Required})
	}
	if d.Pending, err = segmentsIn(ice, files); err != nil {
		return Description{}, err
	}
	head := meta.CurrentSnapshot()
	if head == nil {
		return d, nil
	}
	d.Snapshot = head.SnapshotID
	// Summaries are not required to have totals, and others' may be wrong.
	for f, err := range dataFilesOf(head, files) {
		if err != nil {
			return Description{}, err
		}
		d.Files++
		d.Rows += f.Count()
		d.Bytes += f.FileSizeBytes()
	}
	return d, nil
}

// File is a data file that the table names.
type File struct {
	URL     string
	Segment topic.SegmentID // empty: written by somebody else, a rewrite for instance
	Rows    int64
	Size    int64
	First   int64     // lowest offset; -1: the table does not say
	Last    int64     // highest offset
	From    time.Time // earliest append time; zero: the table does not say
	To      time.Time
}

// Files gives the data files of the table as it is now, one after the other.
func (t *Table) Files(ctx context.Context) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		ice, files, err := t.load(ctx)
		if err != nil {
			yield(File{}, err)
			return
		}
		for f, err := range dataFilesOf(ice.Metadata().CurrentSnapshot(), files) {
			if err != nil {
				yield(File{}, err)
				return
			}
			if !yield(fileOf(f), nil) {
				return
			}
		}
	}
}

func fileOf(f iceberg.DataFile) File {
	lower, upper := f.LowerBoundValues(), f.UpperBoundValues()
	return File{
		URL: f.FilePath(), Segment: segmentOf(f.FilePath()), Rows: f.Count(), Size: f.FileSizeBytes(),
		First: offsetBound(lower), Last: offsetBound(upper), From: timeBound(lower), To: timeBound(upper),
	}
}

// longBound reads a bound of a column of longs or timestamps.
func longBound(bounds map[int][]byte, column int) (int64, bool) {
	b := bounds[column]
	if len(b) != 8 {
		return 0, false
	}
	return int64(binary.LittleEndian.Uint64(b)), true
}

func offsetBound(bounds map[int][]byte) int64 {
	if v, ok := longBound(bounds, columnOffset); ok {
		return v
	}
	return -1
}

func timeBound(bounds map[int][]byte) time.Time {
	if v, ok := longBound(bounds, columnTime); ok {
		return time.UnixMicro(v).UTC()
	}
	return time.Time{}
}

// SegmentFiles is what a table has of a segment.
type SegmentFiles struct {
	Files int
	Rows  int64
	URLs  []string
}

// SegmentsIn tells which segments' own data files the table names. Rows that
// somebody rewrote into other files do not count; those files are under "".
func (t *Table) SegmentsIn(ctx context.Context) (map[topic.SegmentID]SegmentFiles, error) {
	in := map[topic.SegmentID]SegmentFiles{}
	for f, err := range t.Files(ctx) {
		if err != nil {
			return nil, err
		}
		s := in[f.Segment]
		s.Files++
		s.Rows += f.Rows
		s.URLs = append(s.URLs, f.URL)
		in[f.Segment] = s
	}
	return in, nil
}
