package tabletest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/topic"
)

func never(context.Context, topic.SegmentID) (bool, error) { return false, nil }

func commitTwice(t *testing.T, e *env) {
	tp := e.topic("twice")
	tb := e.open(t, tp)
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	done, err := tb.Commit(t.Context(), []table.Addition{a, b}, never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "added", done.Added, ids(a, b)...)
	wantIDs(t, "already in", done.Already)
	e.wantSegments(t, tb, 0, a, b)
	// Again, by this handle, by another one, and with one that is new.
	for _, again := range []*table.Table{tb, e.open(t, tp)} {
		redone, err := again.Commit(t.Context(), []table.Addition{b, a}, never)
		if err != nil {
			t.Fatal(err)
		}
		wantIDs(t, "added again", redone.Added)
		wantIDs(t, "already in again", redone.Already, ids(b, a)...)
		if redone.Snapshot != done.Snapshot {
			t.Errorf("found in snapshot %d, added in %d", redone.Snapshot, done.Snapshot)
		}
	}
	c := e.write(t, tp, 3)
	mixed, err := tb.Commit(t.Context(), []table.Addition{a, c}, never)
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "added of a mix", mixed.Added, c.Segment)
	wantIDs(t, "already in of a mix", mixed.Already, a.Segment)
	e.wantSegments(t, tb, 0, a, b, c)
	found, err := e.tables().Find(t.Context(), tp)
	if err != nil || found.UUID() != tb.UUID() {
		t.Errorf("found %v, %v", found, err)
	}
}

func recordedIsIn(t *testing.T, e *env) {
	tp := e.topic("recorded")
	tb := e.open(t, tp)
	a, b := e.write(t, tp, 1), e.write(t, tp, 2)
	e.record(tb, a.Segment)
	done := e.commit(t, tb, a, b)
	wantIDs(t, "added", done.Added, b.Segment)
	wantIDs(t, "already in", done.Already, a.Segment)
	e.wantSegments(t, tb, 0, b)
}

// oneSegmentRaces: eight committers of one segment, of a table for which somebody
// has told iceberg-go to repeat commits that conflict, which must not help.
func oneSegmentRaces(t *testing.T, e *env) {
	tp := e.topic("one")
	a := e.write(t, tp, 1)
	e.change(t, e.open(t, tp), func(_ *icetable.Table, tx *icetable.Transaction) error {
		return tx.SetProperties(iceberg.Properties{icetable.CommitNumRetriesKey: "4", icetable.CommitMinRetryWaitMsKey: "1", icetable.CommitMaxRetryWaitMsKey: "2"})
	})
	added := make([]int, racers)
	var g errgroup.Group
	for i := range added {
		g.Go(func() error {
			tb, err := e.tables().Open(t.Context(), tp)
			if err != nil {
				return err
			}
			done, err := tb.Commit(t.Context(), []table.Addition{a}, e.has(tb))
			added[i] = len(done.Added)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range added {
		sum += n
	}
	if sum != 1 {
		t.Errorf("%d of %d say that they added the segment", sum, racers)
	}
	e.wantSegments(t, e.open(t, tp), 0, a)
}

// manySegmentsRace: four committers with five segments of their own each, and one
// that all of them have.
func manySegmentsRace(t *testing.T, e *env) {
	tp := e.topic("many")
	e.open(t, tp)
	common := e.write(t, tp, 0)
	all := []table.Addition{common}
	var g errgroup.Group
	for i := range 4 {
		var mine []table.Addition
		for j := range 5 {
			mine = append(mine, e.write(t, tp, 1+i*5+j))
		}
		all = append(all, mine...)
		g.Go(func() error {
			tb, err := e.tables().Open(t.Context(), tp)
			if err != nil {
				return err
			}
			for _, a := range mine {
				done, err := tb.Commit(t.Context(), []table.Addition{a, common}, e.has(tb))
				if err != nil {
					return err
				}
				e.record(tb, slices.Concat(done.Added, done.Already)...)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	e.wantSegments(t, e.open(t, tp), 0, all...)
}

func setIsPruned(t *testing.T, e *env) {
	tp := e.topic("pruned")
	tb := e.open(t, tp)
	pending := func() []topic.SegmentID {
		d, err := tb.Describe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d.Pending
	}
	a, b, c, d := e.write(t, tp, 1), e.write(t, tp, 2), e.write(t, tp, 3), e.write(t, tp, 4)
	if _, err := tb.Commit(t.Context(), []table.Addition{a, b}, e.has(tb)); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "after the first commit", pending(), ids(a, b)...)
	e.record(tb, b.Segment)
	if _, err := tb.Commit(t.Context(), []table.Addition{c}, e.has(tb)); err != nil {
		t.Fatal(err)
	}
	wantIDs(t, "b was recorded", pending(), ids(a, c)...)
	e.record(tb, a.Segment, c.Segment)
	if done := e.commit(t, tb, a); len(done.Added) > 0 {
		t.Errorf("added %v again", done.Added)
	}
	e.commit(t, tb, d)
	wantIDs(t, "all were recorded", pending(), d.Segment)
	e.wantSegments(t, tb, 0, a, b, c, d)
}

// badFiles: what an addition says of its files is checked before anything happens.
func badFiles(t *testing.T, e *env) {
	tp := e.topic("bad")
	tb := e.open(t, tp)
	good := e.write(t, tp, 1)
	missing := good
	missing.Files = []string{strings.Replace(good.Files[0], "-", "9-", 1)}
	missing.Files[0] = strings.TrimSuffix(good.Files[0], ".parquet") + "0.parquet"
	short := good
	short.Rows--
	garbage := e.write(t, tp, 2)
	at := strings.TrimSuffix(garbage.Files[0], ".parquet") + "0.parquet"
	if err := put(t.Context(), e.Store, "/buckets/"+strings.TrimPrefix(at, "s3://"), []byte("this is no Parquet file, though it has some bytes")); err != nil {
		t.Fatal(err)
	}
	garbage.Files = []string{at}
	other := good
	other.Segment = SegmentID(7)
	elsewhere := good
	elsewhere.Files = []string{strings.Replace(good.Files[0], tp.Incarnation+"/data", "other/data", 1)}
	twice := good
	twice.Files = append(slices.Clone(good.Files), good.Files[0])
	for name, c := range map[string]struct {
		adds []table.Addition
		want error
	}{
		"no file":                {[]table.Addition{missing}, filer.ErrNotFound},
		"other rows":             {[]table.Addition{short}, filer.ErrCorrupt},
		"no Parquet":             {[]table.Addition{garbage}, filer.ErrCorrupt},
		"another segment's file": {[]table.Addition{other}, filer.ErrInvalid},
		"another topic's file":   {[]table.Addition{elsewhere}, filer.ErrInvalid},
		"a file twice":           {[]table.Addition{twice}, filer.ErrInvalid},
		"a segment twice":        {[]table.Addition{good, good}, filer.ErrInvalid},
		"no segment":             {[]table.Addition{{Segment: "x,y"}}, filer.ErrInvalid},
		"nothing":                {nil, filer.ErrInvalid},
		"too many":               {make([]table.Addition, table.MaxAdditions+1), filer.ErrInvalid},
	} {
		if _, err := tb.Commit(t.Context(), c.adds, never); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Logf("%s: %v", name, err)
			wantIs(t, err, c.want)
		}
	}
	e.wantSegments(t, tb, 0)
	e.commit(t, tb, good)
	e.wantSegments(t, tb, 0, good)
}
