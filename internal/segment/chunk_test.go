package segment

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/filer"
	"github.com/spillway-mq/spillway/internal/filer/commitlog"
	"github.com/spillway-mq/spillway/internal/topic"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 123456000, time.UTC)

func goldenChunks() []Chunk {
	positions := []SourcePosition{{"lane-b", topic.Position{Sequence: 7, Row: 2}, noon}, {"lane-a", topic.Whole(5), noon.Add(-time.Second)}}
	return []Chunk{
		{
			Base: 10, Count: 3, ByteBase: 330, Bytes: 99, First: noon.Add(-time.Second), Last: noon, Source: "lane-b", From: topic.Whole(4), Positions: positions,
			Load: []Bucket{{0, 1, 33}, {63, 2, 66}}, Hot: []HotSlot{{7, 1, 33}, {65530, 2, 66}}, Digest: digest(nil),
		},
		{
			Base: 13, Count: 8, ByteBase: 429, Bytes: 320, First: noon, Last: noon, Source: "lane-b", From: topic.Whole(4),
			Positions: []SourcePosition{{"lane-b", topic.Position{Sequence: 7, Row: 10}, noon}},
			Load:      []Bucket{{5, 8, 320}}, Hot: []HotSlot{{5120, 8, 320}}, Refs: 6, Pending: []Span{{0, 3}, {5, 5}}, Digest: digest(nil),
		},
		{Base: 21, ByteBase: 749, First: noon, Last: noon, Positions: positions, Sealed: true, Floors: []topic.Floor{
			{Range: topic.Range{Lo: 0, Hi: 9}, Source: "lane-b", At: topic.Whole(9), Time: noon.Add(time.Second)},
			{Range: topic.Range{Lo: 9, Hi: 65536}, Source: "lane-b", At: topic.Position{Sequence: 7, Row: 2}, Time: noon},
		}},
	}
}

func TestChunkAttrsGolden(t *testing.T) {
	var b strings.Builder
	for i, c := range goldenChunks() {
		if i > 0 {
			b.WriteString("\n")
		}
		a := c.attrs()
		for _, name := range slices.Sorted(maps.Keys(a)) {
			fmt.Fprintf(&b, "%s: %s\n", name, a[name])
		}
		back, err := parseChunk(commitlog.Entry{Entry: filer.Entry{Attrs: a}})
		if err != nil || !maps.Equal(back.attrs(), a) {
			t.Errorf("%v became %v, error %v", a, back.attrs(), err)
		}
	}
	const golden = "testdata/chunk_attrs.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	doc, err := os.ReadFile("../../docs/FORMAT.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```text\n"+string(want)+"```\n") {
		t.Error("docs/FORMAT.md does not show the golden file")
	}
	for _, c := range goldenChunks() {
		for name := range c.attrs() {
			if !strings.Contains(string(doc), "\n| `"+name+"` |") {
				t.Errorf("docs/FORMAT.md does not tell about %s", name)
			}
		}
	}
}

func FuzzParseChunk(f *testing.F) {
	good := goldenChunks()[0].attrs()
	f.Add(good[attrBase], good[attrCount], good[attrFirst], good[attrPositions], good[attrLoad], good[attrHot], "0-9/a=5@1", "3", "0-1 2", false)
	f.Add("18446744073709551615", "2", "9999-12-31T23:59:59-05:00", "=1@1", "64=1/1", "65536=1/1", "9-9/a=5@1", "3", "1-1", true)
	f.Add("-1", "", "0000-01-01T00:00:00Z", "a=1:4294967295@-9223372036854775808 b", "1=2/3x", "7=1/1 7=1/1", "-/=", "", "2 1", false)
	f.Add("0", "18446744073709551615", good[attrFirst], "", "", "", "", "18446744073709551615", "0-18446744073709551614", false)
	f.Fuzz(func(t *testing.T, base, count, first, positions, load, hot, floors, refs, pending string, sealed bool) {
		a := maps.Clone(good)
		a[attrFloors], a[attrRefs], a[attrPending] = floors, refs, pending
		a[attrBase], a[attrCount], a[attrFirst], a[attrPositions], a[attrLoad], a[attrHot] = base, count, first, positions, load, hot
		a[attrByteBase], a[attrBytes] = base, count
		if sealed {
			a[attrSealed] = "true"
		}
		c, err := parseChunk(commitlog.Entry{Entry: filer.Entry{Attrs: a}})
		if err != nil {
			if !errors.Is(err, filer.ErrCorrupt) {
				t.Errorf("error %v", err)
			}
			return
		}
		again, err := parseChunk(commitlog.Entry{Entry: filer.Entry{Attrs: c.attrs()}})
		if err != nil || !maps.Equal(again.attrs(), c.attrs()) || c.End() < c.Base || c.ByteEnd() < c.ByteBase {
			t.Errorf("%v became %v, error %v", c.attrs(), again.attrs(), err)
		}
		if c.Refs > c.Count || len(c.Pending) > MaxPending || len(c.Pending) > 0 && c.Pending[len(c.Pending)-1].Last >= c.Count {
			t.Errorf("%d references, pending %v, of %d records", c.Refs, c.Pending, c.Count)
		}
		for _, r := range []topic.Range{topic.Full, {Lo: 7, Hi: 8}, {Lo: 100, Hi: 200}} {
			covers(t, c.Density(r, true), r)
			covers(t, c.Density(r, false), r)
		}
	})
}
