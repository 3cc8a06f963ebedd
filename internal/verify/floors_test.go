package verify

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// spots are the slots at which ranges begin and end in these tests.
var spots = []uint32{0, 1, 2, 3, 5, 8, 100, 32768, 65534, 65535, 65536}

func drawRange(rt *rapid.T) topic.Range {
	lo := rapid.IntRange(0, len(spots)-2).Draw(rt, "lo")
	return topic.Range{Lo: spots[lo], Hi: spots[rapid.IntRange(lo+1, len(spots)-1).Draw(rt, "hi")]}
}

// TestRaise compares lists of levels with one position for each slot.
func TestRaise(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var list []level
		slots := map[uint32]topic.Position{}
		for range rapid.IntRange(1, 12).Draw(rt, "times") {
			r, at := drawRange(rt), topic.Position{Sequence: rapid.Uint64Range(1, 5).Draw(rt, "at")}
			list = raise(list, r, at)
			for _, slot := range spots {
				if r.Lo <= slot && slot < r.Hi {
					slots[slot] = slots[slot].Max(at)
				}
			}
		}
		for i, x := range list {
			if !x.Range.Valid() || i > 0 && x.Lo < list[i-1].Hi {
				rt.Fatalf("the list is no list: %v", list)
			}
		}
		for _, slot := range spots[:len(spots)-1] {
			got := find(list, slot)
			if got.at != slots[slot] || slot < got.Lo || slot >= got.Hi {
				rt.Fatalf("slot %d is at %v %s, want %s, in %v", slot, got.Range, got.at, slots[slot], list)
			}
		}
	})
}

// TestStretches: they cover a range, and in each of them both lists are the same
// throughout.
func TestStretches(t *testing.T) {
	draw := func(rt *rapid.T) (list []level) {
		for range rapid.IntRange(0, 6).Draw(rt, "levels") {
			list = raise(list, drawRange(rt), topic.Position{Sequence: rapid.Uint64Range(1, 3).Draw(rt, "at")})
		}
		return list
	}
	rapid.Check(t, func(rt *rapid.T) {
		a, b, within := draw(rt), draw(rt), drawRange(rt)
		next := within.Lo
		for s := range stretches(within, a, b) {
			if s.Lo != next || !s.Range.Valid() {
				rt.Fatalf("%s follows %d", s.Range, next)
			}
			for _, slot := range []uint32{s.Lo, s.Lo + (s.Hi-s.Lo)/2, s.Hi - 1} {
				if find(a, slot).at != s.a.at || find(b, slot).at != s.b.at {
					rt.Fatalf("slot %d of %s: %s and %s", slot, s.Range, s.a, s.b)
				}
			}
			next = s.Hi
		}
		if next != within.Hi {
			rt.Fatalf("they end at %d, want %s", next, within)
		}
	})
}

// TestSameAsComposed: what parents hand down, put side by side, is what the store
// composes by another way.
func TestSameAsComposed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var all []topic.Floor
		var parents []levels
		for i := range len(spots) - 1 { // each parent has one of the ranges between spots
			var mine []topic.Floor
			for _, source := range []string{"a", "b"} {
				seq := rapid.Uint64Range(0, 3).Draw(rt, source)
				if seq > 0 {
					at := time.Unix(int64(seq), 0).UTC()
					mine = append(mine, topic.Floor{Range: topic.Range{Lo: spots[i], Hi: spots[i+1]}, Source: source, At: topic.Position{Sequence: seq}, Time: at})
				}
			}
			l, err := levelsOf(mine)
			if err != nil {
				rt.Fatal(err)
			}
			all, parents = append(all, mine...), append(parents, l)
		}
		within := drawRange(rt)
		want, err := levelsOf(topic.ComposeFloors(within, all))
		if err != nil {
			rt.Fatal(err)
		}
		got := inherit(within, parents)
		for _, source := range sourcesOf(want, got) {
			for s := range stretches(within, want[source], got[source]) {
				if !s.a.same(s.b) {
					rt.Fatalf("source %s, slots %s: %s and %s", source, s.Range, s.a, s.b)
				}
			}
		}
		if detail := got.outside(within); detail != "" {
			rt.Fatal(detail)
		}
	})
}

// TestManyFloors: a description with as many floors as a file can have is judged
// in no time.
func TestManyFloors(t *testing.T) {
	const n = topic.Slots / 2
	floors := make([]topic.Floor, 0, n*4)
	for source := range 4 {
		for i := range uint32(n) {
			floors = append(floors, topic.Floor{Range: topic.Range{Lo: 2 * i, Hi: 2*i + 1}, Source: string(rune('a' + source)), At: topic.Position{Sequence: 1}})
		}
	}
	l, err := levelsOf(floors)
	if err != nil {
		t.Fatal(err)
	}
	s := segmentFile{child: child{Live: topic.Live{ID: "x", Range: topic.Full}, by: &topic.Layout{Edit: topic.Edit{Parents: []topic.SegmentID{"p"}}}}, got: topic.Segment{ID: "x", Range: topic.Full}, floors: l}
	s.parents = []ending{{Live: topic.Live{ID: "p", Range: topic.Full}, floors: l}}
	if detail := checkFloors(s); detail != "" {
		t.Error(detail)
	}
}
