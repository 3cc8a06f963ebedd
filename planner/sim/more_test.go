package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-mq/spillway/internal/topic"
	"github.com/spillway-mq/spillway/planner"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestOnsets: how long a step keeps a segment above its target is bounded whenever
// it comes between two runs of the planner, and between two flushes.
func TestOnsets(t *testing.T) {
	for late := time.Duration(0); late < planner.DefaultPeriod; late += 350 * time.Millisecond {
		for _, height := range []float64{1.05, 1.5, 3, 20, 60} {
			p := planner.DefaultPolicy()
			p.Cap = 256
			r := play(t, steps(0.3, 10*time.Minute+late, height, 10*time.Minute), p, Options{})
			if want := p.Short + 2*planner.DefaultPeriod + topic.DefaultFlushAge; time.Duration(r.Longest) > want || r.Onsets != 1 {
				t.Errorf("a step to %g, %s later: %d onsets, over the target for %s", height, late, r.Onsets, tenths(r.Longest))
			}
		}
	}
}

// randomTrace is a load of up to two hours that changes as it likes.
func randomTrace(t *rapid.T) (trace Trace) {
	at := time.Duration(0)
	var w *Profile
	for range rapid.IntRange(1, 30).Draw(t, "steps") {
		if rapid.IntRange(0, 3).Draw(t, "moves") == 0 {
			lo := rapid.Uint32Range(0, topic.Slots-1).Draw(t, "lo")
			hi := rapid.Uint32Range(lo+1, topic.Slots).Draw(t, "hi")
			share := rapid.Float64Range(0, 1).Draw(t, "share")
			w, _ = NewProfile(Part{topic.Full, of(1 - share)}, Part{topic.Range{Lo: lo, Hi: hi}, of(share)})
		}
		trace.Steps = append(trace.Steps, Step{At: at, Rate: of(rapid.Float64Range(0, 30).Draw(t, "level")), Where: w})
		at += time.Duration(rapid.IntRange(1, 600).Draw(t, "for")) * time.Second
	}
	trace.Steps = append(trace.Steps, Step{At: at})
	return trace
}

// TestRandomLoads: whatever comes, no split is undone within the cool-down, the
// number of segments stays between floor and cap, and no records get lost on the way.
func TestRandomLoads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		trace := randomTrace(rt)
		p := planner.DefaultPolicy()
		p.Cap = rapid.IntRange(1, 100).Draw(rt, "cap")
		o := Options{Roots: rapid.IntRange(1, 5).Draw(rt, "roots"), Seed: 1}
		r, err := Run(context.Background(), trace, p, o)
		if err != nil {
			rt.Fatal(err)
		}
		if r.Undone > 0 {
			rt.Errorf("%d splits were undone", r.Undone)
		}
		if r.Most > max(p.Cap, o.Roots) || r.Last < min(p.Cap, o.Roots) {
			rt.Errorf("%d segments at most, %d in the end", r.Most, r.Last)
		}
		var come, drawn float64
		for i, s := range trace.Steps[1:] {
			come += trace.Steps[i].Bytes * (s.At - trace.Steps[i].At).Seconds()
		}
		for i, x := range r.Load {
			until := r.Length
			if i+1 < len(r.Load) {
				until = r.Load[i+1].At
			}
			drawn += x.Bytes * time.Duration(until-x.At).Seconds()
		}
		if math.Abs(come-drawn) > 1e-6*come+1 {
			rt.Errorf("%g bytes came, %g are drawn", come, drawn)
		}
	})
}

// TestRunIsRepeatable: the same arguments, the same result.
func TestRunIsRepeatable(t *testing.T) {
	once := func(seed uint64) string {
		r := play(t, movingSpot(time.Hour, 10*time.Minute, 5), planner.DefaultPolicy(), Options{Seed: seed})
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if diff := cmp.Diff(once(1), once(1)); diff != "" {
		t.Error(diff)
	}
	if once(1) == once(2) {
		t.Error("ids do not depend on the seed")
	}
}

func TestRunRefuses(t *testing.T) {
	good := steps(1.0, time.Minute)
	for name, o := range map[string]Options{
		"no time between runs": {Period: time.Nanosecond},
		"negative period":      {Period: -time.Second},
		"negative flush age":   {FlushAge: -time.Second},
		"negative edits":       {EditTime: -time.Second},
		"no segments":          {Roots: -1},
		"too many segments":    {Roots: topic.MaxLive + 1},
	} {
		_, err := Run(t.Context(), good, planner.DefaultPolicy(), o)
		var bad *OptionError
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, trace := range map[string]Trace{
		"no steps":       {},
		"one step":       {Steps: good.Steps[:1]},
		"back in time":   {Steps: []Step{{At: time.Second}, {At: time.Second}}},
		"before time":    {Steps: []Step{{At: -time.Second}, {At: time.Second}}},
		"for ever":       {Steps: []Step{{}, {At: math.MaxInt64}}},
		"negative load":  {Steps: []Step{{Rate: planner.Rate{Records: -1}}, {At: time.Second}}},
		"load is no one": {Steps: []Step{{Rate: planner.Rate{Records: math.NaN()}}, {At: time.Second}}},
		"declared":       {Steps: good.Steps, Declared: []Declaration{{Rate: planner.Rate{Bytes: math.Inf(1)}}}},
	} {
		_, err := Run(t.Context(), trace, planner.DefaultPolicy(), Options{})
		var bad *TraceError
		if !errors.As(err, &bad) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, good, planner.DefaultPolicy(), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a run that nobody waits for: %v", err)
	}
}

// TestTooManyEdits: a policy that never rests does not fill the memory.
func TestTooManyEdits(t *testing.T) {
	s := newRun(steps(1.2, time.Hour), naive(), Options{}.withDefaults())
	s.kept = maxKept - 20
	for s.now.Before(s.end) {
		if err := s.step(); err != nil {
			if !strings.Contains(err.Error(), "too many to keep") {
				t.Error(err)
			}
			return
		}
	}
	t.Error("it goes on for ever")
}

func layoutOf(kind string, at time.Duration, children ...topic.Range) (l topic.Layout) {
	l.At, l.Edit.Kind = time.Unix(0, 0).Add(at), kind
	for _, r := range children {
		l.Edit.Children = append(l.Edit.Children, topic.Live{Range: r})
	}
	return l
}

func TestMergedWithin(t *testing.T) {
	const m = time.Minute
	r := Result{Layouts: []topic.Layout{
		layoutOf(topic.EditSplit, 0, rng(0, 10), rng(10, 20)),
		layoutOf(topic.EditSplit, 5*m, rng(40, 50), rng(50, 60)),
		layoutOf(topic.EditMerge, 6*m, rng(20, 40)),  // nothing of it was split
		layoutOf(topic.EditMerge, 9*m, rng(0, 20)),   // undoes the first
		layoutOf(topic.EditMerge, 12*m, rng(0, 40)),  // long after the first
		layoutOf(topic.EditMerge, 14*m, rng(30, 41)), // takes in a part of the second
		layoutOf(topic.EditMerge, 15*m, rng(30, 60)), // the time is over
	}}
	if got := r.MergedWithin(10 * m); got != 2 {
		t.Errorf("%d merges within 10 minutes, want 2", got)
	}
}

func TestBusiest(t *testing.T) {
	var r Result
	for _, minute := range []int{0, 30, 59, 60, 61, 200} {
		r.Edits = append(r.Edits, Edit{At: topic.Duration(minute) * topic.Duration(time.Minute), Decision: planner.Decision{Kind: planner.Split}})
	}
	r.Edits = append(r.Edits, Edit{At: topic.Duration(200 * time.Minute), Decision: planner.Decision{Kind: planner.Roll}})
	if got := r.busiest(time.Hour); got != 4 {
		t.Errorf("%d, want 4", got)
	}
}

func TestImbalance(t *testing.T) {
	for name, c := range map[string]struct {
		list []Segment
		want float64
	}{
		"none":                      {nil, 0},
		"one":                       {[]Segment{{topic.Full, 1}}, 0},
		"no load":                   {[]Segment{{rng(0, 9), 0}, {rng(9, 20), 0}}, 0},
		"two":                       {[]Segment{{rng(0, 9), 1}, {rng(9, 20), 3}}, 3},
		"hot slot":                  {[]Segment{{rng(0, 9), 1}, {rng(9, 10), 30}, {rng(10, 15), 0.5}, {rng(15, 20), 1}}, 2},
		"between edge and hot slot": {[]Segment{{rng(0, 9), 0.01}, {rng(9, 10), 30}, {rng(10, 15), 1}, {rng(15, 20), 1.5}}, 1.5},
	} {
		if got := Imbalance(c.list); got != c.want {
			t.Errorf("%s: %g, want %g", name, got, c.want)
		}
	}
}

// TestProfile: what falls into the parts of any division is the whole, and overlapping
// parts add up.
func TestProfile(t *testing.T) {
	w, sum := NewProfile(
		Part{rng(0, 100), planner.Rate{Records: 10, Bytes: 100}},
		Part{rng(50, 60), planner.Rate{Records: 30, Bytes: 10}},
	)
	s := Step{Rate: sum, Where: w}
	if got, want := s.of(rng(55, 80)), (planner.Rate{Records: 2.5 + 15, Bytes: 25 + 5}); math.Abs(got.Records-want.Records)+math.Abs(got.Bytes-want.Bytes) > 1e-9 {
		t.Errorf("got %v, want %v", got, want)
	}
	rapid.Check(t, func(rt *rapid.T) {
		trace := randomTrace(rt)
		s := trace.Steps[0]
		if s.Where == nil {
			s.Where = everywhere
		}
		var all planner.Rate
		lo := uint32(0)
		for lo < topic.Slots {
			hi := rapid.Uint32Range(lo+1, topic.Slots).Draw(rt, "hi")
			all = all.Plus(s.of(topic.Range{Lo: lo, Hi: hi}))
			lo = hi
		}
		if math.Abs(all.Bytes-s.Bytes) > 1e-9*s.Bytes {
			rt.Errorf("%g in all, %g in parts", s.Bytes, all.Bytes)
		}
	})
}

// TestChunk: a flush tells as much as a chunk does, and no more.
func TestChunk(t *testing.T) {
	w := hotKey(12345, 0.6)
	s := Step{Rate: of(1), Where: w}
	r := rng(10000, 30000)
	d := chunk(r, s).Density(r, true)
	if d.Range() != r {
		t.Fatalf("it tells of %s", d.Range())
	}
	if all := s.of(r).Bytes; math.Abs(d.Total()-all) > 100 {
		t.Errorf("%g bytes, want %g", d.Total(), all)
	}
	hot, ok := d.Heaviest()
	if want := s.of(rng(12345, 12346)).Bytes; !ok || hot.Lo != 12345 || math.Abs(hot.Load-want) > 1 {
		t.Errorf("the hot slot is %v, want 12345 with %g", hot, want)
	}
	fine := Step{Rate: of(1), Where: manyKeys(zipf)}
	if c := chunk(topic.Full, fine); len(c.Load) != 64 || len(c.Hot) == 0 || len(c.Hot) > 32 {
		t.Errorf("%d buckets and %d hot slots", len(c.Load), len(c.Hot))
	}
}

// TestThinned: thinning what is old hardly changes averages.
func TestThinned(t *testing.T) {
	p := planner.DefaultPolicy()
	thin := newLive(topic.Live{Range: topic.Full}, time.Unix(0, 0))
	full := planner.Series{{At: time.Unix(0, 0)}}
	next := noise(1, 1)
	for i := 1; i < 3000; i++ {
		now := time.Unix(int64(i), 0)
		thin.arrived = thin.arrived.Plus(of(next(0)))
		thin.flush(now)
		full = append(full, thin.committed())
		if i%5 != 0 {
			continue
		}
		thin.look(now, p)
		for _, window := range []time.Duration{p.Short, p.Long} {
			a, b := thin.series.Average(now, window).Bytes, full.Average(now, window).Bytes
			if math.Abs(a-b) > 0.03*b {
				t.Fatalf("after %d s: %g over %s, exactly %g", i, a, window, b)
			}
		}
	}
	if n := len(thin.series); n > 80 {
		t.Errorf("%d samples are kept", n)
	}
}

// TestTraces plays the recorded loads, and compares what is said of them.
func TestTraces(t *testing.T) {
	files, err := filepath.Glob("testdata/*.csv")
	if err != nil || len(files) < 3 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close() //nolint:errcheck // read-only
			trace, err := Read(f)
			if err != nil {
				t.Fatal(err)
			}
			r := play(t, trace, planner.DefaultPolicy(), Options{})
			text := r.Text() + "\n" + withoutRolls(r.Log())
			golden := strings.TrimSuffix(file, ".csv") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Error(diff)
			}
			var b bytes.Buffer
			if err := r.SVG(&b, file); err != nil {
				t.Fatal(err)
			}
			if err := xml.Unmarshal(b.Bytes(), new(struct{ XMLName xml.Name })); err != nil {
				t.Error(err)
			}
		})
	}
}

func withoutRolls(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		if !strings.Contains(line, "  roll ") {
			b.WriteString(line)
		}
	}
	return b.String()
}
