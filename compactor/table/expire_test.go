package table

import (
	"maps"
	"slices"
	"testing"
	"time"

	icetable "github.com/apache/iceberg-go/table"
	"pgregory.net/rapid"
)

// line is a table's metadata with snapshots 1 to n on the main branch, and with what
// else the updates do.
func line(t interface{ Fatal(...any) }, n int, props map[string]string, updates ...icetable.Update) icetable.Metadata {
	schema, err := columns()
	if err != nil {
		t.Fatal(err)
	}
	meta, err := icetable.NewMetadata(schema, nil, icetable.UnsortedSortOrder, "s3://w/t", props)
	if err != nil {
		t.Fatal(err)
	}
	all := make([]icetable.Update, 0, n+1)
	for i := range n {
		all = append(all, snapshot(int64(i+1), int64(i), int64(i+1)))
	}
	if n > 0 {
		all = append(all, icetable.NewSetSnapshotRefUpdate(icetable.MainBranch, int64(n), icetable.BranchRef, 0, 0, 0))
	}
	for _, step := range [][]icetable.Update{all, updates} {
		if meta, err = icetable.UpdateTableMetadata(meta, step, "s3://w/t/metadata/1.metadata.json"); err != nil {
			t.Fatal(err)
		}
	}
	return meta
}

// start is somewhat ago: metadata may have snapshots that are up to a minute older
// than itself, and none of the future.
var start = time.Now().Add(-50 * time.Second).UnixMilli()

// snapshot is one with an id and a parent (0: none), the at-th.
func snapshot(id, parent, at int64) icetable.Update {
	s := &icetable.Snapshot{
		SnapshotID: id, SequenceNumber: at, TimestampMs: start + 10*at,
		ManifestList: "s3://w/t/metadata/x.avro", Summary: &icetable.Summary{Operation: icetable.OpAppend},
	}
	if parent > 0 {
		s.ParentSnapshotID = &parent
	}
	return icetable.NewAddSnapshotUpdate(s)
}

func upTo(from, to int64) (ids []int64) {
	for id := from; id <= to; id++ {
		ids = append(ids, id)
	}
	return ids
}

func TestExpiredSnapshots(t *testing.T) {
	ref := func(name string, id int64, kind icetable.RefType) icetable.Update {
		return icetable.NewSetSnapshotRefUpdate(name, id, kind, 0, 0, 0)
	}
	for name, c := range map[string]struct {
		meta icetable.Metadata
		want []int64
	}{
		"none":             {line(t, 0, nil), nil},
		"few":              {line(t, MaxSnapshots, nil), nil},
		"not worth it yet": {line(t, MaxSnapshots+snapshotSlack-1, nil), nil},
		"enough":           {line(t, MaxSnapshots+snapshotSlack, nil), upTo(1, snapshotSlack)},
		"more are wanted":  {line(t, MaxSnapshots+50, map[string]string{icetable.MinSnapshotsToKeepKey: "75"}), nil},
		"fewer are wanted": {line(t, MaxSnapshots+50, map[string]string{icetable.MinSnapshotsToKeepKey: "1"}), upTo(1, 50)},
		"a tag":            {line(t, MaxSnapshots+50, nil, ref("v1", 7, icetable.TagRef)), slices.Concat(upTo(1, 6), upTo(8, 50))},
		"a branch":         {line(t, MaxSnapshots+50, nil, ref("dev", 7, icetable.BranchRef)), slices.Concat(upTo(1, 6), upTo(8, 50))},
		"a branch of its own": {
			line(t, MaxSnapshots+50, nil, snapshot(201, 7, MaxSnapshots+51), snapshot(202, 201, MaxSnapshots+52), ref("dev", 202, icetable.BranchRef)), upTo(1, 50),
		},
		"work that was staged lately": {line(t, MaxSnapshots+50, nil, snapshot(201, 7, MaxSnapshots+51)), upTo(1, 50)},
	} {
		if got := expiredSnapshots(c.meta); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestExpiryKeepsWhatIsNamed: whatever branches and tags there are, what they name
// and what branches have of their own is still there after the removal, as are the
// last of the main branch.
func TestExpiryKeepsWhatIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(MaxSnapshots, 2*MaxSnapshots).Draw(t, "snapshots")
		var updates []icetable.Update
		next := int64(1000)
		for i := range rapid.IntRange(0, 3).Draw(t, "branches") {
			from := rapid.Int64Range(1, int64(n)).Draw(t, "from")
			for range rapid.IntRange(0, 3).Draw(t, "on it") {
				next++
				updates = append(updates, snapshot(next, from, next))
				from = next
			}
			updates = append(updates, icetable.NewSetSnapshotRefUpdate(string(rune('a'+i)), from,
				rapid.SampledFrom([]icetable.RefType{icetable.BranchRef, icetable.TagRef}).Draw(t, "kind"), 0, 0, 0))
		}
		meta := line(t, n, nil, updates...)
		expired := expiredSnapshots(meta)
		if len(expired) == 0 {
			return
		}
		after, err := icetable.UpdateTableMetadata(meta, []icetable.Update{icetable.NewRemoveSnapshotsUpdate(expired, false)}, "s3://w/t/metadata/2.metadata.json")
		if err != nil {
			t.Fatal(err)
		}
		if was, is := maps.Collect(meta.Refs()), maps.Collect(after.Refs()); len(was) != len(is) {
			t.Fatalf("refs %v, and were %v", is, was)
		}
		for name, ref := range meta.Refs() {
			for s := meta.SnapshotByID(ref.SnapshotID); ref.SnapshotRefType == icetable.BranchRef && s.SnapshotID > int64(n); s = parentOf(meta, s) {
				if after.SnapshotByID(s.SnapshotID) == nil {
					t.Fatalf("branch %s lost snapshot %d", name, s.SnapshotID)
				}
			}
		}
		for id := n - MaxSnapshots + 1; id <= n; id++ {
			if after.SnapshotByID(int64(id)) == nil {
				t.Fatalf("snapshot %d of %d is gone", id, n)
			}
		}
		if again := expiredSnapshots(after); len(again) > 0 {
			t.Fatalf("and then %v more", again)
		}
	})
}
