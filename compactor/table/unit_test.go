package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/iceberg-go"
	icetable "github.com/apache/iceberg-go/table"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

func TestSegmentOf(t *testing.T) {
	for url, want := range map[string]topic.SegmentID{
		"s3://b/topics/t/i/data/00000001-00-abcdefgh/1-2-x.parquet":   "00000001-00-abcdefgh",
		"s3://b/topics/t/i/data/123456789-123-abcdefgh/1-2-x.parquet": "123456789-123-abcdefgh",
		"s3://b/topics/t/i/data/00000001-00-abcdefgh/x/1-2-x.parquet": "",
		"s3://b/topics/t/i/other/00000001-00-abcdefgh/1-2-x.parquet":  "",
		"s3://b/topics/t/i/data/00000001-00-abcdefgh/1-2-x.avro":      "",
		"s3://b/topics/t/i/data/00000001-00-ABC/1-2-x.parquet":        "",
		"s3://warehouse/ns/t/data/00000-0-0f0f.parquet":               "",
		"00000001-00-abcdefgh/x.parquet":                              "",
		"":                                                            "",
	} {
		if got := segmentOf(url); got != want {
			t.Errorf("%q is of segment %q, want %q", url, got, want)
		}
	}
}

func TestSegmentsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) topic.SegmentID {
			return topic.NewSegmentID(rapid.Uint64().Draw(t, "epoch"), rapid.IntRange(0, 1000).Draw(t, "i"), rapid.StringMatching(`[a-z2-7]{8}`).Draw(t, "token"))
		}), 1, 20).Draw(t, "ids")
		got, ok := parseSegments(formatSegments(ids))
		want := slices.Compact(slices.Sorted(slices.Values(ids)))
		if !ok || !slices.Equal(got, want) {
			t.Fatalf("%v became %v (%t)", ids, got, ok)
		}
	})
}

func FuzzParseSegments(f *testing.F) {
	f.Add("00000001-00-abcdefgh,00000002-00-abcdefgh")
	f.Add("")
	f.Add(",")
	f.Add("00000001-00-abcdefgh, 00000002-00-abcdefgh")
	f.Fuzz(func(t *testing.T, s string) {
		ids, ok := parseSegments(s)
		switch {
		case ok != (len(ids) > 0):
			t.Fatalf("%q: %v, %t", s, ids, ok)
		case ok && strings.Count(s, ",")+1 != len(ids):
			t.Fatalf("%q: %v", s, ids)
		}
		for _, id := range ids {
			if strings.ContainsAny(string(id), ", /") {
				t.Fatalf("%q gives %q", s, id)
			}
		}
	})
}

// TestSchemaRules: which changes of a column keep our files readable.
func TestSchemaRules(t *testing.T) {
	long, str := iceberg.PrimitiveTypes.Int64, iceberg.PrimitiveTypes.String
	ours := func(id int, typ iceberg.Type, required bool) iceberg.NestedField {
		return iceberg.NestedField{ID: id, Name: fmt.Sprintf("c%d", id), Type: typ, Required: required}
	}
	list := func(id int, elem iceberg.Type) iceberg.Type {
		return &iceberg.ListType{ElementID: id, Element: elem, ElementRequired: true}
	}
	want := []iceberg.NestedField{
		ours(1, long, true), ours(2, iceberg.PrimitiveTypes.Int32, false),
		ours(3, list(100, &iceberg.StructType{FieldList: []iceberg.NestedField{ours(101, str, true)}}), false),
	}
	change := func(i int, f iceberg.NestedField) []iceberg.NestedField {
		c := slices.Clone(want)
		c[i] = f
		return c
	}
	for name, c := range map[string]struct {
		have   []iceberg.NestedField
		reason string
	}{
		"the same":         {want, ""},
		"moved":            {[]iceberg.NestedField{want[2], want[0], want[1]}, ""},
		"made optional":    {change(0, ours(1, long, false)), ""},
		"widened":          {change(1, ours(2, long, false)), ""},
		"dropped":          {want[:2], "was dropped"},
		"another id":       {change(0, ours(9, long, true)), "was dropped"},
		"retyped":          {change(0, ours(1, str, true)), "is of type string"},
		"narrowed":         {change(0, ours(1, iceberg.PrimitiveTypes.Int32, true)), "is of type int"},
		"required":         {change(1, ours(2, long, true)), "made required"},
		"no list":          {change(2, ours(3, str, false)), "is of type string"},
		"no struct in it":  {change(2, ours(3, list(100, str), false)), "is of type string"},
		"another element":  {change(2, ours(3, list(7, &iceberg.StructType{FieldList: []iceberg.NestedField{ours(101, str, true)}}), false)), "was dropped"},
		"dropped below it": {change(2, ours(3, list(100, &iceberg.StructType{}), false)), "was dropped"},
	} {
		got := missingFields(c.have, want)
		if (got == "") != (c.reason == "") || !strings.Contains(got, c.reason) {
			t.Errorf("%s: %q, want %q", name, got, c.reason)
		}
	}
}

// TestNewTablesClaimOrder: files are added with the id of the sort order that
// tables are created with.
func TestNewTablesClaimOrder(t *testing.T) {
	schema, err := columns()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		order icetable.SortOrder
		want  int
	}{{sortOrder(), 1}, {icetable.UnsortedSortOrder, 0}} {
		meta, err := icetable.NewMetadata(schema, nil, c.order, "s3://w/t", nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := sortOrderID(meta); got != c.want {
			t.Errorf("a table with order %s: files claim order %d, want %d", c.order, got, c.want)
		}
	}
}
