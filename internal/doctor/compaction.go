package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// Tables are the tables that topics become.
type Tables interface {
	// Look finds out whether a topic's table is there, and is its own. ErrAway: the
	// catalog gave no answer. Any other error is one.
	Look(ctx context.Context, topic, incarnation string) (found bool, err error)
}

// ErrAway says that what was asked gave no answer.
var ErrAway = errors.New("no answer")

const (
	// compactionLag is after how long a sealed segment should have been compacted.
	compactionLag = 6 * time.Hour
	// mostQuarantined bounds how many segments are named one by one.
	mostQuarantined = 10
)

// compaction looks at what became of sealed segments.
type compaction struct {
	store  *segment.Store
	tables Tables // nil: no catalog is configured
	now    time.Time

	segments, compacted int // that are sealed, and of them those with a manifest
	late                int
	oldest              time.Duration
	stray               int
	strayBytes          int64
	quarantined         []Finding
	lost                []Finding // data files
	all                 bool      // of the segments were looked at
	mute                bool      // the catalog does not answer
}

// compacted tells what hinders segments from becoming files, and files and tables that
// are not as they should be. It looks at no more than mostSegments segments.
func compacted(ctx context.Context, store *segment.Store, tables Tables, now time.Time) []Finding {
	const check = "compaction"
	defs, err := store.Topics(ctx)
	if err != nil {
		return []Finding{asked(check, "look at the folder with weed shell", err)}
	}
	c := compaction{store: store, tables: tables, now: now, all: true}
	var found []Finding
	for _, d := range defs {
		if d.State != topic.StateLive {
			continue
		}
		if err := c.topic(ctx, d); err != nil {
			found = append(found, asked(check, "run spillway verify "+d.Name, fmt.Errorf("topic %s: %w", d.Name, err)))
		}
		if tables != nil && !c.mute {
			found = append(found, c.table(ctx, d)...)
		}
	}
	return append(found, c.findings()...)
}

func (c *compaction) findings() []Finding {
	const check = "compaction"
	found := append([]Finding{}, c.quarantined[:min(len(c.quarantined), mostQuarantined)]...)
	found = append(found, c.lost[:min(len(c.lost), mostQuarantined)]...)
	if more := len(c.lost) - mostQuarantined; more > 0 {
		found = append(found, fail(check, "spillway verify TOPIC shows those of a topic", "%d more data files are not there, or not whole", more))
	}
	if more := len(c.quarantined) - mostQuarantined; more > 0 {
		found = append(found, fail(check, "spillway compact TOPIC --dry-run shows those of a topic", "%d more segments are in quarantine", more))
	}
	if c.late > 0 && c.tables != nil {
		found = append(found, warn(check, "see that spillway run compact runs, and what it logs",
			"%d sealed segments are not compacted, the oldest for %s", c.late, c.oldest.Round(time.Minute)))
	}
	if c.stray > 0 {
		found = append(found, warn(check, "nothing: the compactor's next sweep deletes them",
			"%d files with %d bytes lie beside the data files of compacted segments, and no manifest names them", c.stray, c.strayBytes))
	}
	more := map[bool]string{true: "", false: " that were looked at"}[c.all]
	if len(found) == 0 {
		found = append(found, ok(check, "%d of %d sealed segments%s are compacted", c.compacted, c.segments, more))
	}
	return found
}

// topic looks at the sealed segments of a topic.
func (c *compaction) topic(ctx context.Context, d topic.Definition) error {
	t, err := c.store.Topic(ctx, d.Name)
	if err != nil {
		return unlessGone(err)
	}
	l, err := t.Lineage(ctx)
	if err != nil {
		return unlessGone(err)
	}
	for _, m := range l.Members {
		if len(m.Children) == 0 {
			continue
		}
		if c.segments == mostSegments {
			c.all = false
			return nil
		}
		c.segments++
		s, err := t.Segment(ctx, m.ID)
		if err == nil {
			err = c.segment(ctx, t, s)
		}
		if unlessGone(err) != nil {
			return err
		}
	}
	return nil
}

// unlessGone drops errors of what is deleted meanwhile.
func unlessGone(err error) error {
	if errors.Is(err, segment.ErrNoTopic) || errors.Is(err, segment.ErrDeleting) || errors.Is(err, commitlog.ErrNoLog) {
		return nil
	}
	return err
}

func (c *compaction) segment(ctx context.Context, t *segment.Topic, s *segment.Segment) error {
	m, err := s.Manifest(ctx)
	switch {
	case err == nil:
		c.compacted++
		return c.files(ctx, s, m)
	case !errors.Is(err, filer.ErrNotFound):
		return err
	}
	q, err := s.Quarantine(ctx)
	switch {
	case err == nil && q.Reason != "":
		c.quarantine(t, s, q)
		return nil
	case err == nil:
		return nil // an operator has given something up, and the compactor goes on
	case !errors.Is(err, filer.ErrNotFound):
		return err
	}
	tail, err := s.Tail(ctx)
	if err != nil {
		return err
	}
	if age := c.now.Sub(tail.Entry.MTime); tail.Sealed && age > compactionLag {
		c.late++
		c.oldest = max(c.oldest, age)
	}
	return nil
}

// quarantine says why a segment is not compacted, and what can be done.
func (c *compaction) quarantine(t *segment.Topic, s *segment.Segment, q segment.Quarantine) {
	for _, d := range q.Drop {
		if d.First <= q.First && q.Last <= d.Last {
			return // it is given up already
		}
	}
	do := fmt.Sprintf("spillway repair %s %s --from-lane; if the lane has its messages no more, --drop %d-%d --reason TEXT", t.Name, s.ID, q.First, q.Last)
	c.quarantined = append(c.quarantined, fail("compaction", do, "segment %s of topic %s is in quarantine since %s: %s",
		s.ID, t.Name, q.At.UTC().Format(time.RFC3339), oneLine(errors.New(q.Reason))))
}

// files looks for the data files of a segment, and counts what lies beside them.
func (c *compaction) files(ctx context.Context, s *segment.Segment, m segment.Manifest) error {
	named := make(map[string]segment.DataFile, len(m.Files))
	for _, f := range m.Files {
		named[f.Name] = f
	}
	err := walk(ctx, c.store.Filer, s.DataDir(), func(e filer.Entry) error {
		f, ok := named[path.Base(e.Path)]
		delete(named, f.Name)
		switch {
		case !ok:
			c.stray++
			c.strayBytes += e.Size
		case e.Size != f.Size || e.Attrs[filer.AttrDigest] != f.Digest:
			c.lose(s, f, fmt.Sprintf("is another file than the manifest says: %d bytes instead of %d, digest %q", e.Size, f.Size, e.Attrs[filer.AttrDigest]))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range named {
		c.lose(s, f, "is not there")
	}
	return nil
}

// lose tells of a data file that is not what it should be.
func (c *compaction) lose(s *segment.Segment, f segment.DataFile, what string) {
	c.lost = append(c.lost, fail("compaction", "find out who deleted or replaced it, and restore it from a backup: readers of these records get an error",
		"data file %s with records %d to %d %s", s.DataPath(f.Name), f.First, f.Last, what))
}

// table looks at a topic's table.
func (c *compaction) table(ctx context.Context, d topic.Definition) []Finding {
	const check = "table"
	_, err := c.tables.Look(ctx, d.Name, d.Incarnation)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrAway):
		c.mute = true // nor does it answer about the others
		return []Finding{away(check, err)}
	}
	return []Finding{fail(check, "see COMPACTION, “Somebody else's table”", "%s", oneLine(err))}
}
