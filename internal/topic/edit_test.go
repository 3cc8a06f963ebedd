package topic

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// edited applies an edit to a layout in force.
func edited(t interface {
	Helper()
	Fatal(...any)
}, l Layout, e Edit, err error,
) Layout {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	intent, err := l.Intent(e, time.Unix(int64(l.Epoch), 0), func() string { return "x" })
	if err != nil {
		t.Fatal(err)
	}
	return intent.Complete()
}

func ranges(l Layout) (list []Range) {
	for _, s := range l.Live {
		list = append(list, s.Range)
	}
	return list
}

func TestEdits(t *testing.T) {
	l := layoutOf(Full)
	root := l.Live[0].ID
	e, err := l.Split(root, 100, 4000)
	l = edited(t, l, e, err)
	want := []Live{{"00000002-00-x", Range{0, 100}}, {"00000002-01-x", Range{100, 4000}}, {"00000002-02-x", Range{4000, Slots}}}
	if diff := cmp.Diff(want, l.Live); diff != "" || l.Epoch != 2 || l.Pending {
		t.Fatalf("after the split, epoch %d, pending %v:\n%s", l.Epoch, l.Pending, diff)
	}
	e, err = l.Merge("00000002-02-x", "00000002-01-x")
	l = edited(t, l, e, err)
	e, err = l.Roll("00000002-00-x")
	l = edited(t, l, e, err)
	want = []Live{{"00000006-00-x", Range{0, 100}}, {"00000004-00-x", Range{100, Slots}}}
	if diff := cmp.Diff(want, l.Live); diff != "" {
		t.Fatalf("after merge and roll:\n%s", diff)
	}
	e, err = l.SplitWays("00000004-00-x", 4)
	l = edited(t, l, e, err)
	if diff := cmp.Diff([]Range{{0, 100}, {100, 16459}, {16459, 32818}, {32818, 49177}, {49177, Slots}}, ranges(l)); diff != "" {
		t.Fatalf("after the split in 4:\n%s", diff)
	}
}

func TestEditRefusals(t *testing.T) {
	l := layoutOf(Divide(4)...)
	a, b, c := l.Live[0].ID, l.Live[1].ID, l.Live[2].ID
	pending := l
	pending.Pending = true
	roll, _ := l.Roll(a)
	for name, f := range map[string]func() (Edit, error){
		"split of no live segment":    func() (Edit, error) { return l.Split("nobody", 5) },
		"cut at the start":            func() (Edit, error) { return l.Split(b, l.Live[1].Lo) },
		"cut at the end":              func() (Edit, error) { return l.Split(b, l.Live[1].Hi) },
		"cut outside":                 func() (Edit, error) { return l.Split(b, 3) },
		"cuts out of order":           func() (Edit, error) { return l.Split(a, 9, 8) },
		"a cut twice":                 func() (Edit, error) { return l.Split(a, 9, 9) },
		"one way":                     func() (Edit, error) { return l.SplitWays(a, 1) },
		"more ways than slots":        func() (Edit, error) { return l.SplitWays(a, Slots) },
		"more ways than can be live":  func() (Edit, error) { return l.SplitWays(a, MaxLive+1) },
		"merge of one":                func() (Edit, error) { return l.Merge(a) },
		"merge of one twice":          func() (Edit, error) { return l.Merge(a, a) },
		"merge of no neighbours":      func() (Edit, error) { return l.Merge(a, c) },
		"merge with no live segment":  func() (Edit, error) { return l.Merge(a, "nobody") },
		"roll of no live segment":     func() (Edit, error) { return l.Roll("nobody") },
		"edit while one is under way": func() (Edit, error) { _, err := pending.Intent(roll, time.Time{}, nil2); return Edit{}, err },
	} {
		_, err := f()
		var bad *EditError
		if !errors.As(err, &bad) {
			t.Errorf("%s: error %v", name, err)
		}
		if notLive := name == "split of no live segment" || name == "merge with no live segment" || name == "roll of no live segment"; errors.Is(err, ErrNotLive) != notLive {
			t.Errorf("%s: ErrNotLive is %v", name, !notLive)
		}
	}
}

func nil2() string { return "" }

// TestIntentValidation: what no constructor makes, a file may still hold.
func TestIntentValidation(t *testing.T) {
	l := layoutOf(Divide(4)...)
	good, err := l.SplitWays(l.Live[1].ID, 2)
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Layout){
		"no parents":        func(l *Layout) { l.Edit.Parents = nil },
		"no children":       func(l *Layout) { l.Edit.Children = nil },
		"parent not live":   func(l *Layout) { l.Edit.Parents = []SegmentID{"x"} },
		"children too few":  func(l *Layout) { l.Edit.Children = l.Edit.Children[:1] },
		"children too wide": func(l *Layout) { l.Edit.Children[1].Hi++ },
		"a hole":            func(l *Layout) { l.Edit.Children[1].Lo++ },
		"apart parents":     func(l *Layout) { l.Edit.Parents = []SegmentID{l.Live[1].ID, l.Live[3].ID} },
	} {
		intent, err := l.Intent(good, time.Time{}, nil2)
		if err != nil {
			t.Fatal(err)
		}
		spoil(&intent)
		var bad *EditError
		if err := intent.Validate(); !errors.As(err, &bad) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestChainsOfEdits: whatever edits are made, the layouts stay valid, ids are
// never used again, and children cover their parents.
func TestChainsOfEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := layoutOf(Divide(rapid.IntRange(1, 5).Draw(t, "n"))...)
		seen := map[SegmentID]bool{}
		for i := range rapid.IntRange(1, 12).Draw(t, "edits") {
			at := rapid.IntRange(0, len(l.Live)-1).Draw(t, "at")
			var e Edit
			var err error
			switch parent := l.Live[at]; rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				if e, err = l.SplitWays(parent.ID, rapid.IntRange(2, 4).Draw(t, "ways")); err != nil {
					continue // too narrow
				}
			case 1:
				if at == 0 {
					continue
				}
				e, err = l.Merge(parent.ID, l.Live[at-1].ID)
			default:
				e, err = l.Roll(parent.ID)
			}
			if err != nil {
				t.Fatal(err)
			}
			intent, err := l.Intent(e, time.Unix(9, 0), func() string { return fmt.Sprint(i) })
			if err != nil {
				t.Fatal(err)
			}
			next := intent.Complete()
			if err := next.Validate(); err != nil || next.Epoch != l.Epoch+2 {
				t.Fatalf("epoch %d after %d: %v", next.Epoch, l.Epoch, err)
			}
			for _, c := range next.Edit.Children {
				if seen[c.ID] {
					t.Fatalf("%s was used before", c.ID)
				}
				seen[c.ID] = true
			}
			l = next
		}
	})
}

// TestComposeFloors compares with the definition: per slot and source the
// highest floor, whatever the order.
func TestComposeFloors(t *testing.T) {
	small := func(t *rapid.T, label string) Range {
		lo := rapid.Uint32Range(0, 10).Draw(t, label)
		return Range{lo, lo + rapid.Uint32Range(1, 6).Draw(t, label)}
	}
	rapid.Check(t, func(t *rapid.T) {
		within := small(t, "within")
		floors := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Floor {
			seq := rapid.Uint64Range(0, 3).Draw(t, "at")
			return Floor{small(t, "range"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "source"), Whole(seq), time.Unix(int64(seq), 0)}
		}), 0, 9).Draw(t, "floors")
		got := ComposeFloors(within, floors)
		if diff := cmp.Diff(got, ComposeFloors(within, rapid.Permutation(floors).Draw(t, "order"))); diff != "" {
			t.Fatal(diff)
		}
		for slot := range Slot(20) {
			for _, source := range []string{"a", "b"} {
				want := Position{}
				if within.Contains(slot) {
					want = Segment{Floors: floors}.FloorOf(source, slot)
				}
				if have := (Segment{Floors: got}).FloorOf(source, slot); have != want {
					t.Fatalf("source %s at slot %d: %v, want %v", source, slot, have, want)
				}
			}
		}
		for i, f := range got {
			if !within.Covers(f.Range) || !f.Range.Valid() || f.At == (Position{}) {
				t.Fatalf("floor %v of %s", f, within)
			}
			if i > 0 && got[i-1].Source == f.Source && (got[i-1].Hi > f.Lo || got[i-1].Hi == f.Lo && got[i-1].At == f.At) {
				t.Fatalf("%v and %v should be one, or lie apart", got[i-1], f)
			}
		}
	})
}
