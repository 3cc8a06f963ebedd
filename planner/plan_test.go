package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
)

// drawPolicy gives valid policies. What is merged back is below what pieces get,
// as it is by default.
func drawPolicy(t *rapid.T) Policy {
	p := DefaultPolicy()
	p.Fill = rapid.Float64Range(0.2, 0.7).Draw(t, "fill")
	p.Sustained = rapid.Float64Range(p.Fill*1.02, 1.5).Draw(t, "sustained")
	p.Burst = rapid.Float64Range(p.Sustained, 2).Draw(t, "burst")
	p.MergeBelow = rapid.OneOf(rapid.Just(p.Fill), rapid.Float64Range(0, p.Fill)).Draw(t, "merge below")
	p.MaxWays = rapid.IntRange(2, 64).Draw(t, "max ways")
	p.Cap = rapid.OneOf(rapid.IntRange(1, 20), rapid.IntRange(20, topic.MaxLive)).Draw(t, "cap")
	p.Floor = rapid.OneOf(rapid.Just(0), rapid.IntRange(0, min(p.Cap, 20))).Draw(t, "floor")
	return p
}

// drawSituation gives topics of up to 25 segments.
func drawSituation(t *rapid.T) Situation {
	s := Situation{Topic: "t", Now: noon, Roots: rapid.IntRange(1, 8).Draw(t, "roots")}
	edges := rapid.SliceOfNDistinct(rapid.OneOf(rapid.Uint32Range(1, topic.Slots-1), rapid.Uint32Range(100, 110)), 0, 24, rapid.ID).Draw(t, "edges")
	edges = append(edges, 0, topic.Slots)
	slices.Sort(edges)
	for i := range edges[1:] {
		s.Layout.Live = append(s.Layout.Live, topic.Live{ID: topic.NewSegmentID(1, i, "test"), Range: topic.Range{Lo: edges[i], Hi: edges[i+1]}})
		s.Loads = append(s.Loads, drawLoad(t, s.Layout.Live[i]))
	}
	s.Layout.Epoch = 1
	if rapid.IntRange(0, 3).Draw(t, "declared") == 0 {
		s.Expected = drawRate(t)
	}
	if rapid.IntRange(0, 9).Draw(t, "backlog") == 0 {
		s.Backlogs = []Backlog{{"default-0", 7, time.Minute}}
	}
	s.RollOnly = rapid.IntRange(0, 20).Draw(t, "roll only") == 0
	return s
}

func drawRate(t *rapid.T) Rate {
	level := rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 0.3), rapid.Float64Range(0, 2), rapid.Float64Range(0, 50))
	return Rate{level.Draw(t, "records") * topic.TargetRecords, level.Draw(t, "bytes") * topic.TargetBytes}
}

func drawLoad(t *rapid.T, live topic.Live) Load {
	l := Load{Segment: live.ID, Short: drawRate(t), Long: drawRate(t), Observed: time.Hour, Density: drawDensity(t, live.Range)}
	if rapid.Bool().Draw(t, "steady") {
		l.Long = l.Short
	}
	if rapid.IntRange(0, 5).Draw(t, "young") == 0 {
		l.Observed = rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Second, time.Minute, 2 * time.Minute}).Draw(t, "observed")
		l.Split = noon.Add(-l.Observed)
	}
	if l.Records = rapid.Uint64Range(0, 3).Draw(t, "holds"); l.Records > 0 {
		l.Bytes = rapid.Uint64Range(0, 2<<30).Draw(t, "bytes")
		l.First = noon.Add(-rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Hour, 100 * time.Hour}).Draw(t, "first"))
	}
	return l
}

func drawDensity(t *rapid.T, r topic.Range) (d topic.Density) {
	if rapid.IntRange(0, 3).Draw(t, "unknown") == 0 {
		return nil
	}
	edges := []uint32{r.Lo, r.Hi}
	for range rapid.IntRange(0, 6).Draw(t, "edges") {
		at := rapid.Uint32Range(r.Lo, r.Hi-1).Draw(t, "edge")
		edges = append(edges, at, at+1)
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	for i := range edges[1:] {
		load := rapid.SampledFrom([]float64{0, 0.1, 1, 3, 10}).Draw(t, "load")
		d = append(d, topic.Stretch{Range: topic.Range{Lo: edges[i], Hi: edges[i+1]}, Load: load})
	}
	return d
}

// TestPlanIsComplete: each live segment is in exactly one decision, in the order
// of the key space, with a reason of one line; the same situation gives the same
// plan, and is not changed.
func TestPlanIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		loads := slices.Clone(s.Loads)
		decisions := Plan(s, p)
		checkDecisions(t, s, decisions)
		if diff := cmp.Diff(decisions, Plan(s, p)); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(loads, s.Loads); diff != "" {
			t.Fatal("the situation was changed:", diff)
		}
		if AtRest(s, p) && slices.ContainsFunc(decisions, func(d Decision) bool { return d.Kind != Keep }) {
			t.Fatalf("at rest, but there is something to do: %v", decisions)
		}
	})
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

func checkDecisions(t fataler, s Situation, decisions []Decision) {
	t.Helper()
	var seen, live []topic.SegmentID
	for _, l := range s.Layout.Live {
		live = append(live, l.ID)
	}
	for _, d := range decisions {
		seen = append(seen, d.Segments...)
		if d.Reason == "" || strings.ContainsAny(d.Reason, "\n\r\t") || strings.Contains(d.Reason, "%!") || strings.Contains(d.Reason, "NaN") || len(d.Reason) > 500 {
			t.Fatalf("reason %q", d.Reason)
		}
		if !(d.Level >= 0) || math.IsInf(d.Level, 0) {
			t.Fatalf("level %v", d.Level)
		}
		if (d.Kind == Split) != (len(d.Cuts) > 0) || (d.Kind == Merge) != (len(d.Segments) > 1) {
			t.Fatalf("decision %v", d)
		}
	}
	if !slices.Equal(seen, live) {
		t.Fatalf("decisions about %v, live are %v", seen, live)
	}
}

// apply makes an edit.
func apply(t fataler, l topic.Layout, d Decision) topic.Layout {
	t.Helper()
	e, err := d.Edit(l)
	if err == nil {
		var intent topic.Layout
		if intent, err = l.Intent(e, noon, func() string { return "test" }); err == nil {
			return intent.Complete()
		}
	}
	t.Fatalf("%s: %v", headline(d), err)
	return l
}

// TestPlanCanBeMade: edits can be made in any order, and the number of segments
// stays between floor and cap all the while, or where it was.
func TestPlanCanBeMade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		before := len(s.Loads)
		floor := newPlan(s, p).floor
		edits := slices.DeleteFunc(Plan(s, p), func(d Decision) bool { return d.Kind == Keep })
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		rng.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
		layout := s.Layout
		for _, d := range edits {
			layout = apply(t, layout, d)
			if n := len(layout.Live); n < min(floor, before) || n > max(p.Cap, before) {
				t.Fatalf("%d segments were %d, floor %d, cap %d", before, n, floor, p.Cap)
			}
		}
		if err := layout.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPlanKeepsThresholds: no split at Sustained or below, no merge at MergeBelow
// or above, and none of what must not be touched.
func TestPlanKeepsThresholds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		i := 0
		for _, d := range Plan(s, p) {
			loads := s.Loads[i : i+len(d.Segments)]
			i += len(d.Segments)
			switch {
			case s.RollOnly && (d.Kind == Split || d.Kind == Merge):
				t.Fatalf("%s, but the topic is rolled only", headline(d))
			case d.Kind == Split && (d.Level <= p.Sustained || len(d.Cuts) >= p.MaxWays):
				t.Fatalf("%s at level %v", headline(d), d.Level)
			case d.Kind == Merge:
				checkMerge(t, s, p, loads, d)
			case d.Kind == Roll && (loads[0].Records == 0 || loads[0].Bytes < p.RollBytes && noon.Sub(loads[0].First) < p.RollAge):
				t.Fatalf("%s, which holds %d records, %d bytes, since %s", headline(d), loads[0].Records, loads[0].Bytes, loads[0].First)
			}
		}
	})
}

func checkMerge(t fataler, s Situation, p Policy, loads []Load, d Decision) {
	t.Helper()
	var short, long Rate
	for _, l := range loads {
		short, long = short.Plus(l.Short), long.Plus(l.Long)
		if !l.Split.IsZero() && noon.Sub(l.Split) < p.CoolDown || l.Observed < p.Long {
			t.Fatalf("%s, but %s is too young", headline(d), l.Segment)
		}
	}
	if max(p.level(short), p.level(long)) >= p.MergeBelow || len(s.Backlogs) > 0 || len(loads) > p.MaxWays {
		t.Fatalf("%s at level %v", headline(d), d.Level)
	}
}

// grow gives the situation after a plan, with the load that was there before: each
// child has what fell into its range, and is known as well.
func grow(t fataler, s Situation, p Policy, decisions []Decision) Situation {
	t.Helper()
	next := s
	next.Loads = nil
	pl, i := newPlan(s, p), 0
	for _, d := range decisions {
		if d.Kind != Keep {
			next.Layout = apply(t, next.Layout, d)
		}
		first := s.Loads[i]
		switch d.Kind {
		case Split:
			load := topic.Even(pl.segments[i].Range, 1)
			if total := first.Density.Total(); total > 0 {
				load = first.Density.Times(1 / total)
			}
			for _, piece := range piecesOf(load, d.Cuts) {
				next.Loads = append(next.Loads, Load{Short: first.Short.Times(piece.Load), Long: first.Long.Times(piece.Load), Density: load.Within(piece.Range)})
			}
		case Merge:
			var sum Load
			for _, l := range s.Loads[i : i+len(d.Segments)] {
				sum.Short, sum.Long = sum.Short.Plus(l.Short), sum.Long.Plus(l.Long)
			}
			next.Loads = append(next.Loads, sum)
		default:
			next.Loads = append(next.Loads, first)
		}
		i += len(d.Segments)
	}
	for i := range next.Loads {
		next.Loads[i].Segment, next.Loads[i].Observed = next.Layout.Live[i].ID, time.Hour
	}
	return next
}

// TestPlanIsStable: if the load stays as it is, then what was split is not split
// again and not merged back, and what was merged is not split.
func TestPlanIsStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		first := Plan(s, p)
		next := grow(t, s, p, first)
		parent := map[topic.SegmentID]int{} // by child, the decision that it is from
		i := 0
		for n, d := range first {
			limited := strings.Contains(d.Reason, "were wanted")
			for range len(d.Cuts) + 1 {
				if d.Kind == Split && !limited || d.Kind == Merge {
					parent[next.Loads[i].Segment] = n + 1
				}
				i++
			}
		}
		for _, d := range Plan(next, p) {
			from := parent[d.Segments[0]]
			switch {
			case from == 0:
			case d.Kind == Split:
				t.Fatalf("first %s: %s\nthen %s: %s", headline(first[from-1]), first[from-1].Reason, headline(d), d.Reason)
			case d.Kind == Merge && first[from-1].Kind == Split && parent[d.Segments[1]] == from:
				t.Fatalf("first %s: %s\nthen %s: %s", headline(first[from-1]), first[from-1].Reason, headline(d), d.Reason)
			}
		}
	})
}

// TestPiecesOfSplits: no piece carries more than Fill unless it is one slot or the
// split was limited, and pieces are about equal where no slot is heavy.
func TestPiecesOfSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		pl, i := newPlan(s, p), 0
		for _, d := range Plan(s, p) {
			if d.Kind == Split {
				checkPieces(t, pl, i, d)
			}
			i += len(d.Segments)
		}
	})
}

func checkPieces(t fataler, pl *plan, i int, d Decision) {
	t.Helper()
	density := pl.density(i)
	slot, light, heavy := 0.0, math.Inf(1), 0.0
	for _, s := range density {
		slot = max(slot, s.Load/float64(s.Size()))
	}
	for _, piece := range piecesOf(density, d.Cuts) {
		light, heavy = min(light, piece.Load), max(heavy, piece.Load)
		if piece.Load > 1.011*pl.Fill && piece.Size() > 1 && !strings.Contains(d.Reason, "were wanted") {
			t.Fatalf("%s: piece %v", headline(d), piece)
		}
	}
	if slot < heavy/8 && heavy > 2*light {
		t.Fatalf("%s: from %v to %v: %s", headline(d), light, heavy, d.Reason)
	}
}

// TestPiecesOf: the pieces have what a density has.
func TestPiecesOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDensity(t, topic.Full)
		cuts := rapid.SliceOfNDistinct(rapid.Uint32Range(1, topic.Slots-1), 0, 30, rapid.ID).Draw(t, "cuts")
		slices.Sort(cuts)
		for _, p := range piecesOf(d, cuts) {
			if want := d.Of(p.Range); math.Abs(p.Load-want) > 1e-9 {
				t.Fatalf("%v of %v has %v, want %v", p.Range, d, p.Load, want)
			}
		}
	})
}

// TestPlanSettles: under a load that does not change, a topic of any kind comes to
// a layout that stays, in few steps.
func TestPlanSettles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, p := drawSituation(t), drawPolicy(t)
		for i := range s.Loads {
			s.Loads[i].Records = 0 // nothing to roll
		}
		for range 64 {
			decisions := Plan(s, p)
			if !slices.ContainsFunc(decisions, func(d Decision) bool { return d.Kind != Keep }) {
				return
			}
			s = grow(t, s, p, decisions)
		}
		t.Fatalf("it does not settle: %s", describe(s, p, Plan(s, p)))
	})
}

func TestEditOfKeep(t *testing.T) {
	if _, err := (Decision{Kind: Keep}).Edit(topic.Layout{}); err == nil {
		t.Error("keeping is an edit")
	}
	if e, err := (Decision{Kind: Roll, Segments: []topic.SegmentID{"a"}, Reason: "old"}).Edit(topic.Layout{Live: []topic.Live{{ID: "a", Range: topic.Full}}}); err != nil || e.Reason != "planner: old" {
		t.Errorf("edit %v, error %v", e, err)
	}
}

// TestPlanOfOddLoads: what cannot be is not acted on, and not more than that.
func TestPlanOfOddLoads(t *testing.T) {
	half := topic.Range{Lo: 0, Hi: topic.Slots / 2}
	hot := Rate{Bytes: 1.8 * topic.TargetBytes}
	even := "split 1-0 into 4 at 16384 32768 49152"
	for name, c := range map[string]struct {
		load Load
		want string
	}{
		"records of no known time":  {Load{Records: 5, Bytes: 5}, "keep 1-0"},
		"records of the future":     {Load{Records: 5, Bytes: 5, First: noon.Add(time.Hour)}, "keep 1-0"},
		"negative in one window":    {Load{Short: hot, Long: Rate{Records: -1}}, "keep 1-0"},
		"no number in the other":    {Load{Short: Rate{Bytes: math.NaN()}, Long: hot}, "keep 1-0"},
		"density of another range":  {Load{Short: hot, Density: topic.Even(half, 1)}, even},
		"density with a gap":        {Load{Short: hot, Density: topic.Density{{Range: half, Load: 1}, {Range: topic.Range{Lo: half.Hi + 1, Hi: topic.Slots}}}}, even},
		"negative density":          {Load{Short: hot, Density: topic.Density{{Range: half, Load: 3}, {Range: topic.Range{Lo: half.Hi, Hi: topic.Slots}, Load: -1}}}, even},
		"density that is no number": {Load{Short: hot, Density: topic.Even(topic.Full, math.NaN())}, even},
		"infinite density":          {Load{Short: hot, Density: topic.Density{{Range: half, Load: math.Inf(1)}, {Range: topic.Range{Lo: half.Hi, Hi: topic.Slots}}}}, even},
		"density of nothing":        {Load{Short: hot, Density: topic.Even(topic.Full, 0)}, even},
		"split in the future":       {Load{Short: hot, Split: noon.Add(time.Hour)}, even},
	} {
		c.load.Observed, c.load.Segment = time.Hour, topic.NewSegmentID(1, 0, "test")
		s := Situation{Topic: "t", Now: noon, Roots: 1, Layout: topic.Layout{Live: []topic.Live{{ID: c.load.Segment, Range: topic.Full}}}, Loads: []Load{c.load}}
		if d := Plan(s, DefaultPolicy()); len(d) != 1 || headline(d[0]) != c.want {
			t.Errorf("%s: got %v, want %s", name, d, c.want)
		}
	}
}
