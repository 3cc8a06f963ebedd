package inspect

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

var update = flag.Bool("update", false, "rewrite golden files")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// history is the layouts of a topic that is edited by a test.
type history struct {
	t       interface{ Fatal(...any) }
	layouts []topic.Layout
}

func newHistory(t interface{ Fatal(...any) }, n int) *history {
	l := topic.Layout{At: noon, Edit: topic.Edit{Kind: topic.EditCreate, Reason: "topic created"}}
	for i, r := range topic.Divide(n) {
		l.Live = append(l.Live, topic.Live{ID: topic.NewSegmentID(0, i, "token"), Range: r})
	}
	l.Edit.Children = l.Live
	return &history{t, []topic.Layout{l}}
}

func (h *history) last() topic.Layout { return h.layouts[len(h.layouts)-1] }

func (h *history) begin(e topic.Edit, err error) {
	if err == nil {
		var intent topic.Layout
		if intent, err = h.last().Intent(e, noon.Add(time.Duration(len(h.layouts))*time.Minute), func() string { return "token" }); err == nil {
			h.layouts = append(h.layouts, intent)
			return
		}
	}
	h.t.Fatal(err)
}

func (h *history) edit(reason string) func(e topic.Edit, err error) {
	return func(e topic.Edit, err error) {
		e.Reason = reason
		h.begin(e, err)
		h.layouts = append(h.layouts, h.last().Complete())
	}
}

// id resolves a short name.
func (h *history) id(ref string) topic.SegmentID {
	s, err := Resolve(h.last(), ref)
	if err != nil {
		h.t.Fatal(err)
	}
	return s.ID
}

func story(t *testing.T) *history {
	h := newHistory(t, 2)
	h.edit("half of the load is below slot 9000")(h.last().Split(h.id("0-0"), 9000))
	h.edit("both were cold")(h.last().Merge(h.id("2-1"), h.id("0-1")))
	h.edit("1 GiB")(h.last().Roll(h.id("2-0")))
	h.edit("")(h.last().SplitWays(h.id("4-0"), 3))
	h.edit("a\nreason \x1b[31mwith\x1b[0m all sorts of things in it and far too long to be shown in one line of a terminal")(h.last().SplitWays(h.id("8-2"), 7))
	return h
}

// many is a topic with more segments than columns, and an edit of less than one.
func many(t *testing.T) *history {
	h := newHistory(t, 1)
	h.edit("a flood is expected")(h.last().SplitWays(h.id("0-0"), 500))
	h.edit("hot slot")(h.last().SplitWays(h.id("slot:20000"), 2))
	h.edit("the flood is over")(h.last().Merge(func() (ids []topic.SegmentID) {
		for _, s := range h.last().Live[100:] {
			ids = append(ids, s.ID)
		}
		return ids
	}()...))
	return h
}

func TestRiver(t *testing.T) {
	underWay := story(t)
	underWay.begin(underWay.last().SplitWays(underWay.id("8-0"), 2))
	for name, c := range map[string]struct {
		h *history
		d Drawing
	}{
		"new":     {newHistory(t, 1), Drawing{Width: 64}},
		"story":   {story(t), Drawing{Width: 64}},
		"ascii":   {story(t), Drawing{Width: 64, ASCII: true}},
		"narrow":  {story(t), Drawing{}},
		"last":    {story(t), Drawing{Width: 64, Edits: 2}},
		"pending": {underWay, Drawing{Width: 64, Edits: 1}},
		"many":    {many(t), Drawing{Width: 64}},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, name, River(c.h.layouts, c.d))
		})
	}
	if got := River(nil, Drawing{}); got != "" {
		t.Errorf("nothing is drawn as %q", got)
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
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
		t.Errorf("drawing (-want +got):\n%s", diff)
	}
}

// TestRiverOfAnything: whatever the edits, lines are as wide as they must be, and
// every border of every layout stands where it belongs.
func TestRiverOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, rapid.IntRange(1, 6).Draw(t, "segments"))
		for i := range rapid.IntRange(0, 12).Draw(t, "edits") {
			l := h.last()
			at := rapid.IntRange(0, len(l.Live)-1).Draw(t, fmt.Sprint("segment", i))
			switch {
			case i%3 == 2 && at+1 < len(l.Live):
				h.edit("cold")(l.Merge(l.Live[at].ID, l.Live[at+1].ID))
			case l.Live[at].Size() > 1:
				s := l.Live[at]
				h.edit("hot")(l.Split(s.ID, uint32(rapid.IntRange(int(s.Lo)+1, int(s.Hi)-1).Draw(t, fmt.Sprint("cut", i)))))
			}
		}
		d := Drawing{Width: rapid.IntRange(MinWidth, 120).Draw(t, "width"), ASCII: rapid.Bool().Draw(t, "ascii")}
		lines := strings.Split(strings.TrimSuffix(River(h.layouts, d), "\n"), "\n")
		if want := 2 + 2*((len(h.layouts)+1)/2); len(lines) != want {
			t.Fatalf("%d lines, want %d", len(lines), want)
		}
		c := canvas{d: d}
		for i, l := range h.layouts {
			if l.Pending {
				continue
			}
			body := []rune(lines[2+i])
			for _, x := range c.columns(l.Live) {
				if r := body[gutter+2+x]; !strings.ContainsRune("│║|#", r) {
					t.Fatalf("%q stands at column %d of the layout of epoch %d:\n%s", r, x, l.Epoch, strings.Join(lines, "\n"))
				}
			}
		}
		for _, line := range lines {
			if d.ASCII && len(line) != utf8.RuneCountInString(line) {
				t.Fatalf("not ASCII: %q", line)
			}
		}
	})
}
