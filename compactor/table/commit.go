package table

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

const (
	// MaxAdditions is how many segments one commit takes.
	MaxAdditions = 100

	// conflictTries is how often a commit starts again because others were first,
	// and faultTries how often in a row because there was no answer.
	conflictTries = 40
	faultTries    = 4
)

// Addition is a segment, with all data files of its manifest.
type Addition struct {
	Segment topic.SegmentID
	Files   []string // s3:// URLs
	Rows    uint64   // of all files: a check
	// Old: it may have been added long ago, and the record of it may be lost. Then the
	// table's files are looked through for it too, which takes longer the more there are.
	Old bool
}

// Committed is what became of a commit's segments: each is in the table now.
type Committed struct {
	Added    []topic.SegmentID // by this call, as far as it knows
	Already  []topic.SegmentID // before
	Snapshot int64             // the one that added them, or the one in which they were found
}

// Recorded tells whether a segment's own record (table.json) names the table of
// this handle, or the segment is gone for good. It reads the record: a commit
// relies on an answer that is newer than its load of the table. It is called for
// segments of the commit and for those of the table's property, which leave that
// once it says true.
type Recorded = func(ctx context.Context, id topic.SegmentID) (bool, error)

// Commit adds segments to the table, each once, whoever else does so at the same
// time or did before; their order does not matter. It repeats itself while others
// are first or the catalog gives no answer, within bounds. When it returns nil all
// of them were seen in the table. After an error some may be in; the same call
// settles it. *ConflictError, *UnavailableError: call again later. *SchemaError,
// *ForeignError, *ConfigError: somebody has to look. [ErrNoTable]: open it anew.
// *AdditionError: leave that segment out.
func (t *Table) Commit(ctx context.Context, adds []Addition, recorded Recorded) (Committed, error) {
	if err := t.checkAdditions(adds); err != nil {
		return Committed{}, fmt.Errorf("commit to table %s: %w", t.Name(), err)
	}
	c := &commit{t: t, adds: adds, recorded: recorded, id: filer.NewID()}
	done, err := c.run(ctx)
	if err != nil {
		return Committed{}, err
	}
	if len(done.Added) > 0 {
		t.maintainAfter(ctx, c.last)
	}
	return done, nil
}

// checkAdditions refuses what cannot be the segments of the table's topic.
func (t *Table) checkAdditions(adds []Addition) error {
	if len(adds) == 0 || len(adds) > MaxAdditions {
		return fmt.Errorf("%w: %d segments: from 1 to %d are taken", filer.ErrInvalid, len(adds), MaxAdditions)
	}
	own := "s3://" + path.Join(t.ts.bucket, "topics", t.topic.Name, t.topic.Incarnation, "data") + "/"
	segments, files := map[topic.SegmentID]bool{}, map[string]bool{}
	for _, a := range adds {
		switch {
		case !segmentID.MatchString(string(a.Segment)):
			return fmt.Errorf("%w: %q is no segment", filer.ErrInvalid, a.Segment)
		case segments[a.Segment]:
			return fmt.Errorf("%w: segment %s is there twice", filer.ErrInvalid, a.Segment)
		}
		segments[a.Segment] = true
		for _, f := range a.Files {
			if segmentOf(f) != a.Segment || !strings.HasPrefix(f, own) {
				return fmt.Errorf("%w: %s is no data file of segment %s", filer.ErrInvalid, f, a.Segment)
			}
			if files[f] {
				return fmt.Errorf("%w: file %s is there twice", filer.ErrInvalid, f)
			}
			files[f] = true
		}
	}
	return nil
}

// commit is one call of Commit.
type commit struct {
	t        *Table
	adds     []Addition
	recorded Recorded
	id       string // of this call, in the summary of its snapshot
	last     icetable.Metadata

	dataFiles dataFiles
}

// run tries until a load shows that nothing is left to add. It believes no answer
// of the catalog but that.
func (c *commit) run(ctx context.Context) (Committed, error) {
	conflicts, faults := 0, 0
	for p := (pause{}); ; {
		done, finished, err := c.once(ctx)
		var unavailable *UnavailableError
		switch {
		case finished:
			return done, err
		case err == nil: // committed, as it seems: look
			continue
		case errors.Is(err, icetable.ErrCommitFailed), isMissing(err): // dropped meanwhile: the next load tells
			if conflicts++; conflicts >= conflictTries {
				return Committed{}, &ConflictError{c.t.Name(), conflicts, err}
			}
			faults = 0
		case errors.As(err, &unavailable):
			if faults++; faults >= faultTries {
				return Committed{}, err
			}
		default:
			return Committed{}, err
		}
		c.t.ts.log.Debug("commit to a table again", "table", c.t.Name(), "conflicts", conflicts, "faults", faults, "error", err)
		if err := p.wait(ctx); err != nil {
			return Committed{}, err
		}
	}
}

// once loads the table, and adds what is not in it. finished: all was in.
func (c *commit) once(ctx context.Context) (done Committed, finished bool, err error) {
	ice, files, err := c.t.load(ctx)
	if err != nil {
		return done, false, err
	}
	meta := ice.Metadata()
	c.last = meta
	plan, err := c.decide(ctx, ice, files)
	switch {
	case err != nil:
		return done, false, err
	case len(plan.add) == 0:
		return c.result(meta), true, nil
	}
	if err := errors.Join(checkOwner(c.t.ident, meta, c.t.topic), checkSchema(c.t.ident, meta)); err != nil {
		return done, false, err
	}
	return done, false, c.add(ctx, ice, files, plan)
}

// plan is what a commit does to the table that was loaded.
type plan struct {
	add []Addition
	set []topic.SegmentID // the property afterwards
}

// decide tells what is left to add. It reads records after the table was loaded:
// a segment that left the property before had its record before.
func (c *commit) decide(ctx context.Context, ice *icetable.Table, files *fileIO) (plan, error) {
	set, err := segmentsIn(ice, files)
	if err != nil {
		return plan{}, err
	}
	named := sync.OnceValues(func() (map[topic.SegmentID]bool, error) { return segmentsNamed(ice, files) })
	var p plan
	for _, a := range c.adds {
		in, err := c.isIn(ctx, a, set, named)
		if err != nil {
			return plan{}, err
		}
		if !in {
			p.add = append(p.add, a)
		}
	}
	if len(p.add) == 0 {
		return p, nil
	}
	for _, id := range set {
		known, err := c.recorded(ctx, id)
		if errors.Is(err, filer.ErrCorrupt) {
			known, err = false, nil // it stays in the property
		}
		if err != nil {
			return plan{}, fmt.Errorf("is segment %s in table %s: %w", id, c.t.Name(), err)
		}
		if !known {
			p.set = append(p.set, id)
		}
	}
	for _, a := range p.add {
		p.set = append(p.set, a.Segment)
	}
	return p, nil
}

// isIn tells whether a segment is in the table: by the property, by the files if it is
// old, or by its own record.
func (c *commit) isIn(ctx context.Context, a Addition, set []topic.SegmentID, named func() (map[topic.SegmentID]bool, error)) (bool, error) {
	if slices.Contains(set, a.Segment) {
		return true, nil
	}
	if a.Old {
		if in, err := named(); err != nil || in[a.Segment] {
			return true, err
		}
	}
	in, err := c.recorded(ctx, a.Segment)
	if errors.Is(err, filer.ErrCorrupt) {
		return false, &AdditionError{a.Segment, err}
	}
	if err != nil {
		return false, fmt.Errorf("is segment %s in table %s: %w", a.Segment, c.t.Name(), err)
	}
	return in, nil
}

// add is the transaction: the files and the property, if the head is still the
// one that was loaded. nil and icetable.ErrCommitFailed are answers of the catalog;
// after any other error the outcome is unknown.
func (c *commit) add(ctx context.Context, ice *icetable.Table, files *fileIO, p plan) error {
	data, err := c.dataFiles.of(ctx, ice.Metadata(), files, p.add)
	if err != nil {
		return err
	}
	tx, err := ice.NewTransactionOnBranchWithError(icetable.MainBranch)
	if err != nil {
		return err
	}
	// Without this a commit that meets another one would be done again on top of
	// it, without looking what that has added.
	if err := tx.AssertRefSnapshotID(icetable.MainBranch); err != nil {
		return err
	}
	ids := make([]topic.SegmentID, len(p.add))
	for i, a := range p.add {
		ids[i] = a.Segment
	}
	summary := iceberg.Properties{propCommit: c.id, propSegments: formatSegments(ids)}
	err = tx.AddDataFiles(ctx, data, summary, icetable.WithoutDuplicateCheck(), icetable.WithoutAutoNameMapping())
	if err != nil {
		return c.fileFault(err)
	}
	if err := tx.SetProperties(iceberg.Properties{propSegments: formatSegments(p.set)}); err != nil {
		return err
	}
	_, err = tx.Commit(ctx)
	return err
}

// fileFault tells by the error of an operation on files whether to try again.
func (c *commit) fileFault(err error) error {
	var file *FileError
	if errors.As(err, &file) && !filer.Definite(file.Err) {
		return &UnavailableError{"write to table " + c.t.Name(), err}
	}
	return err
}

// result is said when all segments are in.
func (c *commit) result(meta icetable.Metadata) Committed {
	var done Committed
	mine := map[topic.SegmentID]bool{}
	for s := range ancestors(meta) {
		if done.Snapshot == 0 {
			done.Snapshot = s.SnapshotID
		}
		if s.Summary == nil || s.Summary.Properties[propCommit] != c.id {
			continue
		}
		done.Snapshot = s.SnapshotID
		ids, _ := parseSegments(s.Summary.Properties[propSegments])
		for _, id := range ids {
			mine[id] = true
		}
	}
	for _, a := range c.adds {
		if mine[a.Segment] {
			done.Added = append(done.Added, a.Segment)
		} else {
			done.Already = append(done.Already, a.Segment)
		}
	}
	return done
}
