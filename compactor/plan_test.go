package compactor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/compactor/table"
	"github.com/spillway-mq/spillway/compactor/table/tabletest"
	"github.com/spillway-mq/spillway/internal/segment"
	"github.com/spillway-mq/spillway/internal/topic"
)

// plan is a plan in short.
func (w *world) plan(t tester, c *Compactor) (list []string) {
	t.Helper()
	all, err := c.Plan(t.Context(), "orders")
	must(t, err)
	for _, p := range all {
		reason, _, _ := strings.Cut(p.Reason, ":")
		list = append(list, fmt.Sprintf("%s: %s (%d records)", p.State, p.Do, p.Records))
		if p.Reason == "" || p.Until.IsZero() == strings.Contains(reason, "stay until") {
			t.Errorf("%+v", p)
		}
	}
	return list
}

func TestPlan(t *testing.T) {
	w, _ := damagedWorld(t)
	c := w.compactor()
	want := func(what string, lines ...string) {
		t.Helper()
		if d := cmp.Diff(lines, w.plan(t, c)); d != "" {
			t.Errorf("%s:\n%s", what, d)
		}
	}
	want("at first", "sealed: rewrite (6 records)", "sealed: rewrite (2 records)", "live: nothing (0 records)", "live: nothing (0 records)")
	if len(w.catalog.Tables()) > 0 {
		t.Error("a plan has made a table")
	}
	must(t, w.fs.Corrupt(w.chunkPath(t, w.sealed(t)[0], 2)))
	alone := New(w.options(nil, nil))
	alone.Tables = nil
	w.compact(t, alone)
	want("without a table", "quarantined: rewrite (6 records)", "compacted: commit (2 records)", "live: nothing (0 records)", "live: nothing (0 records)")
	w.compact(t, c)
	want("in the table", "quarantined: rewrite (6 records)", "in table: nothing (2 records)", "live: nothing (0 records)", "live: nothing (0 records)")
	w.pass(grace)
	want("after the grace", "quarantined: rewrite (6 records)", "in table: trim (2 records)", "live: nothing (0 records)", "live: nothing (0 records)")
	w.compact(t, c)
	want("at the end", "quarantined: rewrite (6 records)", "trimmed: nothing (2 records)", "live: nothing (0 records)", "live: nothing (0 records)")
}

func TestPlanWithoutAnswer(t *testing.T) {
	w := sealedWorld(t)
	w.compact(t, w.compactor())
	c := New(w.options(nil, func(tabletest.Op) tabletest.Fault { return tabletest.Fault{Before: tabletest.ErrDown} }))
	list, err := c.Plan(t.Context(), "orders")
	var away *table.UnavailableError
	if !errors.As(err, &away) || len(list) != 2 || list[0].State != Compacted {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestOneSegment(t *testing.T) {
	w, _ := damagedWorld(t)
	c := w.compactor()
	ids := w.sealed(t)
	r, err := c.Segment(t.Context(), t.Context(), "orders", ids[1])
	if err != nil || r.Compacted != 1 || r.Records != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := w.segment(t, ids[0]).Manifest(t.Context()); err == nil {
		t.Error("the other one was compacted too")
	}
	for id, unknown := range map[string]bool{string(w.live(t)[0]): false, "nobody": true} {
		_, err := c.Segment(t.Context(), t.Context(), "orders", topic.SegmentID(id))
		var not *NotSealedError
		if !errors.As(err, &not) || not.Unknown != unknown {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestNext(t *testing.T) {
	base := situation{catalog: true, table: "t", grace: time.Hour, now: noon}
	file := []segment.DataFile{{Name: "f"}}
	const chunks, seal = 0, 3
	old, young := noon.Add(-time.Hour), noon.Add(-time.Hour+1)
	in := segment.InTable{UUID: "t"}
	manifest := func(created time.Time, files []segment.DataFile) *segment.Manifest {
		return &segment.Manifest{Seal: 3, Created: created, Files: files}
	}
	noTable, noCatalog := base, base
	noTable.table, noCatalog.catalog, noCatalog.table = "", false, ""
	for name, test := range map[string]struct {
		part  part
		s     situation
		state State
		do    Step
		until time.Time
	}{
		"sealed":                         {part{}, base, Sealed, Rewrite, time.Time{}},
		"quarantined":                    {part{quarantine: segment.Quarantine{Reason: "x"}}, base, Quarantined, Rewrite, time.Time{}},
		"only dropped":                   {part{quarantine: segment.Quarantine{Drop: []segment.DroppedRange{{}}}}, base, Sealed, Rewrite, time.Time{}},
		"compacted":                      {part{manifest: manifest(old, file), first: chunks}, base, Compacted, Commit, time.Time{}},
		"in another table":               {part{manifest: manifest(old, file), first: chunks, inTable: segment.InTable{UUID: "u"}}, base, Compacted, Commit, time.Time{}},
		"the table is not known":         {part{manifest: manifest(old, file), first: chunks, inTable: in}, noTable, Compacted, Commit, time.Time{}},
		"no table at all is not a match": {part{manifest: manifest(old, file), first: chunks}, noTable, Compacted, Commit, time.Time{}},
		"no catalog":                     {part{manifest: manifest(old, file), first: chunks}, noCatalog, Compacted, Trim, time.Time{}},
		"no catalog, young":              {part{manifest: manifest(young, file), first: chunks}, noCatalog, Compacted, Nothing, noon.Add(1)},
		"in the table, young":            {part{manifest: manifest(young, file), first: chunks, inTable: in}, base, InTable, Nothing, noon.Add(1)},
		"in the table, old":              {part{manifest: manifest(old, file), first: chunks, inTable: in}, base, InTable, Trim, time.Time{}},
		"empty":                          {part{manifest: manifest(old, nil), first: chunks}, noTable, InTable, Trim, time.Time{}},
		"trimmed":                        {part{manifest: manifest(old, file), first: seal, inTable: in}, base, Trimmed, Nothing, time.Time{}},
		"trimmed before there was one":   {part{manifest: manifest(old, file), first: seal}, base, Trimmed, Commit, time.Time{}},
	} {
		if state, do, until := test.part.next(test.s); state != test.state || do != test.do || !until.Equal(test.until) {
			t.Errorf("%s: %s, %s, %s", name, state, do, until)
		}
	}
}
