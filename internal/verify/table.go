package verify

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path"
	"strings"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Table is a topic's table as it was at one time, after it was opened.
type Table interface {
	Name() string
	UUID() string
	// Files yields the files that the table names, as often as it does.
	Files(ctx context.Context) iter.Seq2[TableFile, error]
}

// TableFile is a file that a table names.
type TableFile struct {
	URL  string
	Rows uint64
}

// InTable has a topic's table compared with the manifests of its segments. open is
// called after the last manifest was read; it returns nil if there is no table.
func InTable(open func(context.Context, *segment.Topic) (Table, error)) Option {
	return func(v *verifier) { v.open = open }
}

// tabled is what manifests and segments' notes say of the table.
type tabled struct {
	segments []*tabledSegment
	files    map[string]*tabledFile // by path
	known    map[topic.SegmentID]bool
}

// tabledSegment is a segment with a manifest.
type tabledSegment struct {
	at    place
	note  segment.InTable // zero: it has none
	files int             // that the manifest lists
	found int             // of them, those that the table names
}

type tabledFile struct {
	segment *tabledSegment
	rows    uint64
	times   int // how often the table names it
}

// recorded notes what a segment's manifest lists, and what the segment says of the
// table.
func (v *verifier) recorded(ctx context.Context, m segment.Manifest) error {
	s := &tabledSegment{at: place{path: path.Join(v.segmentDir(m.Segment), "table.json"), segment: m.Segment, offset: m.Base}, files: len(m.Files)}
	err := v.loadJSON(ctx, s.at.path, &s.note)
	if errors.Is(err, filer.ErrNotFound) {
		err = nil
	}
	if ifUnknown(err) != nil {
		return err
	}
	run(v, v.checks.recorded, s.at, err)
	if v.open == nil {
		return nil
	}
	v.note(s, m)
	return nil
}

func (v *verifier) note(s *tabledSegment, m segment.Manifest) {
	if v.tabled.files == nil {
		v.tabled.files, v.tabled.known = map[string]*tabledFile{}, map[topic.SegmentID]bool{}
	}
	v.tabled.known[s.at.segment] = true
	v.tabled.segments = append(v.tabled.segments, s)
	for _, f := range m.Files {
		v.tabled.files[path.Join(v.dataDir(m.Segment), f.Name)] = &tabledFile{segment: s, rows: f.Rows}
	}
}

// tableStep is a segment with what its table has of it.
type tableStep struct {
	*tabledSegment
	name, uuid string // of the table
	foreign    uint64 // files in the table that are not this topic's
}

// checkTableMissing: a segment is in its table as a whole, or not at all. If others
// have written to the table, they may have put other files in the place of ours.
func checkTableMissing(s tableStep) string {
	switch {
	case s.found == s.files, s.foreign > 0:
		return ""
	case s.found > 0:
		return fmt.Sprintf("table %s names %d of the segment's %d files", s.name, s.found, s.files)
	case s.note.Names(s.uuid):
		return fmt.Sprintf("it says that the segment is in table %s, which names none of its files", s.name)
	}
	return ""
}

// tableFileStep is a file that a table names.
type tableFileStep struct {
	TableFile
	name  string
	ours  bool        // by its place
	known *tabledFile // nil: no manifest lists it
}

// checkTableStray: a table names no file of the topic that no manifest lists.
func checkTableStray(s tableFileStep) string {
	if !s.ours || s.known != nil {
		return ""
	}
	return fmt.Sprintf("table %s names it, but the manifest of its segment does not", s.name)
}

func checkTableTwice(s tableFileStep) string {
	if s.known == nil || s.known.times != 2 { // once for each
		return ""
	}
	return fmt.Sprintf("table %s names it more than once: its records are in the table as often", s.name)
}

func checkTableRows(s tableFileStep) string {
	if s.known == nil || s.known.rows == s.Rows {
		return ""
	}
	return fmt.Sprintf("table %s says that it has %d rows, the manifest says %d", s.name, s.Rows, s.known.rows)
}

// table compares the topic's table with what was noted.
func (v *verifier) table(ctx context.Context) error {
	if v.open == nil {
		return nil
	}
	t, err := v.open(ctx, v.topic)
	if t == nil || err != nil {
		return err
	}
	foreign := uint64(0)
	for f, err := range t.Files(ctx) {
		if err != nil {
			return fmt.Errorf("table %s: %w", t.Name(), err)
		}
		step, err := v.tableFile(ctx, t.Name(), f)
		if err != nil {
			return err
		}
		v.report.TableRows += f.Rows
		if !step.ours {
			foreign++
		}
		run(v, v.checks.tableFile, place{path: pathOf(f.URL)}, step)
		if v.full() {
			return nil
		}
	}
	for _, s := range v.tabled.segments {
		if s.found > 0 && s.found == s.files || s.files == 0 && s.note.Names(t.UUID()) {
			v.report.InTable++
		}
		if run(v, v.checks.table, s.at, tableStep{s, t.Name(), t.UUID(), foreign}); v.full() {
			return nil
		}
	}
	return nil
}

// pathOf is where an object is on the filer.
func pathOf(url string) string {
	return path.Join("/buckets", strings.TrimPrefix(url, "s3://"))
}

// tableFile looks a file up among those that manifests list. A manifest may have been
// made since the segment was read.
func (v *verifier) tableFile(ctx context.Context, table string, f TableFile) (tableFileStep, error) {
	step := tableFileStep{TableFile: f, name: table}
	at := pathOf(f.URL)
	rest, ours := strings.CutPrefix(at, path.Join(v.topic.Dir(), "data")+"/")
	if step.ours = ours; !ours {
		return step, nil
	}
	step.known = v.tabled.files[at]
	if id, _, nested := strings.Cut(rest, "/"); nested && !v.tabled.known[topic.SegmentID(id)] {
		m, err := v.loadManifest(ctx, topic.SegmentID(id))
		if err != nil {
			return step, err
		}
		if m != nil && m.err == nil && m.Segment == m.id {
			v.note(&tabledSegment{at: place{path: v.manifestPath(m.id), segment: m.id}, files: len(m.Files)}, m.Manifest)
			step.known = v.tabled.files[at]
		}
	}
	if step.known != nil {
		if step.known.times++; step.known.times == 1 {
			step.known.segment.found++
		}
	}
	return step, nil
}
