package table

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	icetable "github.com/apache/iceberg-go/table"
)

const (
	// MaxSnapshots is how many snapshots of the main branch a table keeps, unless
	// its property history.expire.min-snapshots-to-keep says more. They are
	// removed by tens: each time is a commit.
	MaxSnapshots  = 30
	snapshotSlack = 10
)

// maintainAfter takes care of the table after a commit that ended with these
// metadata. What goes wrong with it is tried again after the next one.
func (t *Table) maintainAfter(ctx context.Context, meta icetable.Metadata) {
	n, err := t.expire(ctx, meta)
	switch {
	case err != nil && ctx.Err() == nil:
		t.ts.log.Warn("removing old snapshots failed; the next commit does it", "table", t.Name(), "error", err)
	case n > 0:
		t.ts.log.Debug("removed old snapshots", "table", t.Name(), "snapshots", n)
	}
}

// Maintain takes snapshots beyond the last [MaxSnapshots] out of the table's
// metadata, and returns how many; commits do so by themselves. No file is deleted:
// data files belong to the log, and metadata that nothing names any more is for
// [Table.Sweep]. Branches and tags are kept, as is what branches have of their own.
// It tries once; that somebody else committed meanwhile is no error.
func (t *Table) Maintain(ctx context.Context) (int, error) {
	ice, _, err := t.load(ctx)
	if err != nil {
		return 0, err
	}
	return t.expire(ctx, ice.Metadata())
}

func (t *Table) expire(ctx context.Context, meta icetable.Metadata) (int, error) {
	expired := expiredSnapshots(meta)
	head := meta.CurrentSnapshot()
	if len(expired) == 0 || head == nil {
		return 0, nil
	}
	reqs := []icetable.Requirement{
		icetable.AssertTableUUID(meta.TableUUID()),
		icetable.AssertRefSnapshotID(icetable.MainBranch, &head.SnapshotID),
	}
	// A branch or tag that somebody moves meanwhile to a snapshot that goes would go too.
	for name, ref := range meta.Refs() {
		if name != icetable.MainBranch {
			reqs = append(reqs, icetable.AssertRefSnapshotID(name, &ref.SnapshotID))
		}
	}
	_, _, err := t.ts.catalog.CommitTable(ctx, t.ident, reqs, []icetable.Update{icetable.NewRemoveSnapshotsUpdate(expired, false)})
	switch {
	case errors.Is(err, icetable.ErrCommitFailed):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return len(expired), nil
}

// expiredSnapshots are those that nothing needs: not among the last of the main
// branch, not named by a branch or tag, and not between a branch's head and where
// it comes from the main branch. Snapshots that are on no branch may be somebody's
// work that is under way, and stay until the main branch's oldest is younger.
func expiredSnapshots(meta icetable.Metadata) []int64 {
	keep := max(MaxSnapshots, min(meta.Properties().GetInt(icetable.MinSnapshotsToKeepKey, 0), 10*MaxSnapshots))
	main, kept := map[int64]bool{}, map[int64]bool{}
	oldest := int64(0)
	for s := range ancestors(meta) {
		if main[s.SnapshotID] = true; len(main) <= keep {
			kept[s.SnapshotID], oldest = true, s.TimestampMs
		}
	}
	if len(main) < keep+snapshotSlack {
		return nil
	}
	for _, ref := range meta.Refs() {
		kept[ref.SnapshotID] = true
		if ref.SnapshotRefType != icetable.BranchRef {
			continue
		}
		for s := meta.SnapshotByID(ref.SnapshotID); s != nil && !main[s.SnapshotID]; s = parentOf(meta, s) {
			kept[s.SnapshotID] = true
		}
	}
	var expired []int64
	for _, s := range meta.Snapshots() {
		if !kept[s.SnapshotID] && s.TimestampMs < oldest {
			expired = append(expired, s.SnapshotID)
		}
	}
	slices.Sort(expired)
	return expired
}

func parentOf(meta icetable.Metadata, s *icetable.Snapshot) *icetable.Snapshot {
	if s.ParentSnapshotID == nil {
		return nil
	}
	return meta.SnapshotByID(*s.ParentSnapshotID)
}

// Snapshot is one state of a table.
type Snapshot struct {
	ID         int64
	Parent     int64 // 0: none
	At         time.Time
	Operation  string // "append", "replace", ...
	AddedRows  int64
	AddedFiles int64
	Rows       int64 // in all; -1: it does not say
	Files      int64
	Segments   string // that it added, if it was made by a commit of ours
	Current    bool
}

// Snapshots gives the states that the table's metadata has, the oldest first.
func (t *Table) Snapshots(ctx context.Context) ([]Snapshot, error) {
	ice, _, err := t.load(ctx)
	if err != nil {
		return nil, err
	}
	meta := ice.Metadata()
	head := meta.CurrentSnapshot()
	var all []Snapshot
	for _, s := range meta.Snapshots() {
		one := Snapshot{ID: s.SnapshotID, At: time.UnixMilli(s.TimestampMs).UTC(), Rows: -1, Files: -1}
		if s.ParentSnapshotID != nil {
			one.Parent = *s.ParentSnapshotID
		}
		if s.Summary != nil {
			p := s.Summary.Properties
			one.Operation = string(s.Summary.Operation)
			one.AddedRows, one.AddedFiles = number(p["added-records"], 0), number(p["added-data-files"], 0)
			one.Rows, one.Files = number(p["total-records"], -1), number(p["total-data-files"], -1)
			one.Segments = p[propSegments]
		}
		one.Current = head != nil && head.SnapshotID == s.SnapshotID
		all = append(all, one)
	}
	slices.SortStableFunc(all, func(a, b Snapshot) int { return a.At.Compare(b.At) })
	return all, nil
}

func number(s string, none int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return none
	}
	return n
}
