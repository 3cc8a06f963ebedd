package inspect

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

func drawSVG(t interface{ Fatal(...any) }, layouts []topic.Layout, p Picture) string {
	var b bytes.Buffer
	if err := SVG(&b, layouts, p); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// loaded gives every segment of a history a load that goes up and down, and the
// topic their sum.
func loaded(h *history, p Picture) Picture {
	p.Segments = map[topic.SegmentID][]Point{}
	live := h.layouts[0].Live
	for i, at := 0, noon; i < len(h.layouts); at = at.Add(10 * time.Second) {
		for ; i < len(h.layouts) && !h.layouts[i].At.After(at); i++ {
			live = h.layouts[i].Live
		}
		sum := Point{At: at}
		for _, s := range live {
			wave := 1 + math.Sin(at.Sub(noon).Minutes()+float64(s.Lo)/9000)
			load := Point{At: at, Bytes: 300 * wave * float64(s.Size()), Records: wave * float64(s.Size())}
			p.Segments[s.ID] = append(p.Segments[s.ID], load)
			sum.Bytes += load.Bytes
			sum.Records += load.Records
		}
		p.Load = append(p.Load, sum)
	}
	return p
}

func TestSVG(t *testing.T) {
	underWay := many(t)
	underWay.begin(underWay.last().SplitWays(underWay.last().Live[100].ID, 2))
	flood := story(t)
	for name, c := range map[string]struct {
		h *history
		p Picture
	}{
		"new": {newHistory(t, 1), Picture{Now: noon.Add(5 * time.Minute)}},
		"story": {flood, loaded(flood, Picture{
			Title: "orders", Subtitle: "by hand", Target: 8 << 20, TargetRecords: 50000, Now: noon.Add(12 * time.Minute),
		})},
		"pending": {underWay, Picture{Title: "a flood", Relative: true, Width: 800, Height: 480, To: noon.Add(9 * time.Minute)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := drawSVG(t, c.h.layouts, c.p)
			wellFormed(t, got)
			file := filepath.Join("testdata", name+".svg")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("picture (-want +got):\n%s", diff)
			}
		})
	}
}

// onlyThese are the elements of a picture, none of which runs or loads anything.
var onlyThese = map[string]bool{
	"svg": true, "title": true, "style": true, "defs": true, "pattern": true, "path": true,
	"rect": true, "text": true, "linearGradient": true, "stop": true,
}

var notANumber = regexp.MustCompile(`NaN|Inf|[0-9]e[+-]?[0-9]`)

// wellFormed checks that a picture is XML with numbers that are some, and nothing
// in it but shapes and texts.
func wellFormed(t interface{ Fatalf(string, ...any) }, svg string) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if !onlyThese[start.Name.Local] {
			t.Fatalf("there is an element %q", start.Name.Local)
		}
		for _, a := range start.Attr {
			name := a.Name.Local
			if strings.HasPrefix(name, "on") || name == "href" {
				t.Fatalf("%s has an attribute %s", start.Name.Local, name)
			}
			if name != "aria-label" && notANumber.MatchString(a.Value) {
				t.Fatalf("%s has %s=%q", start.Name.Local, name, a.Value)
			}
			if (name == "width" || name == "height") && strings.HasPrefix(a.Value, "-") {
				t.Fatalf("%s has %s=%q", start.Name.Local, name, a.Value)
			}
		}
	}
}

// TestSVGOfNothing: what cannot be drawn is said, and nothing is written.
func TestSVGOfNothing(t *testing.T) {
	var b bytes.Buffer
	if err := SVG(&b, nil, Picture{}); !errors.Is(err, ErrNoLayouts) {
		t.Errorf("no layouts: %v", err)
	}
	edit := func(change func(e *topic.Edit)) func(layouts []topic.Layout) {
		return func(layouts []topic.Layout) {
			e := &layouts[len(layouts)-1].Edit
			e.Children, e.Parents = append([]topic.Live(nil), e.Children...), append([]topic.SegmentID(nil), e.Parents...)
			change(e)
		}
	}
	for name, spoil := range map[string]func(layouts []topic.Layout){
		"the first has a gap":      func(layouts []topic.Layout) { layouts[0].Live = layouts[0].Live[1:] },
		"the first is empty":       func(layouts []topic.Layout) { layouts[0].Live = nil },
		"one is missing":           func(layouts []topic.Layout) { copy(layouts[1:], layouts[3:]) },
		"an edit without parents":  edit(func(e *topic.Edit) { e.Parents = nil }),
		"an edit without children": edit(func(e *topic.Edit) { e.Children = nil }),
		"a parent twice":           edit(func(e *topic.Edit) { e.Parents = append(e.Parents, e.Parents[0]) }),
		"an old child":             edit(func(e *topic.Edit) { e.Children[2].ID = "00000006-00-token" }),
		"children with a gap":      edit(func(e *topic.Edit) { e.Children[3].Lo++ }),
		"children that go too far": edit(func(e *topic.Edit) { e.Children[6].Hi++ }),
		"children that stop short": edit(func(e *topic.Edit) { e.Children = e.Children[:6] }),
		"children beyond all":      edit(func(e *topic.Edit) { e.Children[6].Hi = math.MaxUint32 }),
	} {
		layouts := story(t).layouts
		spoil(layouts)
		var history *HistoryError
		if err := SVG(&b, layouts, Picture{}); !errors.As(err, &history) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.Len() > 0 {
		t.Errorf("%d bytes were written", b.Len())
	}
	broken := errors.New("broken")
	if err := SVG(failing{broken}, newHistory(t, 1).layouts, Picture{}); !errors.Is(err, broken) {
		t.Errorf("of a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestSVGHostile: whatever texts say, they stay texts, and short ones.
func TestSVGHostile(t *testing.T) {
	for name, text := range map[string]string{
		"markup":   `</title><script>alert("1")</script><image href="http://example.com/x"/>`,
		"entities": `&lt;b&gt; &#0; ]]> <!-- " ' ]]>`,
		"controls": "a\x00b\x1b[31mc\u202ed\u2028e\ufeff\r\n\tf",
		"encoding": "\xff\xfe\xc0\x80 \xed\xa0\x80 \xf4\x90\x80\x80",
		"long":     strings.Repeat("<x>", 400_000),
		"wide":     strings.Repeat("𝛀", 300_000),
		"blank":    strings.Repeat("\u200b \n", 300_000),
	} {
		h := newHistory(t, 2)
		h.edit(text)(h.last().Split(h.id("0-0"), 9000))
		for i := range h.layouts {
			h.layouts[i].Edit.Kind = text
		}
		hostile := h.layouts[2].Edit.Children[0].ID + topic.SegmentID(text)
		h.layouts[2].Edit.Children[0].ID = hostile
		h.edit("merge")(h.last().Merge(h.last().Live[1].ID, h.last().Live[2].ID))
		h.layouts[4].Edit.Parents = append([]topic.SegmentID(nil), h.layouts[4].Edit.Parents...)
		got := drawSVG(t, h.layouts, Picture{Title: text, Subtitle: text})
		wellFormed(t, got)
		if len(got) > 30_000 {
			t.Errorf("%s: %d bytes", name, len(got))
		}
		for _, r := range got {
			if r < ' ' && r != '\n' || r == '\u202e' || r == '\ufeff' {
				t.Errorf("%s: there is %q in it", name, r)
				break
			}
		}
	}
}

// anything draws a history with edits of all kinds, in any order of time.
func anything(t *rapid.T) *history {
	h := newHistory(t, rapid.IntRange(1, 6).Draw(t, "segments"))
	for i := range rapid.IntRange(0, 20).Draw(t, "edits") {
		l := h.last()
		at := rapid.IntRange(0, len(l.Live)-1).Draw(t, fmt.Sprint("segment", i))
		s := l.Live[at]
		n := min(rapid.IntRange(2, 5).Draw(t, fmt.Sprint("ways", i)), len(l.Live)-at)
		switch kind := rapid.SampledFrom([]string{"split", "ways", "merge", "roll"}).Draw(t, fmt.Sprint("kind", i)); {
		case kind == "split" && s.Size() > 1:
			h.edit("hot")(l.Split(s.ID, uint32(rapid.IntRange(int(s.Lo)+1, int(s.Hi)-1).Draw(t, fmt.Sprint("cut", i)))))
		case kind == "ways" && s.Size() > 1:
			h.edit("flood")(l.SplitWays(s.ID, min(int(s.Size()), rapid.IntRange(2, 40).Draw(t, fmt.Sprint("pieces", i)))))
		case kind == "merge" && n > 1:
			var ids []topic.SegmentID
			for _, s := range l.Live[at : at+n] {
				ids = append(ids, s.ID)
			}
			h.edit("cold")(l.Merge(ids...))
		default:
			h.edit("old")(l.Roll(s.ID))
		}
	}
	if rapid.Bool().Draw(t, "pending") {
		h.begin(h.last().Roll(h.last().Live[0].ID))
	}
	unit := rapid.SampledFrom([]time.Duration{0, 1, time.Microsecond, time.Second, 100 * 365 * 24 * time.Hour}).Draw(t, "unit")
	for i := range h.layouts {
		h.layouts[i].At = noon.Add(time.Duration(rapid.IntRange(-1, 2).Draw(t, "step")) * unit)
		if rapid.IntRange(0, 30).Draw(t, "wild") == 0 {
			h.layouts[i].At = anyTime(t)
		}
	}
	return h
}

func anyTime(t *rapid.T) time.Time {
	return rapid.SampledFrom([]time.Time{
		{}, noon, noon.Add(time.Nanosecond), noon.Add(time.Hour), time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}).Draw(t, "time")
}

func anyPoints(t *rapid.T) (list []Point) {
	value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
		0, -1, 1, math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64,
	}))
	for range rapid.IntRange(0, 8).Draw(t, "points") {
		list = append(list, Point{anyTime(t), value.Draw(t, "bytes"), value.Draw(t, "records")})
	}
	return list
}

// TestSVGOfAnything: whatever the edits, times and loads are, it is well-formed,
// and its numbers are some.
func TestSVGOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := anything(t)
		p := Picture{
			Title: rapid.String().Draw(t, "title"), Relative: rapid.Bool().Draw(t, "relative"), Load: anyPoints(t),
			Width: rapid.IntRange(-1, 2000).Draw(t, "width"), Height: rapid.IntRange(-1, 2000).Draw(t, "height"),
			Target:        rapid.SampledFrom([]float64{0, 1, 8 << 20, math.NaN(), math.Inf(1), -1, 1e-300}).Draw(t, "target"),
			TargetRecords: rapid.SampledFrom([]float64{0, 1, 50000, math.NaN(), 1e-300}).Draw(t, "records"),
			Segments:      map[topic.SegmentID][]Point{},
		}
		for _, s := range h.last().Live {
			p.Segments[s.ID] = anyPoints(t)
		}
		for _, at := range []*time.Time{&p.From, &p.To, &p.Now} {
			if rapid.Bool().Draw(t, "given") {
				*at = anyTime(t)
			}
		}
		svg := drawSVG(t, h.layouts, p)
		wellFormed(t, svg)
		if len(svg) > 1<<20 {
			t.Fatalf("%d bytes", len(svg))
		}
	})
}
