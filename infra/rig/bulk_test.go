package rig

import (
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/backfill"
	"github.com/spillway-mq/spillway/internal/object"
	"github.com/spillway-mq/spillway/internal/topic"
)

// twoObjects are six rows of three keys in two objects.
func twoObjects() (backfill.Job, *BulkObjects, []SourcedRecord) {
	values := []string{"a0", "b0", "a1", "c0", "b1", "a2"}
	b := &Bulk{Laps: 1}
	for _, v := range values {
		b.add(v[:1], []byte(v))
	}
	o := &BulkObjects{Bulk: b, Bucket: "bucket", Prefix: "p/"}
	o.add("p/0", 4)
	o.add("p/1", 2)
	j := backfill.Job{ID: "job", Sources: []backfill.Source{{Name: "s", Objects: []backfill.Object{
		{Bucket: "bucket", Key: "p/0"}, {Bucket: "bucket", Key: "p/1"},
	}}}}
	var records []SourcedRecord
	for i, v := range values {
		r := SourcedRecord{Source: "s"}
		r.Key, r.Value, r.Position = []byte(v[:1]), []byte(v), topic.Position{Sequence: 1, Row: uint32(i)}
		if i >= 4 {
			r.Position = topic.Position{Sequence: 2, Row: uint32(i - 4)}
		}
		records = append(records, r)
	}
	return j, o, records
}

func TestBulkComparison(t *testing.T) {
	for name, c := range map[string]struct {
		change func([]SourcedRecord) []SourcedRecord
		want   string // part of the only problem; empty: none
	}{
		"all":                   {func(r []SourcedRecord) []SourcedRecord { return r }, ""},
		"keys in another order": {func(r []SourcedRecord) []SourcedRecord { r[0], r[1] = r[1], r[0]; return r }, ""},
		"one lost":              {func(r []SourcedRecord) []SourcedRecord { return slices.Delete(r, 2, 3) }, "object 1: 1 of 4 rows are lost, the first is 2"},
		"a double":              {func(r []SourcedRecord) []SourcedRecord { return append(r, r[5]) }, "s at 2:1 is there twice"},
		"a key out of order":    {func(r []SourcedRecord) []SourcedRecord { r[0], r[2] = r[2], r[0]; return r }, "key a is out of order"},
		"another value":         {func(r []SourcedRecord) []SourcedRecord { r[3].Value = []byte("x"); return r }, "s at 1:3 was altered"},
		"another key":           {func(r []SourcedRecord) []SourcedRecord { r[3].Key = []byte("a"); return r }, "s at 1:3 was altered"},
		"rejected":              {func(r []SourcedRecord) []SourcedRecord { r[3].Rejected = "bad"; return r }, "s at 1:3 was rejected: bad"},
		"no such row":           {func(r []SourcedRecord) []SourcedRecord { n := r[0]; n.Position.Row = 4; return append(r, n) }, "there is no such row"},
		"no such object":        {func(r []SourcedRecord) []SourcedRecord { n := r[0]; n.Position.Sequence = 3; return append(r, n) }, "there is no such row"},
	} {
		t.Run(name, func(t *testing.T) {
			job, objects, records := twoObjects()
			cmp := NewBulkComparison()
			if err := cmp.Expect(job, objects); err != nil {
				t.Fatal(err)
			}
			for _, r := range c.change(records) {
				if !cmp.Add(r) {
					t.Errorf("%s is of no job", r.Source)
				}
			}
			if cmp.Add(SourcedRecord{Source: "another"}) {
				t.Error("a record of another source is of a job")
			}
			ok := cmp.Done()
			if ok != (c.want == "") || len(cmp.Problems) > 1 {
				t.Errorf("ok %v, problems %q", ok, cmp.Problems)
			}
			if !ok && !strings.Contains(cmp.Problems[0], c.want) {
				t.Errorf("problem %q, want one with %q", cmp.Problems[0], c.want)
			}
		})
	}
}

func TestExpectKnowsItsObjects(t *testing.T) {
	job, objects, _ := twoObjects()
	objects.Names[1] = object.Name{Bucket: "bucket", Key: "other"}
	if err := NewBulkComparison().Expect(job, objects); err == nil {
		t.Error("no error for an object that was not put")
	}
}

// TestFullDataIsAskedFor: what needs the large data says how to get them.
func TestFullDataIsAskedFor(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		t.Setenv(DataEnv, dir)
		if _, err := FullBulk(); err == nil || !strings.Contains(err.Error(), "set "+DataEnv) {
			t.Errorf("%q: %v", dir, err)
		}
	}
}
