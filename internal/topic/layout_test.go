package topic

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func layoutOf(ranges ...Range) Layout {
	var l Layout
	for i, r := range ranges {
		l.Live = append(l.Live, Live{SegmentID(fmt.Sprint(i)), r})
	}
	return l
}

func TestValidateLayout(t *testing.T) {
	twice := layoutOf(Range{0, 10}, Range{10, Slots})
	twice.Live[1].ID = twice.Live[0].ID
	for name, l := range map[string]Layout{
		"empty": {}, "gap": layoutOf(Range{0, 10}, Range{11, Slots}), "overlap": layoutOf(Range{0, 10}, Range{9, Slots}),
		"late start": layoutOf(Range{1, Slots}), "early end": layoutOf(Range{0, Slots - 1}), "too far": layoutOf(Range{0, Slots + 1}),
		"unsorted": layoutOf(Range{10, Slots}, Range{0, 10}), "empty range": layoutOf(Range{0, 0}, Full), "same id": twice,
		"backwards": layoutOf(Range{0, 10}, Range{10, 5}, Range{5, Slots}), "beyond": layoutOf(Full, Range{Slots, math.MaxUint32}),
		"doubled": layoutOf(Full, Full),
	} {
		if l.Validate() == nil {
			t.Errorf("%s: it is valid", name)
		}
	}
	if err := layoutOf(Full).Validate(); err != nil {
		t.Error(err)
	}
}

func TestRoute(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cuts := rapid.SliceOfNDistinct(rapid.Uint32Range(1, Slots-1), 0, 40, rapid.ID).Draw(t, "cuts")
		cuts = append(cuts, 0, Slots)
		slices.Sort(cuts)
		var ranges []Range
		for i := range cuts[1:] {
			ranges = append(ranges, Range{cuts[i], cuts[i+1]})
		}
		l := layoutOf(ranges...)
		if err := l.Validate(); err != nil {
			t.Fatal(err)
		}
		slots := rapid.SliceOf(rapid.Uint32Range(0, Slots-1)).Draw(t, "slots")
		for _, c := range cuts[1:] {
			slots = append(slots, c-1, c%Slots)
		}
		for _, s := range slots {
			i := slices.IndexFunc(l.Live, func(live Live) bool { return live.Contains(Slot(s)) })
			if got := l.Route(Slot(s)); got != l.Live[i].ID {
				t.Fatalf("slot %d goes to %s, want %s", s, got, l.Live[i].ID)
			}
		}
	})
}

func TestDivide(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 64, 1000, Slots - 1, Slots} {
		ranges := Divide(n)
		if err := layoutOf(ranges...).Validate(); err != nil || len(ranges) != n {
			t.Errorf("%d: %d ranges, error %v", n, len(ranges), err)
		}
		for _, r := range ranges {
			if size := int(r.Size()); size < Slots/n || size > Slots/n+1 {
				t.Errorf("%d: %s has the size %d", n, r, size)
			}
		}
	}
}

func TestFloorOf(t *testing.T) {
	s := Segment{Floors: []Floor{
		{Range: Range{0, 10}, Source: "a", At: Whole(5)}, {Range: Range{5, 20}, Source: "a", At: Position{5, 3}},
		{Range: Range{5, 20}, Source: "a", At: Whole(9)}, {Range: Range{0, 20}, Source: "b", At: Whole(99)},
	}}
	for _, c := range []struct {
		source string
		slot   Slot
		want   Position
	}{{"a", 0, Whole(5)}, {"a", 7, Whole(9)}, {"a", 19, Whole(9)}, {"a", 20, Position{}}, {"b", 0, Whole(99)}, {"c", 0, Position{}}} {
		if got := s.FloorOf(c.source, c.slot); got != c.want {
			t.Errorf("floor of %s at %d is %v, want %v", c.source, c.slot, got, c.want)
		}
	}
}
